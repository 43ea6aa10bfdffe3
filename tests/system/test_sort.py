"""GNU sort with two threads on real text, in UTF-8 locales."""
from support import MIB, SHARES, SystemTest, environment, expand, main, require, run, sha256_of, variations, write_text

PLAIN = 100 * MIB  # C.UTF-8 compares bytes
COLLATED = 10 * MIB   # en_US.UTF-8 compares by tables, many times slower


@expand
class SortTest(SystemTest):
    def sort(self, text, locale, runner):
        output = self.folder / f"{self.id()}.sorted"
        runner([require("sort"), "--parallel=2", "--buffer-size=1G", "-o", output, text],
               env=environment(LC_ALL=locale, LOCPATH=str(self.folder)) if locale != "C.UTF-8" else environment())
        digest = sha256_of(output)
        output.unlink()
        return digest

    def compare(self, variation, locale, size):
        text = self.folder / f"{locale}.txt"
        if not text.exists():
            write_text(text, size)
        expected = self.once(locale, lambda: self.sort(text, locale, self.native))
        self.assertEqual(self.sort(text, locale, lambda command, **more: self.far(variation, command, **more)), expected)

    @variations(SHARES)
    def test_bytewise(self, variation):
        self.compare(variation, "C.UTF-8", PLAIN)

    @variations(SHARES)
    def test_collated(self, variation):
        """The locale's tables are in the heap, so every comparison accesses far memory."""
        if not (self.folder / "en_US.UTF-8").exists():
            made = run([require("localedef"), "-i", "en_US", "-f", "UTF-8", "--no-archive", "./en_US.UTF-8"],
                       cwd=self.folder)
            if not (self.folder / "en_US.UTF-8").exists():
                self.skipTest(f"localedef cannot make en_US.UTF-8: {made.errors.decode()}")
        self.compare(variation, "en_US.UTF-8", COLLATED)


if __name__ == "__main__":
    main()
