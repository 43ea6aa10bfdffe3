"""System calls with arguments in far memory; blocking and interrupted calls; closed descriptors."""
from support import main, small_program


class Test(small_program("calls")):
    pass


class BlockingTest(small_program("blocking_calls")):
    pass


class WholeTest(small_program("whole_calls")):
    pass


class EveryTest(small_program("every_call")):
    pass


if __name__ == "__main__":
    main()
