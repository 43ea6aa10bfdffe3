"""farside bench all: results are complete and equal in all configurations, and a stopped benchmark continues."""
import json
import os
import signal
import stat
import subprocess
import time

from support import BUILD, FARSIDE, SystemTest, end_group, environment, main, run

USAGE, FAILURE = 2, 1
APPS = "psrs_sort,analytics,gups"
OPTIONS = ["--apps", APPS, "--configurations", "far,hinted", "--shares", "25,100", "--size", "32M"]


class BenchAllTest(SystemTest):
    def command(self, out, *options):
        return [FARSIDE, "bench", "all", "--out", str(self.folder / out), *map(str, options)]

    def bench(self, out, *options, repeat=1):
        return run(self.command(out, "--repeat", repeat, *options), seconds=120, env=environment(), cwd=self.folder)

    def document(self, out):
        return json.loads((self.folder / out / "results.json").read_text())

    def test_all_is_measured_once(self):
        result = self.bench("whole", *OPTIONS)
        self.assertEqual(result.status, 0, result.errors.decode())
        runs = self.document("whole")["runs"]
        self.assertEqual(len(runs), 3 * (1 + 2 * 2))
        for app in APPS.split(","):
            self.assertEqual(len({run["checksum"] for key, run in runs.items() if key.startswith(app + "/")}), 1)
            self.assertTrue((self.folder / "whole" / f"{app}.svg").read_text().endswith("</svg>\n"))
            self.assertGreater(runs[f"{app}/far/25/0"]["costs"]["evictions"], 0)
        self.assertGreater(runs["gups/far/25/0"]["fetches"], 100)
        self.assertEqual((self.folder / "whole" / "results.txt").read_text(), result.output.decode())
        again = self.bench("whole", *OPTIONS)
        self.assertEqual(again.status, 0)
        self.assertEqual(again.errors, b"", "something was measured again")
        self.assertEqual(again.output, result.output)
        more = self.bench("whole", *OPTIONS, repeat=2)
        self.assertEqual(len(self.document("whole")["runs"]), 2 * len(runs), more.errors.decode())
        other = self.bench("whole", *OPTIONS, "--seed", "2")
        self.assertEqual(other.status, FAILURE)
        self.assertIn(b"another seed", other.errors)

    def test_it_continues_after_an_interruption(self):
        file = self.folder / "stopped" / "results.json"
        process = subprocess.Popen(self.command("stopped", "--repeat", 1, *OPTIONS, "--quiet"), env=environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(end_group, process)
        deadline = time.monotonic() + 60
        while not (file.exists() and len(self.document("stopped")["runs"]) >= 2):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=30)[1]
        if process.returncode != 0:  # it had not ended before the signal
            self.assertEqual(process.returncode, FAILURE)
            self.assertIn(b"stopped by a signal", errors)
        done = self.document("stopped")["runs"]
        self.assertEqual(self.bench("stopped", *OPTIONS).status, 0)
        runs = self.document("stopped")["runs"]
        self.assertEqual(len(runs), 15)
        self.assertEqual({key: runs[key] for key in done}, done)

    def app(self, folder, script):
        """Runs the benchmark with a script in place of the application gups."""
        (self.folder / folder).mkdir()
        path = self.folder / folder / "gups"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return self.bench(folder + "-out", "--apps-dir", self.folder / folder, "--configurations", "far", "--shares", "50", "--size",
                          "4M", "--quiet", "--cut-off", "1")

    def test_differing_results_are_an_error(self):
        real = BUILD / "libexec/farside/apps/gups"
        result = self.app("differs", f'[ -z "$LD_PRELOAD" ] && shift 4 && set -- --size 4M --seed 2 "$@"\nexec {real} "$@"\n')
        self.assertEqual(result.status, FAILURE)
        self.assertIn("gups: results differ", result.output.decode())
        self.assertIn("psrs_sort: not run: not built", result.output.decode())

    def test_failures_and_time_limits_are_reported(self):
        failing = self.app("fails", "echo out of luck >&2; exit 3\n")
        self.assertEqual(failing.status, FAILURE)
        self.assertIn("problem: gups/native/100/0: status 3: out of luck", failing.output.decode())
        real = BUILD / "libexec/farside/apps/gups"
        hanging = self.app("hangs", f'[ -n "$LD_PRELOAD" ] && sleep 100\nexec {real} "$@"\n')
        self.assertEqual(hanging.status, 0, hanging.output.decode() + hanging.errors.decode())
        self.assertIn("note: gups/far/50/0: cut off after 10 s", hanging.output.decode())


if __name__ == "__main__":
    if not os.access(BUILD / "libexec/farside/apps/gups", os.X_OK):
        raise SystemExit(77)
    main()
