"""farside track: the figures must be those of programs that change known bytes; ends of programs, forks, errors."""
import csv
import json
import os
import signal
import subprocess
import time
import xml.dom.minidom

from support import FARSIDE, PROGRAMS, PYTHON, SystemTest, end_group, environment, main, run

PAGE, LINE, BLOCK, MIB = 4096, 64, 2 << 20, 1 << 20
USAGE = 2
METHODS = ("write-protect", "compare")
NOISE_PAGES = 8  # the program's stack and variables, which every action changes
THREAD_PAGES = 24  # pages that libc changes to start the first thread


class Tracked:
    """The program dirties under a tracker. The default window is so long that it ends with the program."""
    def __init__(self, test, *options, mib=32, window=3000):
        test.assertTrue(os.access(FARSIDE, os.X_OK))
        self.test = test
        self.out = test.folder / test.id().rsplit(".", 1)[-1] / str(len(list(test.folder.iterdir())))
        self.program = subprocess.Popen([PROGRAMS / "dirties", str(mib)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=environment(), start_new_session=True)
        test.addCleanup(end_group, self.program)
        test.assertEqual(self.program.stdout.readline(), b"ready\n")
        self.tracker = subprocess.Popen([FARSIDE, "track", "-p", str(self.program.pid), "--window", str(window),
                                         "--out", self.out, *options], stderr=subprocess.PIPE, env=environment(),
                                        start_new_session=True)
        test.addCleanup(end_group, self.tracker)
        wait_until_tracked(test, self.program.pid, self.tracker)

    def act(self, *actions):
        for action in actions:
            self.program.stdin.write(action.encode() + b"\n")
            self.program.stdin.flush()
            self.test.assertEqual(self.program.stdout.readline(), b"done\n", action)
        return self

    def report(self):
        """Ends the program. Returns the report."""
        self.program.stdin.close()
        self.program.wait(60)
        return self.result()

    def result(self):
        _, errors = self.tracker.communicate(timeout=60)
        self.errors = errors.decode()
        self.test.assertEqual(self.tracker.returncode, 0, self.errors)
        self.program.stdout.close()
        return json.loads((self.out / "track.json").read_text())


def read_text(path):
    with open(path, encoding="utf8") as file:
        return file.read()


def wait_until_tracked(test, pid, tracker):
    """Waits until the first copy of the process's memory is complete: the tracker sleeps, and the process is traced."""
    deadline = time.monotonic() + 30
    quiet = 0
    while quiet < 5:
        test.assertIsNone(tracker.poll(), "the tracker ended")
        test.assertLess(time.monotonic(), deadline, "the tracker does not come to rest")
        traced = "TracerPid:\t0\n" not in read_text(f"/proc/{pid}/status")
        sleeps = read_text(f"/proc/{tracker.pid}/stat").rsplit(")", 1)[1].split()[0] == "S"
        quiet = quiet + 1 if traced and sleeps else 0
        time.sleep(0.02)


class TrackTest(SystemTest):
    def between(self, value, expected, noise):
        self.assertGreaterEqual(value, expected)
        self.assertLessEqual(value, expected + noise)

    def check(self, actions, changed, lines, pages, blocks, per_page, runs, written=None, noise=NOISE_PAGES):
        """The figures are at least the given ones, and exceed them by at most the noise of reading the actions."""
        for method in METHODS:
            with self.subTest(method=method, action=actions[0]):
                tracked = Tracked(self, "--method", method).act(*actions)
                total = tracked.report()["total"]
                self.between(total["changed_bytes"], changed, noise * PAGE)
                self.between(total["dirty_bytes"]["64"], lines * LINE, noise * PAGE)
                self.between(total["dirty_bytes"]["4096"], pages * PAGE, noise * PAGE)
                self.between(total["dirty_bytes"]["2097152"], blocks * BLOCK, noise * BLOCK)
                for name, counts in (("lines_per_page", per_page), ("run_lengths", runs)):
                    for length, count in counts.items():
                        self.between(total[name][length - 1], count, noise * 8)
                for name, dirty in total["dirty_bytes"].items():
                    self.assertAlmostEqual(total["amplification"][name], dirty / total["changed_bytes"])
                self.assertEqual(total["uncompared_pages"], 0)
                if written is not None and method == "write-protect":
                    self.between(total["written_pages"], written, noise)
                self.assertEqual(total["dirty_bytes"]["64"], LINE * sum(n * c for n, c in enumerate(total["lines_per_page"], 1)))
                self.assertEqual(total["dirty_bytes"]["64"], LINE * sum(n * c for n, c in enumerate(total["run_lengths"], 1)))
                self.assertEqual(total["dirty_bytes"]["4096"], PAGE * sum(total["lines_per_page"]))

    def test_one_line_of_each_page(self):
        self.check(["lines 5000 3 1"], 5000, 5000, 5000, 10, {1: 5000}, {1: 5000}, written=5000)

    def test_runs_of_lines(self):
        self.check(["lines 3000 0 7", "lines 3000 40 24"], 3000 * 31, 3000 * 31, 3000, 6, {31: 3000}, {7: 3000, 24: 3000})

    def test_whole_pages(self):
        self.check(["whole 2048"], 2048 * PAGE, 2048 * 64, 2048, 4, {64: 2048}, {64: 2048}, written=2048)

    def test_writes_of_the_same_value_change_nothing(self):
        self.check(["same 4000"], 0, 0, 0, 0, {}, {}, written=4000)

    def test_an_undone_change_is_no_change(self):
        self.check(["lines 2000 5 1"] * 256, 0, 0, 0, 0, {}, {}, written=2000)

    def test_one_byte_in_each_block(self):
        self.check(["spread 16"], 16, 16, 16, 16, {1: 16}, {1: 16}, written=16)

    def test_other_threads(self):
        self.check(["threads 1024"], 1024 * PAGE, 1024 * 64, 1024, 2, {64: 1024}, {64: 1024}, noise=THREAD_PAGES)

    def test_new_mappings(self):
        self.check(["map 1500"], 1500 * PAGE, 1500 * 64, 1500, 3, {64: 1500}, {64: 1500}, written=1500)

    def test_children_are_not_tracked(self):
        self.check(["fork 4096"], 0, 0, 0, 0, {}, {})

    def test_windows_and_outputs(self):
        tracked = Tracked(self, window=0.2)
        for _ in range(5):
            tracked.act("lines 1000 0 2")
            time.sleep(0.4)
        report = tracked.report()
        dirty = [window for window in report["windows"] if window["dirty_bytes"]["4096"] >= 1000 * PAGE]
        self.assertEqual(len(dirty), 5)
        for window in dirty:
            self.between(window["changed_bytes"], 2000, NOISE_PAGES * PAGE)
        for before, after in zip(report["windows"], report["windows"][1:]):
            self.assertAlmostEqual(before["begin_seconds"] + before["seconds"], after["begin_seconds"], delta=1e-3)
        self.assertEqual(report["method"], "write-protect")
        self.assertGreaterEqual(report["overhead"]["write_faults"], 5000)
        self.assertGreater(report["overhead"]["write_fault_ns"], 0)
        self.assertGreater(report["overhead"]["stopped_seconds"], 0)
        rows = list(csv.DictReader(read_text(tracked.out / "track.csv").splitlines()))
        self.assertEqual([int(row["changed_bytes"]) for row in rows],
                         [window["changed_bytes"] for window in report["windows"]])
        self.assertEqual(sum(int(row["dirty_4096"]) for row in rows), report["total"]["dirty_bytes"]["4096"])
        xml.dom.minidom.parse(str(tracked.out / "track.svg"))
        self.assertIn("farside: cost:", tracked.errors)

    def test_areas_that_are_unmapped_and_mapped_again(self):
        """A new mapping counts as zero before, whatever was at its address."""
        tracked = Tracked(self, window=0.2)
        tracked.act("map 1000")
        time.sleep(0.6)
        tracked.act("again 1000")
        time.sleep(0.6)
        tracked.act("drop 1000")
        time.sleep(0.6)
        changed = [window["changed_bytes"] for window in tracked.report()["windows"]]
        self.assertEqual(len([value for value in changed if value >= 1000 * PAGE]), 2, changed)

    def test_memory_that_is_given_back_within_a_window_is_reported(self):
        program = [FARSIDE, "track", "--window", "1000", "--", PYTHON, "-c",
                   "import mmap\nfor i in range(8): m = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE); "
                   "m.madvise(mmap.MADV_NOHUGEPAGE); m.write(b'x' * len(m)); m.close()"]
        errors = run(program, seconds=60).errors.decode()
        self.assertRegex(errors, r"up to (6\d|7\d)\.\d MiB were touched and given back within a window")
        self.assertIn("as with --window 200", errors)

    def test_a_full_snapshot_is_reported(self):
        tracked = Tracked(self, "--memory", "4M")
        total = tracked.act("lines 5000 3 1").report()["total"]
        self.assertGreater(total["uncompared_pages"], 3500)
        self.assertLess(total["changed_bytes"], 5000)
        self.assertIn("--memory", tracked.errors)

    def test_an_interrupt_ends_the_tracking_only(self):
        tracked = Tracked(self)
        tracked.act("lines 100 0 1")
        tracked.tracker.send_signal(signal.SIGINT)
        _, errors = tracked.tracker.communicate(timeout=60)
        self.assertEqual(tracked.tracker.returncode, 0, errors)
        tracked.act("whole 100")
        self.assertIn("TracerPid:\t0\n", read_text(f"/proc/{tracked.program.pid}/status"))
        again = run([FARSIDE, "track", "-p", str(tracked.program.pid), "--for", "0.3", "--window", "0.1"], env=environment())
        self.assertEqual(again.status, 0, again.errors)
        tracked.program.stdin.close()
        self.assertEqual(tracked.program.wait(60), 0)
        tracked.program.stdout.close()

    def test_a_stopped_program_stays_stopped(self):
        program = subprocess.Popen([PROGRAMS / "dirties", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.stdin.close)
        self.addCleanup(program.send_signal, signal.SIGCONT)
        self.assertEqual(program.stdout.readline(), b"ready\n")
        state = lambda: read_text(f"/proc/{program.pid}/stat").rsplit(")", 1)[1].split()[0]
        program.send_signal(signal.SIGSTOP)
        while state() != "T":
            time.sleep(0.01)
        result = run([FARSIDE, "track", "-p", str(program.pid), "--for", "0.3", "--window", "0.1"], env=environment())
        self.assertEqual(result.status, 0, result.errors)
        deadline = time.monotonic() + 10
        while state() != "T" and time.monotonic() < deadline:  # SIGSTOP is still pending
            time.sleep(0.01)
        self.assertEqual(state(), "T")

    def test_a_killed_program(self):
        tracked = Tracked(self).act("lines 300 0 1")
        tracked.program.kill()
        self.assertEqual(tracked.program.wait(60), -signal.SIGKILL)
        self.between(tracked.result()["total"]["changed_bytes"], 300, NOISE_PAGES * PAGE)


class TrackStartTest(SystemTest):
    def track(self, *words, **options):
        return run([FARSIDE, "track", *map(str, words)], env=environment(), cwd=self.folder, **options)

    def started(self, actions, *options, status=0, mib=8):
        out = self.folder / self.id()
        (self.folder / "actions").write_text("".join(action + "\n" for action in actions))
        with open(self.folder / "actions") as stdin:
            result = self.track("--out", out, *options, "--", PROGRAMS / "dirties", mib, status, stdin=stdin)
        return result, json.loads((out / "track.json").read_text())

    def test_a_program_from_its_start(self):
        result, report = self.started(["lines 2048 3 1"], status=7)
        self.assertEqual(result.status, 7, result.errors)
        self.assertEqual(result.output, b"ready\ndone\n")
        self.assertEqual(report["program"][1:], ["8", "7"])
        total = report["total"]
        self.assertGreaterEqual(total["changed_bytes"], 8 * MIB)  # all of its block was zero before
        self.assertLess(total["changed_bytes"], 9 * MIB)

    def test_exec_starts_a_new_window(self):
        result, report = self.started(["whole 10", f"exec {PROGRAMS / 'dirties'}"])
        self.assertEqual(result.status, 0, result.errors)
        self.assertEqual(result.output, b"ready\ndone\nready\n")
        self.assertGreaterEqual(report["total"]["changed_bytes"], 16 * MIB)

    def test_signals_of_the_program(self):
        script = ("import signal, os, time\ncount = 0\ndef add(*_):\n    global count\n    count += 1\n"
                  "signal.signal(signal.SIGALRM, add)\nsignal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)\n"
                  "end = time.time() + 1\nwhile time.time() < end: time.sleep(0.1)\n"
                  "signal.setitimer(signal.ITIMER_REAL, 0)\nprint(count > 50)")
        result = self.track("--window", "0.05", "--", PYTHON, "-c", script)
        self.assertEqual((result.status, result.output), (0, b"True\n"), result.errors)

    def test_a_program_that_ends_by_a_signal(self):
        result = self.track("--quiet", "--", PYTHON, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
        self.assertEqual(result.status, -signal.SIGTERM)
        self.assertEqual(result.errors, b"")

    def test_signals_sent_to_the_tracker_reach_the_program(self):
        process = subprocess.Popen([FARSIDE, "track", "--quiet", "--", PYTHON, "-c",
                                    "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: exit(9))\n"
                                    "print('ready', flush=True)\nwhile True: time.sleep(1)"],
                                   stdout=subprocess.PIPE, env=environment(), start_new_session=True)
        self.addCleanup(end_group, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.terminate()
        self.assertEqual(process.wait(60), 9)
        process.stdout.close()

    def test_system_calls_write_to_protected_pages(self):
        """Memory written by read() counts as written."""
        script = ("import time\nbuffer = bytearray(8 << 20)\nfile = open('/dev/urandom', 'rb', buffering=0)\n"
                  "time.sleep(0.3)\nfor at in range(0, len(buffer), 1 << 20): file.readinto(memoryview(buffer)[at:at + (1 << 20)])\n"
                  "time.sleep(0.3)")
        out = self.folder / "calls"
        result = self.track("--window", "0.1", "--out", out, "--", PYTHON, "-c", script)
        self.assertEqual(result.status, 0, result.errors)
        total = json.loads((out / "track.json").read_text())["total"]
        self.assertGreater(total["changed_bytes"], 0.99 * 8 * MIB)

    def test_a_statically_linked_program(self):
        for method in METHODS:
            result = self.track("--quiet", "--method", method, "--", PROGRAMS / "status_static", "status", "3")
            self.assertEqual((result.status, result.errors), (3, b""))

    def test_short_programs(self):
        """Programs are tracked from their first to their last instruction, repeatedly."""
        for method in METHODS * 10:
            result = self.track("--quiet", "--method", method, "--out", self.folder / "short", "--", "true")
            self.assertEqual((result.status, result.errors), (0, b""))
            self.assertGreater(json.loads(read_text(self.folder / "short/track.json"))["total"]["changed_bytes"], 0)

    def test_errors(self):
        kernel_thread = 2
        for words, status, message in ((["-p", 2**22 + 5], 1, "there is no process"),
                                       (["-p", kernel_thread], 1, "process 2"),
                                       (["-p", 1, "--", "true"], USAGE, "not both"),
                                       (["-p", "-5"], USAGE, "-p -5"),
                                       (["-p", "--for", "3"], USAGE, "--pid"),
                                       ([], USAGE, "farside track -p PID"),
                                       (["--"], USAGE, "farside track -p PID"),
                                       (["--method", "guess", "--", "true"], USAGE, "--method"),
                                       (["--window", "0", "--", "true"], USAGE, "--window"),
                                       (["--memory", "much", "--", "true"], USAGE, "--memory"),
                                       (["--out", "/proc/no", "--", "true"], 1, "/proc/no"),
                                       (["--", "/tmp"], 126, "/tmp"),
                                       (["--", "no-such-program"], 127, "no-such-program")):
            if words[:2] == ["-p", kernel_thread] and not os.path.exists("/proc/2/status"):
                continue
            result = self.track(*words)
            errors = result.errors.decode()
            self.assertEqual(result.status, status, errors)
            self.assertEqual(len(errors.strip().splitlines()), 1, errors)
            self.assertIn(message, errors)

    def test_without_privileges(self):
        """A process of another user is an error with advice; an own program is tracked by the best method."""
        nobody = 65534
        if os.geteuid() != 0 or run(["test", "-x", FARSIDE], user=nobody).status != 0:
            self.skipTest("needs root, and a build that every user may run")
        refused = self.track("-p", os.getpid(), user=nobody)
        self.assertEqual((refused.status, len(refused.errors.splitlines())), (1, 1), refused.errors)
        self.assertIn("may not be tracked", refused.errors.decode())
        own = self.track("--", "true", user=nobody)
        self.assertEqual(own.status, 0, own.errors)
        self.assertIn("tracked by: write-protect\n", own.errors.decode())

    def test_a_process_that_is_traced_already(self):
        program = subprocess.Popen([FARSIDE, "track", "--quiet", "--", PROGRAMS / "dirties", "1"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, start_new_session=True)
        self.addCleanup(end_group, program)
        self.assertEqual(program.stdout.readline(), b"ready\n")
        [child] = read_text(f"/proc/{program.pid}/task/{program.pid}/children").split()
        result = self.track("-p", child)
        self.assertEqual(result.status, 1)
        self.assertIn(f"is traced by process {program.pid}", result.errors.decode())
        program.stdin.close()
        self.assertEqual(program.wait(60), 0)
        program.stdout.close()


if __name__ == "__main__":
    main()
