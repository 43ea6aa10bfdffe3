"""Programs that use farside/farside.h and fibers, built outside the tree from an installed Farside."""
import re
import shutil
import subprocess
from pathlib import Path

from support import BUILD, SHARES, SystemTest, environment, expand, main, run, variations

OUTSIDE = Path(__file__).resolve().parent / "outside"


@expand
class ProgramApiTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = cls.folder / "prefix"
        cls.check("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.check("cmake", "-S", OUTSIDE, "-B", cls.folder / "outside", f"-DCMAKE_PREFIX_PATH={cls.prefix}")
        cls.check("cmake", "--build", cls.folder / "outside")

    @classmethod
    def check(cls, *command):
        result = run([str(word) for word in command])
        assert result.status == 0, f"{command}\n{result.output.decode()}\n{result.errors.decode()}"
        return result.output.decode()

    def program(self, name):
        return self.folder / "outside" / name

    def test_pkg_config_finds_the_library(self):
        pkg_config = shutil.which("pkg-config")
        if not pkg_config:
            self.skipTest("pkg-config is not installed")
        env = environment(PKG_CONFIG_PATH=str(self.prefix / "lib/pkgconfig"))
        flags = subprocess.run([pkg_config, "--cflags", "--libs", "farside"], env=env, capture_output=True, check=True, text=True).stdout
        self.check("gcc", "-O1", "-o", self.folder / "by_pkg_config", OUTSIDE / "hinted.c", *flags.split(), f"-Wl,-rpath,{self.prefix}/lib")
        result = self.native([self.folder / "by_pkg_config", "right"])
        self.assertIn(b"far=0", result.errors)

    def test_a_plain_c_program_needs_no_cxx_runtime(self):
        needed = self.check("ldd", self.program("hinted"))
        self.assertNotIn("libstdc++", needed)

    @variations(SHARES)
    def test_far_objects_are_what_they_are_natively(self, variation):
        expected = self.once("objects", lambda: self.native([self.program("objects")]))
        self.assertIn(b"far=0", expected.errors)
        result = self.same(variation, [self.program("objects")], expected)
        told = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", result.errors.decode())}
        self.assertEqual(told["far"], 1)
        self.assertGreater(told["taken"], 1000)
        self.assertGreater(told["moved"], 1000)

    @variations(SHARES)
    def test_far_containers_are_what_they_are_natively(self, variation):
        expected = self.once("containers", lambda: self.native([self.program("containers")]))
        self.assertIn(b"far=0", expected.errors)
        result = self.same(variation, [self.program("containers")], expected)
        told = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", result.errors.decode())}
        self.assertEqual(told["far"], 1)
        self.assertGreater(told["taken"], 1000)

    @variations(SHARES)
    def test_hints_never_change_results(self, variation):
        expected = self.once("hinted", lambda: self.native([self.program("hinted"), "none"]))
        self.assertEqual(expected.errors.split()[0], b"far=0")
        for hints in ("none", "right", "wrong"):
            result = self.same(variation, [self.program("hinted"), hints], expected)
            told = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", result.errors.decode())}
            self.assertEqual(told["far"], 1)
            if hints == "none":
                self.assertEqual(told["hints"], 0)
                unhinted = told["faults"]
            elif hints == "right":
                self.assertGreater(told["fetched"], 1000)
                self.assertLess(told["faults"], unhinted)
            else:
                self.assertGreater(told["wild"], 300)

    @variations(SHARES)
    def test_fibers_walk_through_far_memory(self, variation):
        expected = self.once("fibers", lambda: self.native([self.program("fibers")]))
        self.same(variation, [self.program("fibers")], expected)


if __name__ == "__main__":
    main()
