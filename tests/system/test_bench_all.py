"""farside bench all and apps: results are complete and equal in all configurations, and a stopped benchmark continues."""
import json
import os
import signal
import stat
import subprocess
import time
import unittest

from support import BUILD, FARSIDE, SystemTest, end_group, environment, main, run

FAILURE = 1
APPS = ["psrs_sort", "analytics", "gups"]
OPTIONS = ["--apps", ",".join(APPS), "--configurations", "far,hinted", "--shares", "25,100", "--size", "32M", "--repeat", "1"]

FORMS = ["paged", "hinted", "objects", "hybrid"]
OVER_TYPES = [app for app in ("web_frontend", "cache") if os.access(BUILD / "libexec/farside/apps" / app, os.X_OK)]


class BenchAllTest(SystemTest):
    def command(self, out, *options):
        return [FARSIDE, "bench", "all", "--json", str(self.folder / f"{out}.json"), *map(str, options)]

    def bench(self, out, *options):
        return run(self.command(out, *options), seconds=120, env=environment(), cwd=self.folder)

    def rows(self, out):
        rows = json.loads((self.folder / f"{out}.json").read_text())["rows"]
        return {(row["app"], row["configuration"], row["near"]): row for row in rows if "app" in row}

    def test_all_is_measured_once(self):
        plots = self.folder / "plots"
        result = self.bench("whole", *OPTIONS, "--plots", plots)
        self.assertEqual(result.status, 0, result.errors.decode())
        rows = self.rows("whole")
        self.assertEqual(len(rows), 3 * (1 + 2 * 3))  # native, far, hinted and ideal
        for app in APPS:
            self.assertEqual(len({row["checksum"] for key, row in rows.items() if key[0] == app and key[1] != "ideal"}), 1)
            self.assertGreater(rows[app, "far", 25]["costs"]["evictions"], 0)
            self.assertGreater(rows[app, "ideal", 25]["of_native"]["median"], 0)
        self.assertGreater(rows["gups", "far", 25]["fetches"]["median"], 100)
        for name in ("all.svg", "all_timelines.svg"):
            self.assertTrue((plots / name).read_text().endswith("</svg>\n"))
        self.assertIn("us per evicted page", result.output.decode())

    def test_it_continues_after_an_interruption(self):
        journal = self.folder / "stopped.json.all.part"
        process = subprocess.Popen(self.command("stopped", *OPTIONS, "--quiet"), env=environment(), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(end_group, process)
        deadline = time.monotonic() + 60
        while not (journal.exists() and journal.read_text().count("checksum") >= 2):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        errors = process.communicate(timeout=30)[1]
        self.assertEqual(process.returncode, FAILURE)
        self.assertIn(b"stopped by a signal", errors)
        done = [json.loads(line)[1] for line in journal.read_text().splitlines()[1:] if "checksum" in line]
        other = self.bench("stopped", *OPTIONS, "--seed", "2")
        self.assertEqual(other.status, FAILURE)
        self.assertIn(b"other options", other.errors)
        self.assertEqual(self.bench("stopped", *OPTIONS).status, 0)
        self.assertFalse(journal.exists())
        kept = [row["wall_s"]["median"] for row in self.rows("stopped").values() if "wall_s" in row]
        for result in done:
            self.assertIn((result[0]["figures"] if isinstance(result, list) else result)["wall_s"], kept)
        self.assertEqual(len(self.rows("stopped")), 21)

    def app(self, folder, script):
        """Runs the benchmark with a script in place of the application gups."""
        (self.folder / folder).mkdir()
        path = self.folder / folder / "gups"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return self.bench(folder, "--apps-dir", self.folder / folder, "--configurations", "far", "--shares", "50", "--size", "16M",
                          "--quiet", "--cut-off", "1", "--repeat", "2")

    def test_differing_results_are_an_error(self):
        real = BUILD / "libexec/farside/apps/gups"
        result = self.app("differs", f'[ -z "$LD_PRELOAD" ] && shift 4 && set -- --size 4M --seed 2 "$@"\nexec {real} "$@"\n')
        self.assertEqual(result.status, FAILURE)
        self.assertIn("problem: gups, far, 50%: results differ", result.output.decode())
        self.assertIn("psrs_sort: not run: not built", result.output.decode())

    def test_failures_and_time_limits_are_reported(self):
        failing = self.app("fails", "echo out of luck >&2; exit 3\n")
        self.assertEqual(failing.status, FAILURE)
        self.assertIn("problem: gups, native, 100%: status 3: out of luck", failing.output.decode())
        real = BUILD / "libexec/farside/apps/gups"
        hanging = self.app("hangs", f'[ -n "$LD_PRELOAD" ] && echo >> {self.folder}/ran && sleep 100\nexec {real} "$@"\n')
        self.assertEqual(hanging.status, 0, hanging.output.decode() + hanging.errors.decode())
        self.assertIn("gups, far, 50%: not run: an earlier repetition was ended", hanging.output.decode())
        self.assertEqual((self.folder / "ran").read_text(), "\n", "what was ended once is not run again")


@unittest.skipUnless(OVER_TYPES, "their libraries are not installed")
class BenchAppsTest(SystemTest):
    def test_all_forms_compute_the_same(self):
        self.check_apps(OVER_TYPES, ["shm", "tcp"])

    def test_the_graph_is_the_same_in_all_forms(self):
        self.check_apps(["graph"], ["shm"])  # over tcp its pages take a minute

    def check_apps(self, apps, transports):
        document = self.folder / "apps.json"
        words = [FARSIDE, "bench", "apps", "--quiet", "--no-zram", "--size", "16M", "--shares", "30", "--repeat", "1",
                 "--apps", ",".join(apps), "--transports", ",".join(transports),
                 "--json", document, "--plots", self.folder / "plots"]
        result = run([str(word) for word in words], seconds=150, env=environment(), cwd=self.folder)
        self.assertEqual(result.status, 0, result.output.decode() + result.errors.decode())
        self.assertIn("misses an operation", result.output.decode())
        rows = json.loads(document.read_text())["rows"]
        for app in apps:
            self.check([row for row in rows if row.get("app") == app], transports)
        self.assertTrue((self.folder / "plots/apps.svg").read_text().endswith("</svg>\n"))

    def check(self, rows, transports):
        self.assertEqual(len({row["checksum"] for row in rows}), 1)
        far = {(row["configuration"], row["transport"]): row for row in rows if row["configuration"] != "native"}
        self.assertEqual(set(far), {(form, transport) for form in FORMS for transport in transports})
        for (form, _), row in far.items():
            self.assertGreater(row["operations_per_s"]["median"], 0)
            self.assertEqual(row["misses"]["median"] > 0, row["fetched_bytes"]["median"] > 0)
            if form in ("paged", "hinted"):
                self.assertEqual(row["objects_taken"]["median"], 0)
        self.assertGreater(far["objects", transports[-1]]["objects_taken"]["median"], 0)


if __name__ == "__main__":
    if not os.access(BUILD / "libexec/farside/apps/gups", os.X_OK):
        raise SystemExit(77)
    main()
