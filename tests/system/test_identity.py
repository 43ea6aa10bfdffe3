"""Processes whose last thread ends, changes of credentials, namespaces."""
from support import main, small_program


class Test(small_program("identity")):
    pass


if __name__ == "__main__":
    main()
