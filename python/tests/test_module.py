"""The module `farside`: the programs of this folder that test it, natively and under Farside, and its types."""
import re
import shlex
import tempfile
import unittest
from pathlib import Path

from environment import Environment

HERE = Path(__file__).resolve().parent
EVERYWHERE = ("arrays.py", "allocator.py", "files.py", "arrow.py", "notebook.py")  # natively and under Farside


class ModuleTest(unittest.TestCase):
    def run_tests(self, program, *launcher):
        Environment.run(*launcher, "python", "-B", HERE / program)

    def test_without_farside(self):
        for program in (*EVERYWHERE, "native.py"):
            self.run_tests(program)

    def test_in_signal_mode(self):
        self.run_far("signal")

    def test_in_handler_mode(self):
        self.run_far("handler")

    def run_far(self, mode):
        for program in (*EVERYWHERE, "far.py"):
            self.run_tests(program, "farside", "run", "--quiet", "--local", "48M", f"--fault={mode}", "--")

    def test_offloaded_operators(self):
        launcher = ("farside", "run", "--quiet", "--local", "48M", "--offload", "--")
        Environment.run("python", "-B", HERE / "compute.py")
        Environment.run(*launcher, "python", "-B", HERE / "compute.py", "server", "automatic")

    def test_the_kernel_of_notebooks(self):
        self.run_tests("jupyter.py")

    def test_the_command_that_init_names_starts_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Path(folder, "a job.py")
            job.write_text("import farside, sys\nfarside.init('64M')\nprint(farside.limit(), *sys.argv[1:])\n", encoding="utf-8")
            error = Environment.run("python", job, "a b", status=1)
            command = shlex.split(error.splitlines()[-1].split("start it by: ")[1])
            self.assertEqual(Environment.run(*command), "67108864 a b\n")

    @staticmethod
    def programs_of(guide):
        return re.findall("```python\n(.*?)```", (HERE.parents[1] / "docs/guide" / guide).read_text(encoding="utf-8"), re.DOTALL)

    def test_the_programs_of_the_guides_print_the_same_far(self):
        search = self.programs_of("larger_than_memory.md")[-1].replace("1_000_000", "100_000").replace("50_000", "5_000")
        programs = zip([*self.programs_of("python.md"), search], ("19999900000\n", "[{'hour': ", "[["), strict=True)
        launcher = ("python", "-m", "farside", "run", "--quiet", "--local", "32M", "--offload")
        with tempfile.TemporaryDirectory() as folder:
            for text, begin in programs:
                program = Path(folder, "program.py")
                program.write_text(text, encoding="utf-8")
                native = Environment.run("python", program)
                self.assertEqual(native[:len(begin)], begin)
                self.assertEqual(Environment.run(*launcher, program), native)

    def test_types(self):
        Environment.run("python", "-m", "mypy", "--strict", "--no-incremental", "-p", "farside")
        Environment.run("python", "-m", "mypy", "--strict", "--no-incremental", HERE / "typed.py")
