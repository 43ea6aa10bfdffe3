"""farside ctl and top: report on running programs, and change their budget while they compute; errors are one line."""
import json
import os
import pty
import select
import signal
import subprocess
import time

from support import FARSIDE, PROGRAMS, PYTHON, SystemTest, end_group, environment, main, run

MIB = 1 << 20
USAGE = 2
# Uses 96 MiB and checks all of it for each input line. Exits with status 3 if a byte is wrong.
PROGRAM = """
import sys, zlib
blocks = [bytearray(bytes([i % 251]) * 65536) for i in range(1536)]
sums = [zlib.crc32(block) for block in blocks]
print("ready", flush=True)
for line in sys.stdin:
    for i in range(len(blocks)):
        if zlib.crc32(blocks[i]) != sums[i]: sys.exit(3)
        blocks[i][i] ^= 1
        sums[i] = zlib.crc32(blocks[i])
    print("checked", flush=True)
"""


class CtlTest(SystemTest):
    def start(self, *options):
        process = subprocess.Popen([FARSIDE, "run", "--quiet", *options, "--", PYTHON, "-c", PROGRAM], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env=environment(), start_new_session=True)
        self.addCleanup(end_group, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def check(self, process):
        process.stdin.write(b"\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"checked\n")

    def end(self, process):
        process.stdin.close()
        self.assertEqual(process.wait(60), 0)
        process.stdout.close()

    def ctl(self, *words):
        return run([FARSIDE, "ctl", *map(str, words)], seconds=90, env=environment())

    def report(self, *words):
        result = self.ctl(*words, "--json")
        self.assertEqual(result.status, 0, result.errors.decode())
        return json.loads(result.output)

    def test_short_lived_processes_are_no_failure(self):
        script = "echo ready; while :; do /bin/true; /bin/true; done"
        shell = subprocess.Popen([FARSIDE, "run", "--quiet", "--local", "8M", "--", "sh", "-c", script],
                                 stdout=subprocess.PIPE, env=environment(), start_new_session=True)
        self.addCleanup(end_group, shell)
        self.assertEqual(shell.stdout.readline(), b"ready\n")
        for _ in range(20):
            result = self.ctl(shell.pid, "--json")
            self.assertEqual((result.status, result.errors), (0, b""))
            pids = [report["pid"] for report in json.loads(result.output)]
            self.assertEqual(len(pids), len(set(pids)))
        end_group(shell)
        shell.wait(30)
        shell.stdout.close()

    def test_a_list_names_those_that_do_not_reply(self):
        """A stopped process: the others are listed, and it is no failure, unless the process was asked for."""
        stopped, running = self.start("--local", "16M"), self.start("--local", "32M")
        [report] = self.report(stopped.pid)
        os.kill(report["pid"], signal.SIGSTOP)
        for words in ((), ("--json",)):
            result = self.ctl(*words)
            self.assertEqual(result.status, 0, result.errors)
            self.assertIn(f"process {report['pid']} does not reply", result.errors.decode())
            self.assertIn(str(self.report(running.pid)[0]["pid"]), result.output.decode())
        self.refused(1, f"process {report['pid']} does not reply", stopped.pid)
        os.kill(report["pid"], signal.SIGCONT)
        for process in (stopped, running):
            self.end(process)

    def test_memory_is_resized_while_the_program_computes(self):
        for fault in ("signal", "handler"):
            with self.subTest(fault=fault):
                process = self.start("--local", "64M", f"--fault={fault}")
                for local in (16, 80, 20, 64):
                    [report] = self.report(process.pid, "--local", f"{local}M")
                    self.assertEqual(report["local_bytes"], local * MIB)
                    self.assertLessEqual(report["near_bytes"], local * MIB)
                    for _ in range(20):  # free huge frames count, until an evictor that is idle gives them back
                        self.check(process)
                        [report] = self.report(process.pid)
                        self.assertLessEqual(report["near_bytes"], local * MIB)
                        if report["near_bytes"] > local * MIB // 2:
                            break
                    self.assertGreater(report["near_bytes"], local * MIB // 2)
                self.end(process)

    def test_what_was_far_is_no_less_than_what_is(self):
        stats = self.folder / "far.json"
        process = self.start("--local", "16M", f"--stats=json:{stats}")
        [now] = self.report(process.pid)
        far = now["heap_bytes"] - now["near_bytes"]
        self.assertGreater(far, 48 * MIB)
        self.assertGreaterEqual(now["far_peak_bytes"], far)
        self.report(process.pid, "--local", "256M")
        self.check(process)
        self.end(process)
        self.assertGreaterEqual(json.loads(stats.read_text())["totals"]["far_peak_bytes"], far)

    def test_a_share_of_the_heap(self):
        process = self.start("--local", "64M")
        [report] = self.report(process.pid, "--local", "25%")
        self.assertLess(report["local_bytes"], 40 * MIB)
        self.assertGreater(report["local_bytes"], 20 * MIB)
        self.check(process)
        self.end(process)

    def compute_until(self, process, reached):
        """The program uses all of its memory again and again. Its report, once reached() is true of it."""
        deadline = time.monotonic() + 60
        while not reached(report := self.report(process.pid)[0]):
            self.assertLess(time.monotonic(), deadline, report)
            self.check(process)
        return report

    def test_a_size_that_follows_the_loss(self):
        process = self.start("--local", "auto", "--slowdown", "1000%")
        self.assertEqual(self.report(process.pid)[0]["slowdown_percent"], 1000)
        report = self.compute_until(process, lambda report: report["near_bytes"] < 70 * MIB)
        self.assertGreater(report["heap_bytes"], 96 * MIB)
        self.assertLess(report["near_mean_bytes"], report["heap_bytes"])
        fixed = self.report(process.pid, "--local", "100%")[0]
        self.assertEqual(fixed["slowdown_percent"], 0)
        self.check(process)
        self.compute_until(process, lambda report: report["near_bytes"] > 96 * MIB)
        result = self.ctl(process.pid, "--local", "auto:16M-64M")
        self.assertIn(b"near memory sizes itself from now on", result.output)
        report = self.compute_until(process, lambda report: report["near_bytes"] < 64 * MIB)
        self.assertLessEqual(report["local_bytes"], 64 * MIB)
        self.end(process)

    def test_the_minimum_of_a_share_is_named(self):
        process = self.start("--local", "64M")
        text = self.ctl(process.pid, "--local", "1%").output.decode()
        self.assertIn("near memory limited to 8.00 MiB, the minimum, instead of 64.0 MiB", text)
        self.assertNotIn("minimum", self.ctl(process.pid, "--local", "8M").output.decode())
        self.end(process)

    def test_text_output(self):
        process = self.start("--local", "32M")
        text = self.ctl(process.pid).output.decode()
        for expected in ("python3", "near ", "of 32.0 MiB allowed", "far ", "faults", "signal mode, shm"):
            self.assertIn(expected, text)
        self.assertIn("python3", self.ctl().output.decode())
        text = self.ctl(process.pid, "--local", "16M").output.decode()
        self.assertIn("near memory limited to 16.0 MiB instead of 32.0 MiB", text)
        self.end(process)

    def test_forked_children_have_their_own_pages(self):
        program = ("import os, sys\nblock = bytearray(b'x' * (24 << 20))\nchild = os.fork()\n"
                   "if child == 0:\n    block[0] = 0\n    print('ready', flush=True)\n    sys.stdin.readline()\n    os._exit(block.count(0) != 1)\n"
                   "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n")
        process = subprocess.Popen([FARSIDE, "run", "--quiet", "--local", "32M", "--", PYTHON, "-c", program], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, env=environment(), start_new_session=True)
        self.addCleanup(end_group, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        reports = self.report(process.pid)
        self.assertEqual([report["forked"] for report in reports], [False, True])
        [child] = self.report(reports[1]["pid"], "--local", "16M")
        self.assertEqual(child["local_bytes"], 16 * MIB)
        self.assertEqual(self.report(reports[0]["pid"])[0]["local_bytes"], 32 * MIB)
        self.end(process)

    def test_a_limit_of_a_run_is_for_later_processes_too(self):
        """The shell takes no requests until it has a large variable; the other program starts afterwards."""
        script = f"echo ready; read x; v=$(head -c 6000000 /dev/zero | tr '\\0' a); {PROGRAMS / 'steady'} 32 1000000"
        run_ = subprocess.Popen([FARSIDE, "run", "--quiet", "--local", "64M", "--", "sh", "-c", script], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, env=environment(), start_new_session=True)
        self.addCleanup(run_.communicate)
        self.addCleanup(end_group, run_)
        self.assertEqual(run_.stdout.readline(), b"ready\n")
        result = self.ctl(run_.pid, "--local", "16M")
        self.assertEqual((result.status, result.output),
                         (0, b"processes with little far memory so far, all of it near: 1 (they have the new limit when they need one)\n"))
        run_.stdin.write(b"\n")
        run_.stdin.flush()
        self.assertEqual(run_.stdout.readline(), b"ready\n")
        deadline = time.monotonic() + 20
        while (limits := {report["program"]: report["local_bytes"] for report in self.report(run_.pid)}) != {
                "sh": 16 * MIB, "steady": 16 * MIB}:
            self.assertLess(time.monotonic(), deadline, limits)

    def refused(self, status, message, *words):
        result = self.ctl(*words)
        errors = result.errors.decode()
        self.assertEqual(result.status, status, errors)
        self.assertEqual(len(errors.strip().splitlines()), 1, errors)
        self.assertIn(message, errors)

    def start_imitation(self, report, locked=False):
        """A process of this user with a page that looks like a control page, and with this report."""
        script = ("import fcntl, mmap, os, struct, sys, time\n"
                  "fd = os.memfd_create('farside-control', os.MFD_ALLOW_SEALING)\n"
                  "os.ftruncate(fd, 4096)\n"
                  "fcntl.fcntl(fd, 1033, 2 | 4)\n"
                  "page = mmap.mmap(fd, 4096)\n"
                  "report = sys.argv[1].encode()\n"
                  "page[52:52 + len(report)] = report\n"
                  "page[0:8] = (0x346c746364736672).to_bytes(8, 'little')\n"
                  "if sys.argv[2]: fcntl.flock(fd, fcntl.LOCK_EX)\n"
                  "print('ready', flush=True)\n"
                  "while True:\n"
                  "    page[12:16] = page[8:12]\n"
                  "    time.sleep(0.001)\n")
        process = subprocess.Popen([PYTHON, "-c", script, report, "locked" if locked else ""], stdout=subprocess.PIPE,
                                   env=environment(), start_new_session=True)
        self.addCleanup(process.communicate)
        self.addCleanup(end_group, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process.pid

    def test_imitations_do_no_harm(self):
        self.assertEqual(self.ctl(self.start_imitation('{"program":"x","near_bytes":1}')).status, 0)
        wrong = self.start_imitation('{"pid":"x","program":7,"near_bytes":"many"}')
        self.assertEqual(self.ctl(wrong).status, 0)
        for report in ('{"program":"\\u001b[2J"}', '{"near_bytes":-5}', '{"a":{"b":1}}', "x" * 4000, ""):
            self.refused(1, "does not support", self.start_imitation(report))
        self.refused(1, "in use by another process", self.start_imitation("{}", locked=True), "--local", "1G")

    def test_errors(self):
        self.refused(1, "does not run under Farside", os.getpid())
        self.refused(1, "there is no process", 2**22 + 5)
        self.refused(USAGE, "needs a process", "--local", "1G")
        self.refused(USAGE, "use 8M or more", os.getpid(), "--local", "1M")
        self.refused(USAGE, "--local", os.getpid(), "--local", "much")
        self.refused(USAGE, "", "-5")
        self.refused(USAGE, "pid: 'abc' is not valid; use a number above 0; see farside ctl --help", "abc")


STEADY = PROGRAMS / "steady"


class TopTest(SystemTest):
    def start(self, local="8M"):
        process = subprocess.Popen([FARSIDE, "run", "--quiet", "--local", local, "--", STEADY, "32", "1000000"],
                                   stdout=subprocess.PIPE, env=environment(), start_new_session=True)
        self.addCleanup(process.communicate)
        self.addCleanup(end_group, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        return process

    def top(self, *words):
        return run([FARSIDE, "top", *map(str, words)], seconds=60, env=environment(TERM="xterm"))

    def row(self, launcher, *words):
        result = self.top("--once", "--json", "--interval", "0.5", *words)
        self.assertEqual(result.status, 0, result.errors)
        rows = [json.loads(line) for line in result.output.splitlines()]
        [row] = [row for row in rows if row["run"] == launcher.pid]
        return row

    def test_json(self):
        launcher = self.start()
        row = self.row(launcher)
        self.assertEqual((row["program"], row["local_bytes"], row["replies"]), ("steady", 8 << 20, True))
        self.assertLessEqual(row["near_bytes"], 8 << 20)
        self.assertGreater(row["far_bytes"], 20 << 20)
        self.assertGreater(row["faults_per_second"], 0)
        self.assertTrue(0 < row["pressure"] <= 1, row)

    def test_text(self):
        launcher = self.start()
        pid = self.row(launcher)["pid"]
        lines = self.top("--once", "--filter", pid).output.decode().splitlines()
        self.assertEqual(lines[0].split(";")[0], "farside top: 1 run, 1 process")
        self.assertTrue(lines[1].startswith("PROGRAM"), lines)
        self.assertEqual(lines[2].split()[:3], ["steady", str(pid), str(launcher.pid)])

    def test_a_stopped_process_is_named(self):
        launcher = self.start()
        pid = self.row(launcher)["pid"]
        process = subprocess.Popen([FARSIDE, "top", "--json", "--interval", "0.1"], stdout=subprocess.PIPE, env=environment(),
                                   start_new_session=True)
        self.addCleanup(process.communicate)
        self.addCleanup(end_group, process)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        stopped = False
        while True:
            row = json.loads(process.stdout.readline())
            if row["pid"] != pid:
                continue
            if not stopped:
                os.kill(pid, signal.SIGSTOP)
                stopped = True
            elif not row["replies"]:
                break

    def test_live_view(self):
        self.start()
        child, terminal = pty.fork()
        if child == 0:
            os.execve(FARSIDE, [str(FARSIDE), "top", "--interval", "0.2"], environment(TERM="xterm", COLUMNS="120", LINES="20"))
        seen = b""
        deadline = time.monotonic() + 30
        for key, words in ((b"", b"steady"), (b"r", b"reversed"), (b"/nothing\n", b"none of your"), (b"s", b"memory servers")):
            os.write(terminal, key)
            while words not in seen:
                ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
                self.assertTrue(ready, (words, seen))
                seen += os.read(terminal, 4096)
        os.write(terminal, b"q")
        try:
            while os.read(terminal, 4096):
                pass
        except OSError:
            pass  # the terminal is closed
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_errors(self):
        for words, status, message in (((), 1, "needs a terminal; use --once or --json"), (("--sort", "size"), 2, "--sort"),
                                       (("--interval", "0"), 2, "--interval"), (("--servers", "x"), 2, "--servers")):
            result = self.top(*words)
            self.assertEqual(result.status, status)
            self.assertIn(message, result.errors.decode())


if __name__ == "__main__":
    main()
