"""Signal handlers, alternate stacks and signal masks of programs."""
from support import main, small_program


class Test(small_program("signals")):
    pass


class InCallsTest(small_program("signals_in_calls")):
    pass


if __name__ == "__main__":
    main()
