"""run_test.py BUILD [OPTIONS of unittest]. A packed copy needs nothing of the machine but a kernel and a shell, its document
is complete, and it refuses a machine that lacks what it needs at once, in one line. No time is judged."""
import ctypes
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().with_name("run")
BUILD = Path(sys.argv.pop(1)).resolve()
SECONDS = 150
PACK_LIMIT = 60 << 20
SMALL = ("--quiet", "--size", "16M", "--seconds", "0.05", "--accesses", "3000", "--repeat", "1")
ALONE = {"signal", "signal mask", "copy", "fault and copy", "drop 1 page", "absent page, a userfaultfd each"}
PAGING = {(far, workload) for far in ("shm", "tcp", "shm handler")
          for workload in ("random read", "random write", "sequential read")}
SYS_USERFAULTFD, SYS_IOCTL, SYS_VMSPLICE, SYS_MEMFD_CREATE = 323, 16, 278, 319
EPERM = 1


def forbid(system_calls):
    """From now on the calls fail in this process with EPERM, as a container's filter makes it."""
    code = [(0x20, 0, 0, 0)]
    for number in system_calls:
        code += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | EPERM)]
    code.append((0x06, 0, 0, 0x7FFF0000))
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text)))
    libc = ctypes.CDLL(None)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        os._exit(99)


def run(command, **options):
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, **options)


class PackedTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="farside-scale-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.pack = self.folder / "pack"
        packed = run([str(SCRIPT), "pack", str(self.pack), str(BUILD)])
        self.assertEqual((packed.returncode, packed.stderr), (0, b""))

    def measure(self, *options, **how):
        return run(["env", "-i", str(self.pack / "run"), *SMALL, *options], cwd="/", **how)

    def test_runs_with_an_empty_environment(self):
        files = [path for path in self.pack.rglob("*") if path.is_file()]
        self.assertLess(sum(path.stat().st_size for path in files), PACK_LIMIT)
        document = self.folder / "threads.json"
        result = self.measure("--threads", "1,2", "--json", str(document))
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        found = json.loads(document.read_text())
        for field in ("processor", "cores", "kernel", "commit"):
            self.assertTrue(found["machine"][field], field)
        self.check_rows(found["rows"])
        if os.geteuid() != 0:
            self.assertEqual(found["skipped"]["zram swap"], "needs root")

    def check_rows(self, rows):
        costs, = [row for row in rows if row.get("part") == "costs"]
        self.assertIn("random read", costs["costs"][0]["workloads"])
        rates = {(row["configuration"], row["workload"], row["threads"]): row for row in rows if "threads" in row}
        for threads in (1, 2):
            for alone in ALONE:
                self.assertGreater(rates["kernel alone", alone, threads]["us"]["median"], 0, alone)
            for far, workload in PAGING:
                row = rates[far, workload, threads]
                for rate in ("per_s", "faults_per_s", "evictions_per_s"):
                    self.assertGreater(row[rate]["median"], 0, (far, workload, rate))
                self.assertGreater(row["counters"]["accesses"], 0)

    def test_the_most_important_rows_are_measured_in_any_time(self):
        document = self.folder / "threads.json"
        result = self.measure("--threads", "2", "--budget", "0.001", "--json", str(document))
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        found = json.loads(document.read_text())
        self.assertEqual([(row["configuration"], row["workload"]) for row in found["rows"]], [("shm", "random read")])
        self.assertEqual(found["skipped"]["tcp, random read"], "the time of --budget was used up")

    def test_refuses_a_machine_that_lacks_what_it_needs(self):
        for calls, named in (([SYS_USERFAULTFD, SYS_IOCTL], b"userfaultfd"),  # ioctl: of /dev/userfaultfd
                             ([SYS_VMSPLICE], b"page hold"), ([SYS_MEMFD_CREATE], b"memory files")):
            self.assert_refused(calls, named)

    def assert_refused(self, calls, named):
        result = self.measure(preexec_fn=lambda: forbid(calls))
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertTrue(result.stderr.startswith(b"farside: error: this machine lacks what the run needs: " + named),
                        result.stderr)
        self.assertEqual(result.stderr.count(b"\n"), 1, result.stderr)

    def test_an_unpacked_copy_says_how_to_pack_it(self):
        result = run([str(SCRIPT), "--quiet"])
        self.assertEqual((result.returncode, result.stdout), (1, b""))
        self.assertIn(b"is not packed; run", result.stderr)


if __name__ == "__main__":
    unittest.main()
