"""mmap, munmap, mremap, mprotect, madvise and mlock on far memory; limits that programs set; their own userfaultfd."""
from support import main, small_program


class Test(small_program("mappings")):
    pass


class Limits(small_program("limits")):
    pass


class OwnUserfaultfd(small_program("own_userfaultfd")):
    pass


if __name__ == "__main__":
    main()
