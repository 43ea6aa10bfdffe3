"""farside bench: each command on minimal data. Its document is complete and its figures are possible; no time is judged."""
import json
import os
import shutil
import unittest
from collections import Counter

from support import BUILD, FARSIDE, SystemTest, environment, main, run

MACHINE = ("processor", "kernel", "commit", "date", "load_average")
COUNTS = [1, 4, 16, 64]  # the fibers of one worker that every chart of fibers has among its points


def median(row, name):
    return row[name]["median"]


def unexpected(errors):
    """What was printed but for what is true of a machine that stands still for seconds."""
    return [line for line in errors.decode().splitlines() if "warning: memory server" not in line or "has not responded for" not in line]


class BenchTest(SystemTest):
    def bench(self, command, *options, seconds=120, plots=True):
        """Runs a command once; the document, which --json wrote, and what was printed."""
        document, folder = self.folder / f"{command}.json", self.folder / "plots"
        words = [FARSIDE, "bench", command, "--quiet", "--json", document, "--plots", folder, *options]
        result = run([str(word) for word in words], seconds=seconds, env=environment(), cwd=self.folder)
        self.assertEqual(result.status, 0, result.output.decode() + result.errors.decode())
        self.assertEqual([], unexpected(result.errors), "--quiet prints nothing but errors")
        self.assertGreater(len(result.output.splitlines()), 2)
        self.text = result.output.decode()
        self.assertEqual([], list(self.folder.glob("*.part")))
        if plots:
            self.picture = "".join(path.read_text() for path in folder.glob(f"{command}*.svg"))
            self.assertTrue(self.picture.endswith("</svg>\n"))
        return self.checked(json.loads(document.read_text()))

    def checked(self, document):
        for field in MACHINE:
            self.assertTrue(document["machine"][field], field)
        for goal in document.get("goals", []):
            self.assertTrue(goal)
        self.check_summaries(document)
        return document

    def check_keys(self, rows, *members):
        """The members identify each row."""
        keys = [tuple(row[member] for member in members) for row in rows]
        self.assertEqual(len(set(keys)), len(keys))

    def check_summaries(self, value):
        """Every summary in the document: its median is between its extremes, and it has as many runs as there were."""
        if isinstance(value, dict):
            if {"median", "min", "max", "runs"} <= set(value):
                self.assertLessEqual(value["min"], value["median"])
                self.assertLessEqual(value["median"], value["max"])
                self.assertTrue(value["runs"])
            for part in value.values():
                self.check_summaries(part)
        elif isinstance(value, list):
            for part in value:
                self.check_summaries(part)

    def test_paging(self):
        document = self.bench("paging", "--size", "16M", "--accesses", 2000, "--seconds", 2, "--repeat", 1, "--no-zram")
        cells = [row for row in document["rows"] if "threads" in row]
        self.check_keys(cells, "configuration", "workload", "threads")
        far = ["shm", "tcp", "shm pages", "tcp pages", "shm handler", "ucx"]
        self.assertEqual(Counter(cell["configuration"] for cell in cells), dict.fromkeys(["native", *far], 8))
        for cell in cells:
            self.assertGreater(median(cell, "us"), 0)
            self.assertGreater(cell["counters"]["accesses"], 0)
        for cell in cells:
            if cell["workload"] == "random read" and cell["configuration"] != "native":
                self.check_faults(cell["counters"], cell["threads"])
        self.check_misses({row["configuration"]: row for row in document["rows"]
                           if row.get("workload") == "random read that misses"})
        near, = [row for row in document["rows"] if row["configuration"] == "all near"]
        self.assertGreater(median(near, "ratio"), 0)
        self.assertEqual(len(document["goals"]), 9)  # those that do not need zram
        self.assertEqual(document["settings"]["bytes"], 16 << 20)
        self.assertEqual(document["skipped"]["zram swap"], "left out by --no-zram")
        for shown in ("sequential write", "zram swap: not run: left out by --no-zram"):
            self.assertIn(shown, self.text)
        self.assertIn("shm handler", self.picture)

    def check_faults(self, counters, threads):
        self.assertGreater(counters["major_faults"], 0)
        # A thread that starts may be within a fault, counted already, when the counters are read first.
        self.assertLessEqual(counters["major_faults"], counters["faults"] + threads)
        self.assertGreater(counters["evictions"], 0)
        self.assertLessEqual(counters["dirty_evictions"], counters["evictions"])
        self.assertLessEqual(counters["map_us"] + counters["fetch_us"], counters["fault_us"])

    def check_misses(self, misses):
        for configuration in ("shm", "tcp", "ucx", "shm handler"):
            miss = misses[configuration]
            self.assertGreater(median(miss, "share"), 0.3, configuration)  # three quarters of the pages are far
            self.assertGreaterEqual(median(miss, "p99_us"), median(miss, "median_us"))
            self.assertGreaterEqual(median(miss, "p999_us"), median(miss, "p99_us"))
        for configuration in ("shm", "tcp", "ucx"):
            self.assertGreater(median(misses[configuration], "round_trip_us"), 0)

    def test_paging_takes_a_choice_of_configurations(self):
        document = self.bench("paging", "--size", "16M", "--accesses", 1000, "--seconds", 1, "--repeat", 1, "--no-zram",
                              "--configurations", "native,tcp")
        self.assertEqual({row["configuration"] for row in document["rows"]}, {"native", "tcp"})

    def test_fibers(self):
        document = self.bench("fibers", "--size", "16M", "--accesses", 4000, "--repeat", 1)
        names = {"fibers, tcp", "hinted fibers, tcp", "threads, tcp", "hinted fibers, shm", "hinted fibers, tcp, 2 servers"}
        for name in names:
            counts = [row["count"] for row in document["rows"] if row["configuration"] == name]
            self.assertEqual(counts, sorted(counts))
            self.assertLessEqual(set(COUNTS), set(counts))
        for row in document["rows"]:
            self.assertIn(row["configuration"], names)
            self.assertGreater(median(row, "reads_per_s"), 100, row["configuration"])

    def test_hints(self):
        document = self.bench("hints", "--repeat", 3, plots=False)
        self.assertEqual(len(document["rows"]), 4)
        for row in document["rows"]:
            self.assertGreater(median(row, "cycles"), 0)
            if row["instructions"] is not None:  # null where ptrace is forbidden
                self.assertTrue(1 <= median(row, "instructions") <= 40, row)

    def test_writeback(self):
        rows = self.bench("writeback", "--size", "16M", "--repeat", 1)["rows"]
        self.check_keys(rows, "link", "mode", "pattern", "lines")
        self.assertEqual({row["link"] for row in rows}, {"shm, 10 Gbit/s", "tcp"})
        self.assertEqual({row["mode"] for row in rows}, {"page", "line", "auto"})
        self.assertEqual(len(rows) % 6, 0)
        for row in rows:
            self.assertGreater(median(row, "goodput_mb_s"), 0)
            if row["mode"] == "page":  # 64 lines of 64 bytes, whatever was changed
                self.assertAlmostEqual(median(row, "sent_per_useful"), 64 / row["lines"], delta=0.1 * 64 / row["lines"])
            if row["mode"] == "line" and row["lines"] <= 8:
                self.assertLess(median(row, "sent_per_useful"), 64 / row["lines"])

    def test_replicas(self):
        document = self.bench("replicas", "--size", "16M", "--accesses", 2000, "--repeat", 1, plots=False)
        cells = [row for row in document["rows"] if "threads" in row]
        self.check_keys(cells, "transport", "servers", "workload", "threads")
        self.assertEqual(Counter((cell["transport"], cell["servers"]) for cell in cells),
                         {(transport, servers): 8 for transport in ("shm", "tcp")
                          for servers in ("one server", "two replicas")})
        for cell in cells:
            self.assertGreater(median(cell, "us"), 0)
        self.assertIn("two replicas / one server", self.text)

    def test_reads(self):
        document = self.bench("reads", "--size", "16M", "--seconds", "0.05", "--repeat", 1, "--kinds", "threads;2 MiB pieces, read",
                              "--added-latency", "0,200", plots=False)
        self.assertEqual(Counter(row["kind"] for row in document["rows"]), {"threads": 8, "2 MiB pieces, read": 1})
        for row in document["rows"]:
            self.assertGreaterEqual(median(row, "us") * row["in_flight"], row["latency_us"])
            self.assertAlmostEqual(median(row, "processor_us"), median(row, "client_us") + median(row, "server_us"))

    def test_file(self):
        document = self.bench("file", "--size", "16M", "--accesses", 500, "--repeat", 1, "--no-programs", plots=False)
        cells = [row for row in document["rows"] if "threads" in row]
        self.assertEqual({cell["threads"] for cell in cells}, {1, 16})
        for configuration in ("far file", "encrypted"):
            found = [cell for cell in cells if cell["configuration"] == configuration]
            self.assertEqual(len(found), 8)
            for cell in found:
                self.assertGreater(median(cell, "us"), 0)

    def test_offload(self):
        document = self.bench("offload", "--size", "16M", "--repeat", 1, plots=False)
        queries = ["aggregate", "filter, 1 %", "gather", "gather into", "chain of 8", "chain of 8 objects", "one word",
                   "map look-up", "far vector"]
        for transport in ("tcp", "shm"):
            measured = [row["query"] for row in document["rows"] if row["transport"] == transport]
            self.assertEqual(measured, queries)
        for row in document["rows"]:
            for way in ("native", "local", "server", "automatic"):
                self.assertGreater(median(row, way), 0, row)

    def test_policies(self):
        document = self.bench("policies", "--pages", 500, "--accesses", 5000, "--shares", "10,60")
        self.check_keys(document["rows"], "trace", "policy", "near")
        policies = {row["policy"] for row in document["rows"]}
        self.assertLessEqual({"2q", "lru, hints", "kernel's lists", "S3-FIFO", "exact LRU", "optimum"}, policies)
        self.assertEqual((len(policies), len(document["rows"])), (16, 6 * 16 * 2))
        self.assertTrue(all(0 <= median(row, "hits") <= 100 for row in document["rows"]))

    def test_regret(self):
        document = self.bench("regret", "--quick")
        self.assertEqual(document["skipped"], {})
        rows = document["rows"]
        for workload in ("loop", "GNU sort"):
            runs = [row for row in rows if row["workload"] == workload and "setting" in row]
            self.assertEqual(len(runs), 1 + 8, workload)
            pages = [median(row, "pages") for row in runs if "near" in row and "pages" in row]  # without what was cut off
            compared, = [row for row in rows if row["workload"] == workload and "setting" not in row]
            self.assertEqual(median(compared, "pages_best"), min(pages))
            if "pages" in runs[1]:
                self.assertGreaterEqual(median(compared, "pages_regret"), 1)
        self.assertIn("regret by pages: median", self.text)

    def test_several_run_after_each_other(self):
        file = self.folder / "both.json"
        words = [FARSIDE, "bench", "hints", "fibers", "--quick", "--repeat", "1", "--quiet", "--json", str(file)]
        result = run([str(word) for word in words], seconds=120, env=environment(), cwd=self.folder)
        self.assertEqual((result.status, result.errors), (0, b""))
        self.assertEqual([document["benchmark"] for document in json.loads(file.read_text())], ["hints", "fibers"])

    def test_scaling(self):
        options = ["--threads", "1,8", "--faults", 1000]
        rows = self.parts_of_scaling("--size", "16M", "--repeat", 1, "--accesses", 5000, *options)
        costs = self.folder / "costs.json"
        (self.folder / "scaling.json").rename(costs)
        again = self.parts_of_scaling("--costs", costs, "--repeat", 1, *options)
        self.assertEqual(again["threads"], rows["threads"], "the same costs and seed give the same figures")

    def parts_of_scaling(self, *options):
        document = self.bench("scaling", *options)
        rows = {part: [row for row in document["rows"] if row["part"] == part]
                for part in ("costs", "validation", "threads", "batches", "breakdown", "changes", "sensitivity", "others")}
        for part, found in rows.items():
            self.assertTrue(found, part)
        self.assertEqual({row["threads"] for row in rows["threads"]}, {1, 8})
        for row in rows["threads"]:
            self.assertGreater(median(row, "pages_per_s"), 0)
            self.assertLessEqual(median(row, "p50_us"), median(row, "p99_us"))
        return rows

    def test_redis(self):
        for program in ("redis-server", "redis-benchmark"):
            if not shutil.which(program):
                self.skipTest(f"{program} is not installed")
        document = self.bench("redis", "--keys", 20000, "--requests", 5000, "--repeat", 1, "--no-zram", plots=False)
        self.assertEqual(Counter(row["configuration"] for row in document["rows"]),
                         dict.fromkeys(["native", "shm", "tcp", "tcp, lines", "shm, all near"], 2))
        self.check_keys(document["rows"], "configuration", "test")
        self.assertEqual({row["test"] for row in document["rows"]}, {"get", "set"})
        self.assertEqual(document["skipped"], {"zram swap": "left out by --no-zram"})
        for row in document["rows"]:
            self.assertGreater(median(row, "ops_per_s"), 0)
            self.assertLessEqual(median(row, "p50_us"), median(row, "p99_us"))

    def test_every_application_of_all_runs(self):
        others = ("cache", "graph", "taxi", "offload_queries", "patterns")  # of `bench apps`, or with options of their own
        apps = sorted(path.name for path in (BUILD / "libexec/farside/apps").iterdir() if path.name not in others)
        if not shutil.which("memcached"):
            apps.remove("memcached_load")
        document = self.bench("all", "--quick", "--size", "16M", "--shares", "50", "--configurations", "far", "--apps",
                              ",".join(apps), seconds=240)
        rows = [row for row in document["rows"] if row.get("configuration") in ("native", "far")]
        self.assertEqual(Counter(row["app"] for row in rows), dict.fromkeys(apps, 2))
        for app in apps:
            self.assertEqual(len({row["checksum"] for row in rows if row["app"] == app}), 1, app)


