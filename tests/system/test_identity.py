"""Processes whose last thread ends, changes of credentials, namespaces; the number of threads that programs read."""
from support import SMALL, main, small_program

SIGNAL, HANDLER = ([variation for variation in SMALL if variation.fault == mode] for mode in ("signal", "handler"))


class Test(small_program("identity")):
    pass


class OwnThreads(small_program("own_threads", SIGNAL)):
    pass


# Streams of libc read by system calls that nothing traps in handler mode.
class OwnThreadsInHandlerMode(small_program("own_threads", HANDLER, {"stream"})):
    pass


if __name__ == "__main__":
    main()
