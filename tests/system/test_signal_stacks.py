"""Signals that interrupt code on stacks in far memory."""
from support import main, small_program


class Test(small_program("signal_stacks")):
    pass


if __name__ == "__main__":
    main()
