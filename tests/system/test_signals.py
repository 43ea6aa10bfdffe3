"""Signal handlers, alternate stacks and signal masks of programs."""
from support import main, small_program


class Test(small_program("signals")):
    pass


if __name__ == "__main__":
    main()
