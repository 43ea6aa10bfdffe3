"""The malloc family."""
from support import main, small_program


class Test(small_program("allocator")):
    pass


if __name__ == "__main__":
    main()
