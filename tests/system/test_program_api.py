"""Programs that use Farside's headers, built outside the source tree with an installed Farside."""
import re
import shutil
import signal
import subprocess
from pathlib import Path

from support import BUILD, FARSIDE, ROOT, SHARES, SystemTest, environment, expand, main, run, variations

BOTH_MODES = SHARES[1:3]  # each share and each mode once
OUTSIDE = Path(__file__).resolve().parent / "outside"


@expand
class ProgramApiTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = cls.folder / "prefix"
        cls.check("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.check("cmake", "-S", OUTSIDE, "-B", cls.folder / "outside", f"-DCMAKE_PREFIX_PATH={cls.prefix}")
        cls.check("cmake", "--build", cls.folder / "outside", "--parallel", "2")

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

    def compiled_with_other_headers(self, pattern, replacement):
        """A program whose headers differ from those of the library."""
        headers = self.folder / "other_headers"
        shutil.rmtree(headers, ignore_errors=True)
        shutil.copytree(self.prefix / "include", headers)
        version = headers / "farside/version.h"
        text, changes = re.subn(pattern, replacement, version.read_text(encoding="utf-8"))
        self.assertEqual(changes, 1, pattern)
        version.write_text(text, encoding="utf-8")
        program = self.folder / "by_other_headers"
        self.check("gcc", "-O1", "-I", headers, "-o", program, OUTSIDE / "hinted.c", f"-L{self.prefix}/lib", "-lfarside",
                   f"-Wl,-rpath,{self.prefix}/lib")
        return program

    def test_a_program_with_other_headers_is_refused(self):
        for pattern, replacement in ((r"(VERSION_MINOR) \d+", r"\1 99"), (r"(PAGE_NEAR_) 0x\w+", r"\1 0x3u"),
                                     (r"(OWNER_LINE_SHIFT_) \d+", r"\1 21")):
            program = self.compiled_with_other_headers(pattern, replacement)
            for command in ([program, "right"], [FARSIDE, "run", "--quiet", "--", program, "right"]):
                result = run(list(map(str, command)), env=environment())
                self.assertEqual(result.status, 134, command)
                self.assertEqual(result.output, b"")
                line, = result.errors.decode().splitlines()
                self.assertRegex(line, r"error: .*/by_other_headers was compiled with headers of Farside .*compile it again.*F613")

    def test_a_plain_c_program_needs_no_cxx_runtime(self):
        needed = self.check("ldd", self.program("hinted"))
        self.assertNotIn("libstdc++", needed)

    @variations(BOTH_MODES)
    def test_far_objects_equal_native_ones(self, variation):
        expected = self.once("objects", lambda: self.native([self.program("objects")]))
        self.assertIn(b"far=0", expected.errors)
        result = self.same(variation, [self.program("objects")], expected)
        counts = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", result.errors.decode())}
        self.assertEqual(counts["far"], 1)
        self.assertGreater(counts["taken"], 1000)
        self.assertGreater(counts["moved"], 1000)

    @variations(BOTH_MODES)
    def test_far_containers_equal_native_ones(self, variation):
        expected = self.once("containers", lambda: self.native([self.program("containers")]))
        self.assertIn(b"far=0", expected.errors)
        result = self.same(variation, [self.program("containers")], expected)
        counts = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", result.errors.decode())}
        self.assertEqual(counts["far"], 1)
        self.assertGreater(counts["taken"], 1000)

    @variations(BOTH_MODES)
    def test_a_cache_drops_what_does_not_fit(self, variation):
        expected = self.once("cache", lambda: self.native([self.program("cache")]))
        self.assertEqual(expected.output, b"child: 0 wrong\nparent: 0 wrong\n")
        self.assertIn(b"far=0 dropped=0", expected.errors)
        result = self.same(variation, [self.program("cache")], expected)
        self.assertGreater(int(re.search(r"far=1 dropped=(\d+)", result.errors.decode()).group(1)), 10000)

    @variations(BOTH_MODES)
    def test_the_tutorial_ports_a_program(self, variation):
        expected = self.once("tutorial", lambda: self.native([self.program("tutorial_before")]))
        ported = self.native([self.program("tutorial")])
        self.assertEqual(ported.output, expected.output)
        self.assertIn(b"far=0", ported.errors)
        self.same(variation, [self.program("tutorial_before")], expected)
        for paths in ("page", "object", "hybrid") if variation.fault == "signal" else ("hybrid",):
            result = self.same(variation, [self.program("tutorial")], expected, options=["--tune", f"paths={paths}"])
            counts = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", result.errors.decode())}
            self.assertEqual(counts["far"], 1)
            if paths != "page":
                self.assertGreater(counts["taken"], 1000)

    def test_the_tutorial_shows_compiled_code(self):
        def lines(text):
            return [line.strip() for line in text.splitlines() if line.strip()]
        programs = [lines((OUTSIDE / name).read_text("utf8")) for name in ("tutorial.cc", "tutorial_before.cc")]
        blocks = [lines(block) for block in re.findall(r"```cpp\n(.*?)```", (ROOT / "docs/guide/objects.md").read_text("utf8"), re.S)]
        self.assertGreater(len(blocks), 10)
        for block in blocks:
            self.assertTrue(any(block == program[at:at + len(block)] for program in programs for at in range(len(program))),
                            "\n".join(block))

    def test_misuse_of_scopes_is_detected_on_request(self):
        program, checked = self.program("scope_misuse"), environment(FARSIDE_CHECK_SCOPES="1")
        self.assertEqual(self.native([program], env=checked).output, b"sum 12\n")
        for misuse, message in [("after", "an object of 24 bytes was used after the scope of its pointer had ended"),
                                ("beyond", "or from beyond another object's end"),
                                ("const", "an object of 24 bytes was written through a pointer for reading; use deref_mut"),
                                ("destroyed", "an object of 24 bytes was used after it was destroyed")]:
            result = run([program, misuse], env=checked)
            self.assertEqual(result.status, -signal.SIGSEGV, misuse)
            self.assertIn(message, result.errors.decode())
            self.assertIn("scope_misuse(+0x", result.errors.decode())  # the location, for addr2line
        expected = self.once("objects", lambda: self.native([self.program("objects")]))
        self.assertEqual(self.native([self.program("objects")], env=checked).output, expected.output)

    def test_the_compiler_rejects_what_the_tutorial_says(self):
        text = " ".join((ROOT / "docs/guide/objects.md").read_text("utf8").split())
        for use, message in [("customer.deref();", "no matching function for call to 'farside::unique_ptr<Customer>::deref()'"),
                             ("customer->spent = 1;", "base operand of '->' has non-pointer type"),
                             ("farside::deref_scope s; customer.deref(s)->spent = 1;", "in read-only object"),
                             ("farside::make_unique<std::string>();", "Farside moves far objects as bytes: make the type trivially copyable"),
                             ("farside::make_unique<Node>();", "Farside moves far objects as bytes: make the type trivially copyable"),
                             ("auto second = customer;", "use of deleted function")]:
            self.assertIn(message, text)
            source = self.folder / "refused.cc"
            source.write_text("#include <farside/ptr.hpp>\n#include <string>\n"
                              "struct Customer { long spent = 0; };\n"
                              "struct Node { farside::unique_ptr<Node> next; };\n"
                              f"void use(farside::unique_ptr<Customer>& customer) {{ {use} }}\n", encoding="utf8")
            result = run(["g++", "-std=c++20", "-fsyntax-only", f"-I{self.prefix}/include", str(source)], env=environment(LC_ALL="C"))
            self.assertNotEqual(result.status, 0, use)
            self.assertIn(message, result.errors.decode())

    @variations(SHARES)
    def test_hints_never_change_results(self, variation):
        expected = self.once("hinted", lambda: self.native([self.program("hinted"), "none"]))
        self.assertEqual(expected.errors.split()[0], b"far=0")
        for hints in ("none", "right", "wrong"):
            result = self.same(variation, [self.program("hinted"), hints], expected)
            counts = {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", result.errors.decode())}
            self.assertEqual(counts["far"], 1)
            if hints == "none":
                self.assertEqual(counts["hints"], 0)
                unhinted = counts["faults"]
            elif hints == "right":
                self.assertGreater(counts["fetched"], 1000)
                self.assertLess(counts["faults"], unhinted)
            else:
                self.assertGreater(counts["wild"], 300)

    @variations(SHARES)
    def test_fibers_traverse_far_memory(self, variation):
        expected = self.once("fibers", lambda: self.native([self.program("fibers")]))
        self.same(variation, [self.program("fibers")], expected)


if __name__ == "__main__":
    main()