class BenchObjectsTest(BenchTest):
    """`bench objects` with every suite, also those that take their time: near and paths."""

    def setUp(self):
        self.document, self.text, self.picture = self.once("objects", self.measure)

    def measure(self):
        options = ["--size", "16M", "--accesses", 2000, "--repeat", 1, "--no-zram"]
        return self.bench("objects", *options, seconds=300), self.text, self.picture

    def rows(self, suite):
        return [row for row in self.document["rows"] if row["suite"] == suite]

    def test_every_suite_has_its_rows(self):
        self.assertEqual(Counter(row["suite"] for row in self.document["rows"]),
                         {"misses": 2, "fibers": 32, "map": 104, "free-memory": 4, "pauses": 2, "eviction": 8, "near": 5,
                          "near-apps": 2, "paths": 56})
        self.assertEqual(self.document["skipped"], {"zram swap": "left out by --no-zram"})

    def test_the_hot_path(self):
        cases = {row["case"]: row for row in self.rows("near")}
        chase = cases.pop("chase through 128 MB")
        self.assertEqual(len(cases), 4)
        for name, case in cases.items():
            self.assertGreater(median(case, "ns"), 0)
            if case["instructions"] is not None and "hoisted" in name:
                self.assertTrue(1 <= median(case, "instructions") <= 20, case)
        self.assertTrue(0.2 < median(chase, "ratio") < 20)

    def test_the_paths(self):
        seen = set()
        for row in self.rows("paths"):
            seen.add((row["transport"], row["workload"], row["configuration"]))
            self.assertGreater(median(row, "accesses_per_s"), 0)
            self.assertGreaterEqual(median(row, "bytes_per_useful"), 0)
        self.assertEqual(len(seen), 56)
        shares = {key: [[share for _, share in row["page_share"]] for row in self.rows("paths") if row["configuration"] == key]
                  for key in {row["configuration"] for row in self.rows("paths")}}
        self.assertTrue(all(0 <= share <= 1 for lists in shares.values() for one in lists for share in one))
        self.assertTrue(all(share == 1 for one in shares["objects, as pages only"] for share in one))
        self.assertTrue(all(one[-1] < 0.5 for one in shares["objects, one by one only"]))

    def test_rates_and_bytes_are_not_zero(self):
        for suite, figures in (("fibers", ("reads_per_s", "bytes_per_useful")), ("map", ("lookups_per_s",)),
                               ("near-apps", ("ratio",))):
            for row in self.rows(suite):
                for figure in figures:
                    self.assertGreater(median(row, figure), 0, row)

    def test_skewed_lookups_fetch_less(self):
        rows = [row for row in self.rows("map") if row["transport"] == "shm" and row["fibers"] == 1]
        fetched = {(row["configuration"], row["exponent"]): median(row, "bytes_per_lookup") for row in rows}
        self.assertEqual(len(fetched), 3 * 8)
        for configuration, exponent in fetched:
            self.assertLess(fetched[configuration, 1.35], fetched[configuration, 0])

    def test_shares_are_shares_and_quantiles_grow(self):
        for row in self.rows("free-memory"):
            self.assertTrue(all(0 <= share <= 1 for figure in ("free", "garbage") for _, share in row[figure]))
            self.assertLessEqual(median(row, "free_min"), median(row, "free_median"))
        for row in self.rows("pauses"):
            self.assertGreater(median(row, "p50_us"), 0)
            self.assertLessEqual(median(row, "p50_us"), median(row, "p99_us"))
            self.assertLessEqual(median(row, "p99_us"), median(row, "p999_us"))
        for row in self.rows("eviction"):
            if row["configuration"] == "plain pages":
                self.assertGreater(median(row, "evictions_per_write"), 0)
                self.assertGreater(median(row, "evictor_cycles_per_byte"), 0)

    def test_text_and_charts_show_the_results(self):
        for shown in ("farside::far_hash_map", "pages, no hints", "with the program stopped", "always in a scope",
                      "binary tree", "zram swap: not run: left out by --no-zram"):
            self.assertIn(shown, self.text)
        for shown in ("free, always in a scope", "concurrent"):
            self.assertIn(shown, self.picture)


# The tests of BenchTest run in that class only.
for name in [name for name in dir(BenchTest) if name.startswith("test_")]:
    setattr(BenchObjectsTest, name, None)


if __name__ == "__main__":
    if not os.access(BUILD / "libexec/farside/farside-bench", os.X_OK):
        print("farside-bench is not built")
        raise SystemExit(77)
    main()
