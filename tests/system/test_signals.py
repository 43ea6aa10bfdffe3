"""A program's own signal handlers, stacks and masks."""
from support import main, small_program


class Test(small_program("signals")):
    pass


if __name__ == "__main__":
    main()
