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


class BenchTest(SystemTest):
    def bench(self, command, *options, seconds=120, svg=True):
        """Runs a command once; the document, which --json wrote, and what was printed."""
        document, picture = self.folder / f"{command}.json", self.folder / f"{command}.svg"
        files = ["--json", document, *(["--svg", picture] if svg else [])]
        words = [FARSIDE, "bench", command, "--quiet", *files, *options]
        result = run([str(word) for word in words], seconds=seconds, env=environment(), cwd=self.folder)
        self.assertEqual(result.status, 0, result.errors.decode())
        self.assertEqual(result.errors, b"", "--quiet prints nothing but errors")
        self.assertGreater(len(result.output.splitlines()), 2)
        if svg:
            self.assertTrue(picture.read_text().endswith("</svg>\n"))
        return self.checked(json.loads(document.read_text()))

    def checked(self, document):
        for field in MACHINE if "machine" in document else ():
            self.assertTrue(document["machine"][field], field)
        for goal in document.get("goals", []):
            self.assertTrue(goal)
        self.check_summaries(document)
        return document

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
        self.assertIn("machine", document)
        cells = Counter(cell["configuration"] for cell in document["cells"])
        self.assertEqual(cells, dict.fromkeys(
            ["native", "shm", "tcp", "shm pages", "tcp pages", "shm handler", "ucx"], 8))
        for cell in document["cells"]:
            self.assertGreater(median(cell, "us"), 0)
            self.assertGreater(cell["counters"]["accesses"], 0)
        self.assertEqual(document["settings"]["bytes"], 16 << 20)
        self.assertIn("zram swap", document["skipped"])

    def test_paging_takes_a_choice_of_configurations(self):
        document = self.bench("paging", "--size", "16M", "--accesses", 1000, "--seconds", 1, "--repeat", 1, "--no-zram",
                              "--configurations", "native,tcp")
        self.assertEqual({cell["configuration"] for cell in document["cells"]}, {"native", "tcp"})

    def test_fibers(self):
        document = self.bench("fibers", "--size", "16M", "--accesses", 4000, "--repeat", 1)
        names = {configuration["name"] for configuration in document["configurations"]}
        self.assertEqual(names, {"fibers, tcp", "hinted fibers, tcp", "threads, tcp", "hinted fibers, shm",
                                 "hinted fibers, tcp, 2 servers"})
        for configuration in document["configurations"]:
            counts = [point["count"] for point in configuration["points"]]
            self.assertEqual(counts, sorted(counts))
            self.assertLessEqual(set(COUNTS), set(counts))
            for point in configuration["points"]:
                self.assertGreater(median(point, "reads_per_s"), 100, configuration["name"])

    def test_hints(self):
        document = self.bench("hints", "--repeat", 3, svg=False)
        self.assertEqual(len(document["cases"]), 4)
        for case in document["cases"]:
            self.assertGreater(median(case, "cycles"), 0)
            if case["instructions"] is not None:  # null where ptrace is forbidden
                self.assertTrue(1 <= case["instructions"] <= 40, case)

    def test_writeback(self):
        document = self.bench("writeback", "--size", "16M", "--repeat", 1)
        rows = document["rows"]
        keys = {(row["link"], row["mode"], row["pattern"], row["lines"]) for row in rows}
        self.assertEqual(len(keys), len(rows))
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
        document = self.bench("replicas", "--size", "16M", "--accesses", 2000, "--repeat", 1, svg=False)
        self.assertEqual(Counter(cell["transport"] for cell in document["cells"]), {"shm": 8, "tcp": 8})
        for cell in document["cells"]:
            self.assertAlmostEqual(median(cell, "ratio"), median(cell, "two_us") / median(cell, "one_us"))

    def test_reads(self):
        document = self.bench("reads", "--size", "16M", "--seconds", "0.05", "--repeat", 1, "--kinds", "threads;2 MiB pieces, read",
                              "--added-latency", "0,200", svg=False)
        self.assertEqual(Counter(cell["kind"] for cell in document["cells"]), {"threads": 8, "2 MiB pieces, read": 1})
        for cell in document["cells"]:
            self.assertGreaterEqual(median(cell, "us") * cell["in_flight"], cell["latency_us"])
            self.assertAlmostEqual(median(cell, "processor_us"), median(cell, "client_us") + median(cell, "server_us"))

    def test_file(self):
        document = self.bench("file", "--size", "16M", "--accesses", 500, "--repeat", 1, "--no-programs", svg=False)
        self.assertEqual({cell["threads"] for cell in document["cells"]}, {1, 16})
        for cell in document["cells"]:
            for configuration in {"far file", "encrypted"}:
                self.assertGreater(cell["us"][configuration]["median"], 0)

    def test_offload(self):
        document = self.bench("offload", "--size", "16M", "--repeat", 1, svg=False)
        queries = ["aggregate", "filter, 1 %", "gather", "gather into", "chain of 8", "chain of 8 objects", "one word",
                   "map look-up", "far vector"]
        for transport in ("tcp", "shm"):
            measured = [cell["query"] for cell in document["cells"] if cell["transport"] == transport]
            self.assertEqual(measured, queries)
        for cell in document["cells"]:
            for way in ("native", "local", "server", "automatic"):
                self.assertGreater(cell["ms"][way], 0, cell)

    def test_policies(self):
        document = self.bench("policies", "--pages", 500, "--accesses", 5000, "--shares", "10,60")
        self.assertEqual(len(document["traces"]), 6)
        for trace in document["traces"]:
            policies = {curve["policy"] for curve in trace["curves"]}
            self.assertEqual((len(policies), len(trace["curves"])), (16, 16))
            self.assertLessEqual({"2q", "lru, hints", "kernel's lists", "S3-FIFO", "exact LRU", "optimum"}, policies)
            for curve in trace["curves"]:
                self.assertEqual(len(curve["points"]), 2)
                self.assertTrue(all(0 <= point["hits"] <= 100 for point in curve["points"]))

    def test_scaling(self):
        costs, plots = self.folder / "costs.json", self.folder / "plots"
        plots.mkdir()
        options = ["--threads", "1,8", "--faults", 1000]
        document = self.bench("scaling", "--size", "16M", "--repeat", 1, "--accesses", 5000, *options, "--save-costs", costs,
                              "--plots", plots, svg=False)
        self.check_scaling(document)
        self.assertTrue(list(plots.glob("*.svg")))
        again = self.bench("scaling", "--costs", costs, *options, svg=False)
        self.check_scaling(again)
        self.assertEqual(again["threads"], document["threads"], "the same costs and seed give the same figures")

    def check_scaling(self, document):
        for part in ("costs", "validation", "threads", "batches", "breakdown", "changes", "sensitivity", "others"):
            self.assertTrue(document[part], part)
        self.assertEqual({row["threads"] for row in document["threads"]}, {1, 8})
        for row in document["threads"]:
            self.assertGreater(row["pages_per_s"], 0)
            self.assertLessEqual(row["p50_us"], row["p99_us"])

    def test_redis(self):
        for program in ("redis-server", "redis-benchmark"):
            if not shutil.which(program):
                self.skipTest(f"{program} is not installed")
        document = self.bench("redis", "--keys", 20000, "--requests", 5000, "--repeat", 1, "--no-zram", svg=False)
        self.assertEqual(set(document["configurations"]), {"native", "shm", "tcp", "tcp, lines", "shm, all near"})
        for configuration, tests in document["configurations"].items():
            self.assertEqual(set(tests), {"get", "set"}, configuration)
            for figures in tests.values():
                self.assertGreater(median(figures, "ops_per_s"), 0)
                self.assertLessEqual(median(figures, "p50_us"), median(figures, "p99_us"))

    def test_every_application_of_all_runs(self):
        others = ("kv_load", "taxi", "offload_queries")  # a client, and programs with options of their own
        apps = sorted(path.name for path in (BUILD / "libexec/farside/apps").iterdir() if path.name not in others)
        if not shutil.which("memcached"):
            apps.remove("memcached_load")
        out = self.folder / "all"
        words = [FARSIDE, "bench", "all", "--quick", "--size", "8M", "--shares", "50", "--configurations", "far", "--apps",
                 ",".join(apps), "--out", out, "--quiet"]
        result = run([str(word) for word in words], seconds=240, env=environment(), cwd=self.folder)
        self.assertEqual(result.status, 0, result.output.decode() + result.errors.decode())
        runs = json.loads((out / "results.json").read_text())["runs"]
        self.assertEqual({key.split("/")[0] for key in runs}, set(apps))
        for app in apps:
            self.assertEqual(len({run["checksum"] for key, run in runs.items() if key.startswith(app + "/")}), 1, app)


