"""mmap, munmap, mremap, mprotect, madvise and mlock on far memory; limits that programs set; their own userfaultfd."""
from support import PROGRAMS, SMALL, SystemTest, main, run, small_program


class Test(small_program("mappings")):
    pass


class Limits(small_program("limits")):
    pass


class Descriptors(SystemTest):
    def test_program_that_has_all(self):
        """Both limits are equal where the run begins; a program takes all descriptors before it needs far memory."""
        far = SMALL[0].launcher("--quiet", "--tune", "policy=fifo")
        result = run(["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *far, PROGRAMS / "limits", "all_descriptors"], seconds=60)
        self.assertEqual((result.status, result.output), (0, b"all_descriptors ok\n"), result.errors)


class OwnUserfaultfd(small_program("own_userfaultfd")):
    pass


if __name__ == "__main__":
    main()
