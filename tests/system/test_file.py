"""Programs whose far memory is in a file: their processes, what damages the file, and what ends the launcher."""
import mmap
import os
import signal
import subprocess
import time
from pathlib import Path

from support import (FARSIDE, MIB, PROGRAMS, PYTHON, SMALL, SystemTest, end_group, environment, expand, main, run, tail,
                     variations)
from test_token import STARTS

LAYOUT_HEADER = 256 * 1024  # of the file, without pages


@expand
class FileTest(SystemTest):
    def address(self, settings="&crypt=yes"):
        return f"file:{self.folder}?size=512M{settings}"

    def far_file_of(self, process, seconds=20):
        """The path of the launcher's file in /proc; it has no other name."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for entry in Path(f"/proc/{process.pid}/fd").iterdir():
                target = os.readlink(entry) if entry.is_symlink() else ""
                if target.startswith(str(self.folder)) and target.endswith("(deleted)") and os.stat(entry).st_blocks > 65536:
                    return entry
            time.sleep(0.05)
        raise AssertionError("the launcher has no file in which a page was stored")

    def start(self, *program):
        process = subprocess.Popen([*SMALL[0].launcher("--quiet", "--far", self.address("")), *map(str, program)],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                                   cwd=self.folder, env=environment())
        self.addCleanup(end_group, process)
        return process

    @variations(SMALL)
    def test_forked_and_executed_programs(self, variation):
        path = PROGRAMS / "children"
        for case in ("both_sides_write", "generations", "execs", "orphan", "exit_in_thread", "raw_clone"):
            with self.subTest(case):
                self.same(variation, [path, case], self.native([path, case], seconds=60), evictions=False, seconds=90,
                          options=("--tune", "policy=fifo", "--far", self.address()))

    @variations(SMALL)
    def test_programs_that_are_started_have_far_memory(self, variation):
        for name, start in STARTS.items():
            with self.subTest(name):
                result = self.far(variation, [PYTHON, "-c", start], options=("--far", self.address()), evictions=False)
                self.assertEqual(result.output, b"hello\n")
                self.assertEqual(len(result.stats["processes"]), 1 if name.startswith("exec") else 2)

    def test_a_damaged_file_ends_the_program(self):
        process = self.start(PROGRAMS / "rounds", 20000, 1000000)
        damage = mmap.mmap(-1, MIB)  # direct I/O needs aligned memory
        damage.write((b"damage" * MIB)[:MIB])
        file = os.open(self.far_file_of(process), os.O_RDWR | os.O_DIRECT)
        self.addCleanup(os.close, file)
        for at in range(LAYOUT_HEADER, LAYOUT_HEADER + 64 * MIB, MIB):
            os.pwrite(file, damage, at)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + signal.SIGABRT, tail(errors))
        self.assertIn(b"[F209]", errors)

    def test_the_program_outlives_the_launcher(self):
        process = self.start(PROGRAMS / "rounds", 20000, 40)
        self.far_file_of(process)
        process.kill()
        output, errors = process.communicate(timeout=60)
        native = run([str(PROGRAMS / "rounds"), "20000", "40"])
        self.assertEqual(output, native.output, tail(errors))

    def test_what_cannot_be_used_is_refused(self):
        (self.folder / "valuable").write_text("data")
        for address, status, identifier in ((f"file:{self.folder}/valuable?size=64M", 1, b"[F113]"),
                                            ("file:relative", 2, b"[F001]"),
                                            (f"file:{self.folder}?size=64M&speed=high", 1, b"[F110]")):
            result = run([FARSIDE, "run", "--far", address, "--", "/bin/true"])
            self.assertEqual(result.status, status, address)
            self.assertIn(identifier, result.errors)
        self.assertEqual((self.folder / "valuable").read_text(), "data")

    def test_a_limit_of_files_sizes_is_refused(self):
        """As it binds what the run writes by itself. The server without --far has its memory in files, too."""
        for far, wanted in ([["--far", f"file:{self.folder}?size=64M"], rb"ulimit -f unlimited.*\[F113\]"],
                            [[], rb"sizes of files \(ulimit -f\) \[F702\]"]):
            result = run(["bash", "-c", 'ulimit -f 300000; exec "$@"', "bash", FARSIDE, "run", *far, "--", "/bin/true"])
            self.assertEqual(result.status, 1, result.errors)
            self.assertRegex(result.errors, wanted)


if __name__ == "__main__":
    main()
