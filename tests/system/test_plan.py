"""farside plan: what a program needs is computed from one sampled run; or every share is measured, or all accesses are
observed. The program's output is not shown; failures and interruptions end farside plan without leaving the program behind."""
import json
import os
import signal
import subprocess
import time
from pathlib import Path

from support import FARSIDE, PROGRAMS, PYTHON, SystemTest, end_group, environment, main, require, run

USAGE, FAILURE, NOT_FOUND = 2, 1, 127
# Accesses 32 MiB at random and prints to both streams.
WALK = """
import sys
block = bytearray(32 << 20)
for i in range(60000): block[i * 2654435761 % len(block)] = i % 251
print("printed by the program", sum(block[::4096]))
print("written by the program", file=sys.stderr)
"""


# For a few seconds: reads a half of 64 MiB again and again, a word of a page in turn, and never the other half.
HALF = """
import time
block = bytearray(64 << 20)
pages, end, total = len(block) // 8192, time.monotonic() + 4, 0
while time.monotonic() < end: total += sum(block[page * 4096] for page in range(pages))
"""


class Planner(SystemTest):
    def plan(self, *words, seconds=120):
        return run([FARSIDE, "plan", *map(str, words)], seconds=seconds, env=environment(), cwd=self.folder)


class OneRunTest(Planner):
    def read(self):
        return json.loads((self.folder / "plan.json").read_text())

    def test_what_is_never_used_again_needs_no_near_memory(self):
        result = self.plan("--quiet", "--json", "plan.json", "--svg", "plan.svg", "--", PYTHON, "-c", HALF)
        self.assertEqual(result.status, 0, result.errors.decode())
        plan = self.read()
        self.assertGreater(plan["rounds"], 16)
        self.assertAlmostEqual(plan["heap_bytes"], 64 << 20, delta=12 << 20)
        self.assertAlmostEqual(plan["keep"]["bytes"], 34 << 20, delta=9 << 20)
        self.assertGreater(plan["points"][0]["slowdown"], 1.1)
        last = result.output.decode().splitlines()[-1]
        self.assertRegex(last, r"^at most 10% slower: --local \d+M ")
        self.assertIn("answer", (self.folder / "plan.svg").read_text())

    def test_a_program_that_uses_all_of_its_heap_gets_no_size(self):
        result = self.plan("--quiet", "--", PYTHON, "-c", HALF.replace("8192", "4096"))
        self.assertEqual(result.status, 0, result.errors.decode())
        self.assertIn("--local 100%", result.output.decode().splitlines()[-1])

    def test_a_server_ends_with_its_load(self):
        server = HALF.replace("+ 4", "+ 1000")
        result = self.plan("--quiet", "--load", "sleep 2", "--json", "plan.json", "--", PYTHON, "-c", server)
        self.assertEqual(result.status, 0, result.errors.decode())
        self.assertGreater(self.read()["seconds"], 1.5)
        result = self.plan("--quiet", "--load", "exit 3", "--", PYTHON, "-c", server)
        self.assertEqual(result.status, FAILURE)
        self.assertIn("the command of --load ended with status 3", result.errors.decode())

    def test_a_time_ends_a_program(self):
        result = self.plan("--quiet", "--for", "3", "--json", "plan.json", "--", PYTHON, "-c", HALF.replace("+ 4", "+ 99"))
        self.assertEqual(result.status, 0, result.errors.decode())
        self.assertLess(self.read()["seconds"], 20)

    def test_forked_processes_are_sampled_too(self):
        script = f"import os\nif os.fork() == 0:\n exec({HALF!r})\n os._exit(0)\nos.wait()\n"
        result = self.plan("--quiet", "--json", "plan.json", "--", PYTHON, "-c", script)
        self.assertEqual(result.status, 0, result.errors.decode())
        self.assertAlmostEqual(self.read()["heap_bytes"], 64 << 20, delta=12 << 20)

    def test_too_short_a_program_is_named(self):
        result = self.plan("--quiet", "--", PYTHON, "-c", "pass")
        self.assertEqual(result.status, FAILURE)
        self.assertIn("give the program more to do", result.errors.decode())
        self.assertEqual(result.output, b"")

    def test_an_interruption_delivers_what_was_sampled(self):
        process = subprocess.Popen([FARSIDE, "plan", "--quiet", "--", PYTHON, "-c", HALF.replace("+ 4", "+ 999")],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
                                   start_new_session=True)
        self.addCleanup(end_group, process)
        time.sleep(6)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, FAILURE, errors.decode())
        self.assertIn(b"Stopped by a signal", output, errors.decode())
        self.assertIn(b"--local", output.splitlines()[-1])


