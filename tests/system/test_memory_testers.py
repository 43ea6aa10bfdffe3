"""Programs that test memory: stress-ng and memtester."""
from support import SHARES, SystemTest, environment, expand, main, require, variations

# A bit for each of memtester's tests, in its order: random value, compare xor, sub, mul, div, or, and, sequential
# increment, solid bits, block sequential, checkerboard, bit spread, bit flip, walking ones, walking zeroes, writes. The
# slow ones access the memory hundreds of times and would find nothing more.
QUICK_MASK = 0b11000000011111111


@expand
class MemoryTesterTest(SystemTest):
    @variations(SHARES)
    def test_stress_ng(self, variation):
        result = self.far(variation, [require("stress-ng"), "--vm", "1", "--vm-bytes", "128M", "--vm-method", "all",
                                      "--verify", "-t", "5s"])
        output = (result.output + result.errors).decode()
        self.assertIn("successful run completed", output)
        self.assertNotIn("fail:", output)

    @variations(SHARES)
    def test_memtester(self, variation):
        result = self.far(variation, [require("memtester"), "64M", "1"],
                          env=environment(MEMTESTER_TEST_MASK=hex(QUICK_MASK)))
        output = result.output.decode()
        self.assertIn("Stuck Address", output)
        self.assertIn("Done.", output)
        self.assertNotIn("FAILURE", output)


if __name__ == "__main__":
    main()
