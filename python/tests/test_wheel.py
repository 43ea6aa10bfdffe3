"""The wheel's programs, libraries and headers, used as a user would."""
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from environment import Environment

MAX_BYTES = 15 << 20
JOB = """
import sys
values = [bytes([i % 251]) * 4096 for i in range(10_000)]
print(sum(value[0] for value in values), *sys.argv[1:])
"""


def elf_files(folder):
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
            yield path


class WheelTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.job = self.folder / "job.py"
        self.job.write_text(JOB, encoding="utf-8")

    def far(self, command, *words):
        """What a program prints that runs with a quarter of its heap near, where some of it really was far."""
        stats = self.folder / "stats.json"
        printed = Environment.run(*command, "run", "--quiet", "--local", "25%", f"--stats=json:{stats}", *words)
        self.assertGreater(json.loads(stats.read_text(encoding="utf-8"))["processes"][0]["evictions"], 0)
        return printed

    def test_it_is_small_and_for_all_versions_of_python(self):
        self.assertLess(Environment.wheel.stat().st_size, MAX_BYTES)
        self.assertRegex(Environment.wheel.name, r"^farside-[0-9.]+-py3-none-(manylinux_\d_\d+|linux)_x86_64\.whl$")

    def test_all_shared_libraries_are_found_and_other_than_those_of_libc_are_the_wheels(self):
        libc = re.compile(r"(linux-vdso|libc|libm|libz|libgcc_s|libstdc\+\+|ld-linux-x86-64)\.so\b")
        files = list(elf_files(Environment.prefix()))
        self.assertGreater(len(files), 8)
        for path in files:
            for line in subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout.splitlines():
                name, _, found = line.strip().partition(" => ")
                if not libc.search(name.split("/")[-1]):
                    self.assertIn(str(Environment.folder), found, f"{path}: {line}")

    def test_doctor_finds_the_installation(self):
        findings = {c["name"]: c for c in json.loads(Environment.run("farside", "doctor", "--json"))["checks"]}
        self.assertEqual(findings["preload library"]["health"], "ok")
        self.assertIn(str(Environment.prefix()), json.dumps(findings["preload library"]))

    def test_the_console_script_runs_programs(self):
        native = Environment.run("python", self.job, "a", "b c")
        self.assertEqual(self.far(["farside"], "--", "python", self.job, "a", "b c"), native)
        self.assertIn("F001", Environment.run("farside", "run", self.job, status=2))

    def test_the_module_runs_scripts_modules_and_commands_in_its_interpreter(self):
        native = Environment.run("python", self.job, "--", "x.py")
        module = ["python", "-m", "farside"]
        self.assertEqual(self.far(module, self.job, "--", "x.py"), native)
        self.assertEqual(self.far(module, "--", self.job, "--", "x.py"), native)
        self.assertEqual(self.far(module, "-c", JOB, "--", "x.py"), native)
        show = ["-c", "import sys; print(sys.executable)"]
        self.assertEqual(Environment.run(*module, "run", "--quiet", *show), Environment.run("python", *show))
        self.assertIn("usage: python -m json.tool", Environment.run(*module, "run", "--quiet", "-m", "json.tool", "--help"))

    def test_the_module_leaves_other_programs_as_they_are(self):
        program = "from farside.__main__ import with_interpreter as w; import sys; print(w(sys.argv[1:]) == sys.argv[1:])"
        for words in (["doctor"], [], ["run", "--"], ["run", "--", "sort", "x.py"], ["run", "--", "ls", "-c"],
                      ["track", "-p", "1"], ["run", "--local=x.py"]):
            self.assertEqual(Environment.run("python", "-c", program, *words), "True\n", words)

    def test_a_missing_program_is_named(self):
        program = "import farside.__main__ as m; from pathlib import Path; m.prefix = Path('/nowhere'); m.main()"
        error = Environment.run("python", "-c", program, status=1)
        self.assertEqual(error.count("\n"), 1)
        self.assertIn("cannot execute /nowhere/bin/farside: No such file or directory", error)

    def test_tools_run(self):
        Environment.run("farside", "trace", "--local", "25%", "--out", self.folder / "trace", "--", "python", self.job)
        self.assertGreater(json.loads((self.folder / "trace/trace.json").read_text(encoding="utf-8"))["faults"], 0)
        for tool in ("plan", "track", "bench"):
            self.assertIn(f"farside {tool}", Environment.run("farside", tool, "--help"))

    def test_programs_compile_with_the_headers_and_the_library(self):
        prefix, program = Environment.prefix(), self.folder / "program"
        source = "#include <farside/farside.h>\nint main(void) { return farside_version() != FARSIDE_VERSION; }\n"
        program.with_suffix(".c").write_text(source, encoding="utf-8")
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "farside"], capture_output=True, text=True, check=True,
                               env=os.environ | {"PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}).stdout.split()
        subprocess.run(["cc", program.with_suffix(".c"), "-o", program, *flags, f"-Wl,-rpath,{prefix}/lib"], check=True)
        subprocess.run([program], check=True)
        Environment.run("farside", "run", "--quiet", "--", program)
