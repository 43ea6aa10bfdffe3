"""Runs programs natively and under `farside run`, and compares their output. Standard library only.

BUILD_FOLDER names the build to test (default: build/release). SYSTEM_TEST_SCALE multiplies the sizes of the inputs.
"""
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

BUILD = Path(os.environ.get("BUILD_FOLDER", ROOT / "build/release"))
FARSIDE = str(BUILD / "bin/farside")
PROGRAMS = BUILD / "tests/system/programs"
SCALE = float(os.environ.get("SYSTEM_TEST_SCALE", "1"))
MIB = 1 << 20
SECONDS = 240  # time limit of one program under Farside
NOTHING_TESTED = 77
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


@dataclass(frozen=True)
class Variation:
    local: str
    fault: str

    @property
    def name(self):
        return f"{self.local.replace('%', 'percent')}_{self.fault}"

    def launcher(self, *options):
        return [FARSIDE, "run", "--local", self.local, f"--fault={self.fault}", *options, "--"]


SHARES = [Variation(local, fault) for local in ("10%", "25%") for fault in ("signal", "handler")]
SMALL = [Variation("8M", fault) for fault in ("signal", "handler")]  # nearly all is far


def variations(kinds):
    """Method decorator: marks a method with an argument `variation`, of which @expand makes one test per variation."""
    def mark(method):
        method.variations = kinds
        return method
    return mark


def expand(case):
    """Class decorator: replaces each method marked with @variations by one method per variation."""
    for name, method in list(vars(case).items()):
        for variation in getattr(method, "variations", ()):
            def run(self, method=method, variation=variation):
                method(self, variation)
            run.__doc__ = method.__doc__
            setattr(case, f"{name}_{variation.name}", run)
        if hasattr(method, "variations"):
            delattr(case, name)
    return case


@dataclass
class Result:
    status: int
    output: bytes
    errors: bytes
    stats: dict = None


def environment(**changes):
    """This process's environment without Farside's variables, in the locale C.UTF-8."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FARSIDE_")}
    return {**clean, "LC_ALL": "C.UTF-8", **changes}


def run(command, seconds=SECONDS, env=None, **options):
    """Runs a command to its end, in its own process group, which is killed at the time limit."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
                               env=env or environment(), **{"stdin": subprocess.DEVNULL, **options})
    try:
        output, errors = process.communicate(timeout=seconds)
    except BaseException as problem:
        end_group(process)
        output, errors = process.communicate()
        if not isinstance(problem, subprocess.TimeoutExpired):
            raise
        raise AssertionError(f"no end within {seconds} s: {' '.join(map(str, command))}\n{tail(output)}\n{tail(errors)}"
                             ) from None
    return Result(process.returncode, output, errors)


def end_group(process):
    """Kills the process group of a process that was started as its leader."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def tail(data, limit=2000):
    return data[-limit:].decode(errors="replace")


def shorten(data):
    return data if len(data) < 4096 else b"sha256 " + hashlib.sha256(data).hexdigest().encode()


class SystemTest(unittest.TestCase):
    """A folder per class, removed at the end, and methods that run programs in it natively and under Farside."""
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        cls.folder_object = tempfile.TemporaryDirectory(prefix="farside-system-")
        cls.addClassCleanup(cls.folder_object.cleanup)
        cls.folder = Path(cls.folder_object.name)
        cls.made = {}

    def once(self, key, make):
        """The result of make(), which is called by the first test of the class that needs it and kept for the others."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def native(self, command, **options):
        result = run(command, cwd=self.folder, **options)
        self.assertEqual(result.status, 0, f"the native run failed: {command}\n{tail(result.output)}\n{tail(result.errors)}")
        return result

    def far(self, variation, command, options=(), evictions=True, **more):
        """Runs a command under Farside. It must succeed, and must have used far memory in the mode of the variation."""
        self.assertTrue(os.access(FARSIDE, os.X_OK), f"{FARSIDE} is not built")
        stats = self.folder / f"stats-{self.id().rsplit('.', 1)[-1]}.json"
        whole = [*variation.launcher("--quiet", f"--stats=json:{stats}", *options), *map(str, command)]
        result = run(whole, cwd=self.folder, **more)
        self.assertEqual(result.status, 0,
                         f"{' '.join(whole)}\n{tail(result.output)}\n{tail(result.errors)}")
        self.assertNotIn(b"[F406]", result.errors)  # its threads could be started
        result.stats = json.loads(stats.read_text(encoding="utf8"))
        self.check_far(result.stats, variation, evictions)
        return result

    def check_far(self, stats, variation, evictions=True):
        self.assertGreater(len(stats["processes"]), 0, "no process left figures")
        # A forked child without handler threads serves its faults in signal mode.
        modes = {process["mode"] for process in stats["processes"] if not process.get("forked")}
        self.assertEqual(modes, {variation.fault})
        if evictions:
            self.assertGreater(stats["totals"]["evictions"], 0, "nothing was evicted")

    def same(self, variation, command, expected, **options):
        """Runs a command under Farside and compares its output with that of a native run."""
        result = self.far(variation, command, **options)
        self.assertEqual(shorten(result.output), shorten(expected.output), f"output differs from native: {command}")
        return result


