"""fork, vfork, posix_spawn, exec, system, popen."""
from support import main, small_program


class Test(small_program("children")):
    pass


if __name__ == "__main__":
    main()
