"""xz and zstd with two threads compress and decompress real text."""
from support import MIB, SHARES, SystemTest, expand, main, require, sha256_of, variations, write_text

COMMANDS = {
    "xz": (["-T2", "-1", "--block-size=2MiB"], 5 * MIB),
    "zstd": (["-q", "-T2", "-6", "--long=25"], 8 * MIB),
}


@expand
class CompressTest(SystemTest):
    def round_trip(self, variation, tool):
        options, size = COMMANDS[tool]
        path, text = require(tool), self.folder / f"{tool}.txt"
        if not text.exists():
            write_text(text, size)
        packed = self.folder / f"{tool}.packed"
        squeeze = ["/bin/sh", "-c", 'exec "$0" "$@" >packed', path, *options, "-c", text]
        if not packed.exists():
            self.native(squeeze)
            (self.folder / "packed").rename(packed)
        self.far(variation, squeeze)
        self.assertEqual(sha256_of(self.folder / "packed"), sha256_of(packed))
        unpack = ["/bin/sh", "-c", 'exec "$0" "$@" >unpacked', path, "-d", "-c", packed]
        if tool == "zstd":
            unpack.insert(5, "--long=25")
        # The heap of a decompressor is small: it may fit into near memory.
        self.far(variation, unpack, evictions=False)
        self.assertEqual(sha256_of(self.folder / "unpacked"), sha256_of(text))

    @variations(SHARES)
    def test_xz(self, variation):
        self.round_trip(variation, "xz")

    @variations(SHARES)
    def test_zstd(self, variation):
        self.round_trip(variation, "zstd")


if __name__ == "__main__":
    main()