USAGE, NOT_RUNNABLE, NOT_FOUND = 2, 126, 127  # exit statuses of farside run


class LaunchTest(SystemTest):
    """Tests of `farside run` itself."""

    def launch(self, *words, env=None, **options):
        return run([FARSIDE, "run", *map(str, words)], seconds=30, env=env or environment(), cwd=self.folder, **options)

    def refused(self, status, expected, *words, env=None):
        """Expects one line on stderr that contains the words of `expected`."""
        result = self.launch(*words, env=env)
        errors = result.errors.decode()
        self.assertEqual(result.status, status, errors)
        self.assertEqual(result.output, b"")
        self.assertEqual(len(errors.strip().splitlines()), 1, errors)
        for word in expected:
            self.assertIn(word, errors)

    def statistics_of(self, *words):
        result = self.launch("--stats=json:stats.json", *words)
        self.assertEqual(result.status, 0, result.errors)
        return result, json.loads((self.folder / "stats.json").read_text())


def small_program(name, kinds=SMALL, left_out=()):
    """Tests for a program of programs/: each of its cases natively, then in both modes with little near memory."""
    path = PROGRAMS / name
    # push_far (programs/far.h) makes a page far by using others; the default policy would keep it.
    options = ("--tune", "policy=fifo")

    class SmallProgramTest(SystemTest):
        pass

    for case in run([path]).output.decode().split():
        for variation in kinds if case not in left_out else ():
            def check(self, case=case, variation=variation):
                command = [path, case]
                self.same(variation, command, self.native(command, seconds=60), options=options, evictions=False, seconds=60)
            setattr(SmallProgramTest, f"test_{case}_{variation.name}", check)
    return SmallProgramTest


def require(program):
    """The path of a program. Skips the test if it is not installed."""
    for folder in os.environ["PATH"].split(":") + ["/usr/sbin", "/sbin"]:
        path = os.path.join(folder, program)
        if os.access(path, os.X_OK) and not path.endswith("/shims/" + program):
            return path
    raise unittest.SkipTest(f"{program} is not installed")


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(MIB):
            digest.update(block)
    return digest.hexdigest()


def write_text(path, max_bytes):
    """Fills a file with real text. Returns its size in bytes."""
    import real_text
    with open(path, "wb") as file:
        for _, data in real_text.collect(int(max_bytes * SCALE)):
            file.write(data)
        return file.tell()


def main():
    """Runs the tests of the calling file. The exit status is NOTHING_TESTED if every test was skipped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM, too, runs the cleanup of started processes
    program = unittest.main(module="__main__", exit=False, verbosity=2)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    for test, why in result.skipped:
        print(f"skipped: {test}: {why}")
    skipped_all = result.skipped and len(result.skipped) >= result.testsRun
    sys.exit(NOTHING_TESTED if skipped_all else 0)
