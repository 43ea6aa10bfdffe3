"""clone and clone3 in their variants, and what the kernel does when a thread ends."""
from support import main, small_program


# In handler mode the kernel cannot wait for a far page when a thread ends, and nothing traps that end.
# test_static_programs.py has this case for signal mode.
class Test(small_program("clones", left_out={"robust_mutexes"})):
    pass


if __name__ == "__main__":
    main()
