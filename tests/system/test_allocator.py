"""The malloc family, and what C++ makes of allocations that fail."""
from support import PROGRAMS, SMALL, SystemTest, expand, main, small_program, variations


class Test(small_program("allocator")):
    pass


@expand
class FailedAllocations(SystemTest):
    def check(self, variation, *command):
        self.same(variation, command, self.native(command, seconds=60), evictions=False, seconds=60)

    @variations(SMALL)
    def test_program(self, variation):
        self.check(variation, PROGRAMS / "exceptions")

    @variations(SMALL)
    def test_library(self, variation):
        self.check(variation, PROGRAMS / "exceptions_host", PROGRAMS / "exceptions_library.so")

    @variations(SMALL)
    def test_library_with_its_own_runtime(self, variation):
        self.check(variation, PROGRAMS / "exceptions_host", PROGRAMS / "exceptions_static.so")


if __name__ == "__main__":
    main()