class RunningTest(Planner):
    def start(self, seconds, *options):
        """A running HALF: the process of Python."""
        script = HALF.replace("while", "print('ready', flush=True)\nwhile", 1).replace("+ 4", f"+ {seconds}")
        run_of_it = subprocess.Popen([FARSIDE, "run", "--quiet", *options, "--", PYTHON, "-c", script], stdout=subprocess.PIPE,
                                     env=environment(), start_new_session=True)
        self.addCleanup(end_group, run_of_it)
        self.addCleanup(run_of_it.stdout.close)
        self.assertEqual(run_of_it.stdout.readline(), b"ready\n")
        reports = run([FARSIDE, "ctl", "--json", str(run_of_it.pid)], seconds=20, env=environment())
        return run_of_it, json.loads(reports.output)[0]["pid"]

    def is_sampled(self, pid):
        folder = Path(f"/proc/{pid}/fd")
        return any(os.readlink(folder / fd).startswith("/memfd:farside-samples") for fd in os.listdir(folder))

    def await_sampled(self, pid, wanted):
        deadline = time.monotonic() + 20
        while self.is_sampled(pid) != wanted:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def planner(self, *words):
        process = subprocess.Popen([FARSIDE, "plan", "--quiet", *map(str, words)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment(), start_new_session=True)
        self.addCleanup(end_group, process)
        return process

    def test_a_process_is_sampled_as_long_as_a_plan_asks_for_it(self):
        launcher, pid = self.start(99, "--local", "16M")
        killed = self.planner("-p", launcher.pid)
        self.await_sampled(pid, True)
        other = self.plan("-p", pid)
        self.assertEqual((other.status, "another farside plan samples" in other.errors.decode()), (FAILURE, True))
        killed.kill()
        killed.communicate()
        self.await_sampled(pid, False)
        stopped = self.planner("-p", pid, "--seconds", "0", "--json", self.folder / "plan.json")
        self.await_sampled(pid, True)
        time.sleep(1.5)
        stopped.send_signal(signal.SIGINT)
        output, errors = stopped.communicate(timeout=60)
        self.assertEqual(stopped.returncode, FAILURE, errors.decode())
        self.assertFalse(self.is_sampled(pid))
        self.assertIn(b"Stopped by a signal", output)
        self.assertRegex(output.decode().splitlines()[-1], rf"^at most 10% slower: farside ctl {pid} --local \d+M ")
        self.assertAlmostEqual(json.loads((self.folder / "plan.json").read_text())["keep"]["bytes"], 34 << 20, delta=9 << 20)

    def test_of_a_process_that_ends_meanwhile_there_is_what_was_sampled(self):
        _, pid = self.start(2)
        result = self.plan("--quiet", "-p", pid)
        self.assertEqual(result.status, 0, result.errors.decode())
        self.assertRegex(result.output.decode().splitlines()[-1], r"^at most 10% slower: --local \d+M ")

    def test_why_a_process_cannot_be_planned(self):
        for words, status, text in ((["-p", os.getpid()], FAILURE, "does not run under Farside"),
                                    (["-p", 1 << 22], FAILURE, f"there is no process {1 << 22}"),
                                    (["-p", 1, "--", "true"], USAGE, "not both"),
                                    (["-p", 1, "--check"], USAGE, "--check needs a program"),
                                    (["--seconds", 3, "--", "true"], USAGE, "--seconds belongs to -p PID or --blocks")):
            result = self.plan(*words)
            self.assertEqual((result.status, result.output), (status, b""), words)
            self.assertIn(text, result.errors.decode())


class PlanTest(Planner):

    def test_every_share_is_measured(self):
        result = self.plan("--shares", "100,20", "--latency", "3.9", "--json", "plan.json", "--svg", "plan.svg", "--",
                           PYTHON, "-c", WALK)
        self.assertEqual(result.status, 0, result.errors.decode())
        plan = json.loads((self.folder / "plan.json").read_text())
        self.assertEqual([point["share"] for point in plan["points"]], [20, 100])
        few, all_near = plan["points"]
        self.assertGreater(few["fetches"], 1000)
        self.assertLess(all_near["fetches"], few["fetches"])
        self.assertGreater(few["costs"]["evictions"], 0)
        self.assertLess(few["costs"]["near_bytes"], few["costs"]["heap_bytes"])
        self.assertGreater(plan["native_s"]["median"], 0)
        self.assertGreater(plan["round_trip_us"], 0)
        self.assertEqual(plan["settings"]["latencies_us"], [3.9])
        text = result.output.decode()
        self.assertIn("ideal 3.9 us", text)
        self.assertTrue(text.splitlines()[-1].startswith("At most 10% slower than native: "), text)
        for unwanted in "printed by", "written by":
            self.assertNotIn(unwanted, text + result.errors.decode())
        self.assertIn("ideal", (self.folder / "plan.svg").read_text())

    def test_a_program_that_fails_is_named(self):
        for words, status, message in ((["sh", "-c", "echo broken >&2; exit 3"], FAILURE, "natively: status 3: broken"),
                                       (["no-such-program"], NOT_FOUND, "no-such-program"),
                                       ([PYTHON, "-c", "import os; os._exit('LD_PRELOAD' in os.environ)"], FAILURE, "status 1")):
            result = self.plan("--quiet", "--shares", "50", "--", *words)
            self.assertEqual(result.status, status, result.errors.decode())
            self.assertEqual(result.output, b"")
            self.assertIn(message, result.errors.decode())

    def interrupt(self, marker, script):
        """Stops a plan once its program has written its PID and a full stop to the marker. Its status, output, errors."""
        process = subprocess.Popen([FARSIDE, "plan", "--quiet", "--shares", "50,100", "--", PYTHON, "-c", script],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(),
                                   start_new_session=True)
        self.addCleanup(end_group, process)
        deadline = time.monotonic() + 60
        while not (marker.exists() and marker.read_text().endswith(".")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=30)
        return process.returncode, output.decode(), errors.decode()

    def test_an_interruption_delivers_what_was_measured(self):
        marker, count = self.folder / "pid", self.folder / "count"
        script = (f"import os, time; runs = open({str(count)!r}, 'a+'); runs.write('x'); runs.seek(0)\n"
                  f"if len(runs.read()) == 3:\n open({str(marker)!r}, 'w').write(str(os.getpid()) + '.'); time.sleep(100)")
        status, output, errors = self.interrupt(marker, script)
        self.assertEqual(status, FAILURE, errors)
        self.assertEqual([line.split()[0] for line in output.splitlines() if "%" in line.split(" ")[0]][0], "50%")
        self.assertIn("Stopped by a signal", output.splitlines()[-1])

    def test_an_interruption_ends_the_program_too(self):
        marker = self.folder / "pid-of-a-sleeper"
        script = f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid()) + '.'); time.sleep(100)"
        status, _, errors = self.interrupt(marker, script)
        self.assertEqual(status, FAILURE)
        self.assertIn("stopped by a signal", errors)
        with self.assertRaises(ProcessLookupError):
            os.kill(int(marker.read_text().rstrip(".")), 0)


