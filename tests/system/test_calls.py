"""System calls with far arguments, waiting and interrupted ones, closed descriptors."""
from support import main, small_program


class Test(small_program("calls")):
    pass


if __name__ == "__main__":
    main()