class BenchObjectsTest(BenchTest):
    """`bench objects` with every suite, also those that take their time: near and paths."""

    def setUp(self):
        options = ["--size", "16M", "--accesses", 2000, "--repeat", 1, "--no-zram"]
        self.document = self.once("objects", lambda: self.bench("objects", *options, seconds=300))

    def rows(self, suite):
        return [row for row in self.document["rows"] if row["suite"] == suite]

    def test_every_suite_has_its_rows(self):
        self.assertEqual(Counter(row["suite"] for row in self.document["rows"]),
                         {"misses": 2, "fibers": 24, "map": 104, "free-memory": 4, "pauses": 2, "eviction": 8, "near": 1,
                          "near-apps": 3, "paths": 32})
        self.assertEqual(self.document["skipped"]["kernel swap"], "left out by --no-zram")

    def test_the_hot_path(self):
        near, = self.rows("near")
        cases = {case["name"]: case for case in near["cases"]}
        self.assertEqual(len(cases), 4)
        for name, case in cases.items():
            self.assertGreater(median(case, "ns"), 0)
            if case["instructions"] is not None and "hoisted" in name:
                self.assertTrue(1 <= case["instructions"] <= 20, case)
        self.assertTrue(0.2 < median(near["chase"], "ratio") < 20)

    def test_the_paths(self):
        seen = set()
        for row in self.rows("paths"):
            seen.add((row["transport"], row["workload"], row["configuration"]))
            self.assertGreater(median(row, "accesses_per_s"), 0)
            self.assertGreaterEqual(median(row, "bytes_per_useful"), 0)
        self.assertEqual(len(seen), 32)
        shares = {key: [row["page_share"] for row in self.rows("paths") if row["configuration"] == key]
                  for key in {row["configuration"] for row in self.rows("paths")}}
        self.assertTrue(all(0 <= share <= 1 for lists in shares.values() for one in lists for share in one))
        self.assertTrue(all(share == 1 for one in shares["objects, as pages only"] for share in one))
        self.assertTrue(all(one[-1] < 0.5 for one in shares["objects, one by one only"]))


# The tests of BenchTest run in that class only.
for name in [name for name in dir(BenchTest) if name.startswith("test_")]:
    setattr(BenchObjectsTest, name, None)


if __name__ == "__main__":
    if not os.access(BUILD / "libexec/farside/farside-bench", os.X_OK):
        print("farside-bench is not built")
        raise SystemExit(77)
    main()