class PredictTest(SystemTest):
    def predict(self, *words, **changes):
        return run([FARSIDE, "plan", "--quiet", "--blocks", *map(str, words)], seconds=120, env=environment(**changes),
                   cwd=self.folder)

    def test_misses_of_a_loop_are_what_they_must_be(self):
        require("valgrind")
        pages, rounds = 8000, 20
        result = self.predict("--json", "predict.json", "--svg", "predict.svg", "--check", "--shares", "100", "--",
                              PROGRAMS / "rounds", pages, rounds)
        self.assertEqual(result.status, 0, result.errors.decode())
        plan = json.loads((self.folder / "predict.json").read_text())
        self.assertAlmostEqual(plan["observed"]["heap_bytes"], pages * 4096, delta=80 * 4096)  # including libc's data
        self.assertFalse(plan["observed"]["cut_off"])
        curves = {curve["block"]: {point["share"]: point["misses"] for point in curve["points"]}
                  for curve in plan["curves"]}
        self.assertEqual(sorted(curves), [64, 256, 1024, 4096, 16384, 65536, 262144, 2 << 20])
        # One word of each page is used: in blocks of 1 KiB, a quarter of the memory is enough.
        for block, missing, holding in (1024, (5, 20), (30, 100)), (4096, (5, 50, 90), (100,)):
            for share in missing:
                self.assertAlmostEqual(curves[block][share], pages * rounds, delta=0.01 * pages * rounds)
            for share in holding:
                self.assertEqual(curves[block][share], 0)
        self.assertAlmostEqual(curves[65536][50], pages * rounds / 16, delta=0.05 * pages * rounds / 16)
        events = {event["share"]: event for event in plan["near_events"]}
        # A part of the loop stays near.
        self.assertGreater(events[50]["stream_fetches"], 0.5 * pages * rounds)
        self.assertLess(events[50]["stream_fetches"], 0.7 * pages * rounds)
        systems = {system["name"]: system for system in plan["systems"]}
        for name in "Farside, shm", "Farside, tcp", "Farside, RDMA, 3 us", "CXL-like, by lines", "swap on an SSD":
            self.assertIn("slowdown", systems[name]["points"][0])
        self.assertEqual(plan["checked"][0]["share"], 100)
        self.assertIn("% slower: ", result.output.decode().splitlines()[-1])
        self.assertIn("2 MiB blocks", (self.folder / "predict.svg").read_text())

    def test_a_run_that_takes_too_long_is_cut_off(self):
        require("valgrind")
        result = self.predict("--seconds", "2", "--", PROGRAMS / "rounds", 1000, 20000)
        self.assertEqual(result.status, 0, result.errors.decode())
        last = result.output.decode().splitlines()[-1]
        self.assertIn("cut off after 2 s, so there are no slowdowns: increase --seconds", last)

    def test_failures_are_one_line(self):
        require("valgrind")
        nowhere = self.folder / "empty"
        nowhere.mkdir(exist_ok=True)
        for words, changes, message in ((["sh", "-c", "echo broken >&2; exit 3"], {}, "natively: status 3: broken"),
                                        ([PROGRAMS / "rounds", 10], {"PATH": str(nowhere)}, "valgrind is not installed")):
            result = self.predict("--", *words, **changes)
            self.assertEqual(result.status, FAILURE, result.errors.decode())
            self.assertEqual(result.output, b"")
            self.assertEqual(result.errors.count(b"\n"), 1, result.errors.decode())
            self.assertIn(message, result.errors.decode())


if __name__ == "__main__":
    main()
