"""mmap, munmap, mremap, mprotect, madvise and mlock on far memory."""
from support import main, small_program


class Test(small_program("mappings")):
    pass


if __name__ == "__main__":
    main()
