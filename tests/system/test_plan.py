"""farside plan: every share is measured, the program's output stays away, failures and interruptions end it cleanly."""
import json
import os
import signal
import subprocess
import time

from support import FARSIDE, PYTHON, SystemTest, end_group, environment, main, run

USAGE, FAILURE, NOT_FOUND = 2, 1, 127
# Walks 32 MiB at random, and prints to both streams.
WALK = """
import sys
block = bytearray(32 << 20)
for i in range(60000): block[i * 2654435761 % len(block)] = i % 251
print("printed by the program", sum(block[::4096]))
print("told by the program", file=sys.stderr)
"""


class PlanTest(SystemTest):
    def plan(self, *words, seconds=120):
        return run([FARSIDE, "plan", *map(str, words)], seconds=seconds, env=environment(), cwd=self.folder)

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
        for unwanted in "printed by", "told by":
            self.assertNotIn(unwanted, text + result.errors.decode())
        self.assertIn("ideal", (self.folder / "plan.svg").read_text())

    def test_a_program_that_fails_is_named(self):
        for words, status, told in ((["sh", "-c", "echo broken >&2; exit 3"], FAILURE, "natively: status 3: broken"),
                                    (["no-such-program"], NOT_FOUND, "no-such-program"),
                                    ([PYTHON, "-c", "import os; os._exit('LD_PRELOAD' in os.environ)"], FAILURE, "status 1")):
            result = self.plan("--quiet", "--shares", "50", "--", *words)
            self.assertEqual(result.status, status, result.errors.decode())
            self.assertEqual(result.output, b"")
            self.assertIn(told, result.errors.decode())

    def test_an_interruption_ends_the_program_too(self):
        marker = self.folder / "pid"
        script = f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid()) + '.'); time.sleep(100)"
        process = subprocess.Popen([FARSIDE, "plan", "--quiet", "--shares", "50", "--", PYTHON, "-c", script],
                                   stderr=subprocess.PIPE, env=environment(), start_new_session=True)
        self.addCleanup(end_group, process)
        deadline = time.monotonic() + 30
        while not (marker.exists() and marker.read_text().endswith(".")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(30), FAILURE)
        self.assertIn(b"stopped by a signal", process.stderr.read())
        process.stderr.close()
        with self.assertRaises(ProcessLookupError):
            os.kill(int(marker.read_text().rstrip(".")), 0)


if __name__ == "__main__":
    main()
