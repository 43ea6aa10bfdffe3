"""Data frames over far memory: operators near, on a memory server and automatic have the same results."""
from support import PROGRAMS, SMALL, expand, main, run, tail, variations
from test_servers import Servers

PROGRAM = PROGRAMS / "data_frame"


@expand
class DataFrameTest(Servers):
    def check(self, command):
        result = run(command, cwd=self.folder, seconds=120)
        self.assertEqual((result.status, result.output), (0, b"done\n"), tail(result.errors))

    def test_without_farside(self):
        self.check([PROGRAM, "near"])

    @variations(SMALL)
    def test_without_a_server_that_offers_calls(self, variation):
        self.check([*variation.launcher("--quiet"), PROGRAM, "near"])

    @variations(SMALL)
    def test_on_a_server_over_shared_memory(self, variation):
        self.check([*variation.launcher("--quiet", "--offload"), PROGRAM, "server"])

    @variations(SMALL)
    def test_on_a_server_over_tcp(self, variation):
        _, address = self.serve("--offload")
        self.check(self.client(variation, address, PROGRAM, "server"))


if __name__ == "__main__":
    main()
