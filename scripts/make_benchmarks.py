#!/usr/bin/env python3
"""Makes docs/benchmarks.md and the plots beside it: runs the benchmarks, then shows their JSON.

make_benchmarks.py BUILD [--json FILE]    runs what FILE lacks, in about 15 minutes on a quiet machine; needs root for kernel swap

A run that was stopped goes on where it was. FILE (BUILD/benchmarks.json) is an array of the documents of `farside bench`; a complete
one is shown without measuring. A benchmark is data here: its name, what is measured, and the tables that are shown of it.
"""
import argparse
import json
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SWAP = "zram swap"
WIDTH = 120

HEAD = """# Benchmarks

Best and worst cases side by side, with kernel swap beside them. This page and its plots are made by one command, as root:

    make benchmarks

{conditions}

The command above a table makes it; without `--quick` it takes more data and repetitions. Trust ratios within a table more
than times. A dash is what could not be measured, or does not exist. Kernel swap is compressed RAM (zram) under a memory
limit, where the kernel may kill what swaps too slowly. `--json` has all figures, counters and goals.

[Is it for me?](guide/is_it_for_me.md) says what the figures mean for a program; [decision 61](decisions/0061-what-did-not-help.md)
has what did not help, and [history](history/benchmarks.md) earlier measurements, also of data frames. On other pages:
[hints](guide/hints.md), [scaling](internals/scaling.md) to 128 threads (simulated), [regret](internals/regret.md) of the defaults,
[the papers' figures](papers.md). `farside bench --list` names all benchmarks.
"""


def has(row, members):
    return all(row.get(name) in (value if isinstance(value, list) else [value]) for name, value in members.items())


def figure(row, path):
    """A figure by its path, "counters/faults": the median over the repetitions."""
    for name in path.split("/"):
        row = row.get(name) if isinstance(row, dict) else None
    return row["median"] if isinstance(row, dict) else row


def cell(value, digits):
    return "-" if value is None else f"{value:,.{digits}f}"


def distinct(values):
    return list(dict.fromkeys(values))


def markdown(head, lines):
    rows = [head, ["---"] + ["--:"] * (len(head) - 1), *lines]
    return "\n".join("| " + " | ".join(str(word) for word in row) + " |" for row in rows)


class Table:
    """A line for each value of the members `rows`, columns of figures: (head, figure, digits, unit)."""

    def __init__(self, title, rows, columns, only=None):
        self.title, self.rows, self.columns, self.only = title, rows, columns, only or {}

    def text(self, rows):
        found = [row for row in rows if has(row, self.only) and any(figure(row, c[1]) is not None for c in self.columns)]
        lines = [[", ".join(str(row[name]) for name in self.rows)] +
                 [cell(scaled(figure(row, path), unit), digits) for _, path, digits, unit in self.columns] for row in found]
        return markdown([self.title] + [column[0] for column in self.columns], lines)


class Pivot:
    """A line for each value of `rows`, a column for each value of `across`. ratios: (head, column, column) or None."""

    def __init__(self, title, rows, across, path, only=None, digits=2, unit=1, ratios=(), columns=None, sort=None):
        self.title, self.rows, self.across, self.path, self.only = title, rows, across, path, only or {}
        self.digits, self.unit, self.ratios, self.columns, self.sort = digits, unit, ratios, columns, sort

    def text(self, rows):
        rows = [row for row in rows if has(row, self.only) and figure(row, self.path) is not None and self.across in row]
        columns = self.columns or distinct(row[self.across] for row in rows)
        values = {}
        for row in rows:
            key = tuple(row[name] for name in self.rows)
            values.setdefault(key, {})[row[self.across]] = scaled(figure(row, self.path), self.unit)
        keys = sorted(values, key=lambda key: -(values[key].get(self.sort) or 0)) if self.sort else list(values)
        lines = [[", ".join(map(str, key))] + [cell(values[key].get(column), self.digits) for column in columns] +
                 [ratio(values[key].get(a), values[key].get(b)) for _, a, b in self.ratios] for key in keys]
        return markdown([self.title, *map(str, columns), *(head for head, _, _ in self.ratios)], lines)


def scaled(value, unit):
    return None if value is None else value / unit


def ratio(a, b):
    return f"{a / b:.2f}x" if a and b else "-"


PAGING = ["native", "shm", "shm pages", "tcp", "ucx", SWAP]
SECTIONS = [
    ("all", "Programs, best to worst",
     "Throughput in percent of native with half of the memory near, two threads: `far` as it is, `pages` without huge pages, `hinted` with "
     "the program's own hints, `ideal` if a fetch cost the link's latency and nothing else. [bench/apps](../bench/apps/README.md) describes "
     "the programs. Plots: [all shares](plots/all.svg), [over time](plots/all_timelines.svg), [latency by load](plots/all_latency.svg).",
     [Pivot("50 % near", ["app"], "configuration", "of_native", {"near": 50}, columns=["ideal", "far", "pages", "hinted", SWAP],
            ratios=[("far / zram", "far", SWAP)], digits=0, sort="far")]),
    ("paging", "Paging",
     "One word on each page, a quarter of the data near, one thread; us per access. [Plot](plots/paging.svg).",
     [Pivot("us per access", ["workload"], "configuration", "us", {"threads": 1}, columns=PAGING, ratios=[("zram / shm", SWAP, "shm")]),
      Table("random read that misses, us", ["configuration"],
            [("median", "median_us", 2, 1), ("p99", "p99_us", 2, 1), ("p99.9", "p999_us", 2, 1), ("the transport's part", "round_trip_us", 2, 1)],
            {"workload": "random read that misses", "configuration": ["shm", "tcp", SWAP]})]),
    ("redis", "redis-server",
     "SET and GET of 512 bytes, 16 in flight, a quarter of the heap near.",
     [Pivot("thousand operations/s", ["test"], "configuration", "ops_per_s", None, 1, 1000, [("shm / zram", "shm", SWAP)])]),
    ("file", "Far memory in a file",
     "The accesses of *Paging* in a file (`file:`), encrypted, on kernel swap there, and in a mapped file; then programs.",
     [Pivot("us per access", ["workload"], "configuration", "us", {"threads": 1}, 2, 1, [("swap / file", "kernel swap", "far file")]),
      Pivot("programs", ["program", "unit"], "configuration", "value")]),
    ("fibers", "Fibers",
     "Random reads of far pages by so many fibers on one worker, or threads. [Plot](plots/fibers.svg).",
     [Pivot("thousand reads/s", ["configuration"], "count", "reads_per_s", {"count": [1, 4, 16, 64]}, 1, 1000)]),
    ("objects", "Objects",
     "Lines of 64 bytes as far objects, as paged arrays, and on kernel swap, 64 fibers. [Plots](plots/objects.svg).",
     [Table("near", ["case"], [("ns", "ns", 2, 1), ("instructions", "instructions", 0, 1)], {"suite": "near"}),
      Pivot("thousand random reads/s", ["configuration"], "transport", "reads_per_s", {"suite": "fibers", "fibers": 64}, 1, 1000),
      Pivot("thousand accesses/s, tcp", ["configuration"], "workload", "accesses_per_s", {"suite": "paths", "transport": "tcp"}, 0, 1000)]),
    ("writeback", "Write-back by lines",
     "Goodput of changed bytes, MB/s, when pages leave of which some neighbouring lines were changed. [Plot](plots/writeback.svg).",
     [Pivot("link, changed lines", ["link", "lines"], "mode", "goodput_mb_s", {"pattern": "contiguous", "lines": [1, 8, 64], "link": "shm, 10 Gbit/s"}, 0,
            ratios=[("line / page", "line", "page")])]),
    ("replicas", "Replicas",
     "A second copy of every page.",
     [Pivot("us per access", ["transport", "workload"], "servers", "us", {"threads": 1, "workload": ["random read", "random write"]}, 2, 1,
            [("times", "two replicas", "one server")])]),
    ("reads", "Requests over tcp",
     "Without a pager: us for each access, and the processor time of both ends.",
     [Table("kind, in flight", ["kind", "in_flight"],
            [("elapsed", "us", 2, 1), ("client", "client_us", 2, 1), ("server", "server_us", 2, 1)], {"in_flight": [1, 16]})]),
    ("offload", "Functions on the memory server",
     "ms of queries over tcp, a tenth near: natively, on far memory, on the server, and where it is expected to be faster.",
     [Table("query", ["query"], [("native", "native", 2, 1), ("far", "local", 2, 1), ("server", "server", 2, 1),
                                 ("automatic", "automatic", 2, 1)], {"transport": "tcp"})]),
    ("policies", "Policies",
     "Simulated hit rates, %, half of the pages near. [Curves](plots/policies.svg).",
     [Pivot("trace", ["trace"], "policy", "hits", {"near": 50}, 1, columns=["2q", "lru", "fifo", "exact LRU", "optimum"])]),
]


ELSEWHERE = ["hints", "scaling"]  # benchmarks that other pages show; their plots are made, too


def measure(build, file):
    names = [section[0] for section in SECTIONS] + ELSEWHERE
    plots = ROOT / "docs/plots"
    command = [build / "bin/farside", "bench", *names, "--quick", "--json", file, "--plots", plots]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


def conditions(documents):
    first, last = documents[0]["machine"], documents[-1]["machine"]
    load = float(first["load_average"].split()[0])
    repetitions = distinct(document["settings"].get("repetitions", 1) for document in documents)
    count = " or ".join(map(str, sorted(repetitions)))
    busy = " **The machine was also busy with other work: times and ratios are not those of a quiet one.**" if load > 1 else ""
    return (f"Last run: {last['date'][:10]}, commit {last['commit']}, {first['processor']}, {first['cores']} cores, "
            f"{first['memory_bytes'] / 2**30:.1f} GiB, Linux {first['kernel']}, load {load:.1f} at the start; {count} repetitions.{busy}")


def settings_of(document):
    shown = {name: value for name, value in document["settings"].items() if name in ("size", "local", "repetitions", "accesses")}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def wrapped(text):
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def section(documents, name, title, text, tables):
    document = documents[name]
    lines = [f"## {title}", "", wrapped(f"`farside bench {name} --quick` ({settings_of(document)}). {text}"), ""]
    for table in tables:
        lines += [table.text(document["rows"]), ""]
    reasons = Counter(re.sub(r" in /\S+", "", why) for why in document["skipped"].values())
    skipped = "; ".join(f"{count} measurement{'s' * (count > 1)}: {why}" for why, count in reasons.most_common(2))
    return "\n".join(lines + ([wrapped(f"Not run: {skipped}."), ""] if skipped else []))


def page(documents):
    by_name = {document["benchmark"]: document for document in documents}
    text = HEAD.format(conditions=wrapped(conditions(documents))) + "\n"
    return text + "\n".join(section(by_name, *row) for row in SECTIONS if row[0] in by_name).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description="Makes docs/benchmarks.md and its plots.")
    parser.add_argument("build", type=Path, help="a release build")
    parser.add_argument("--json", type=Path, help="the results")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/benchmarks.md")
    arguments = parser.parse_args()
    file = arguments.json or arguments.build / "benchmarks.json"
    if not file.exists() or not file.stat().st_size:
        measure(arguments.build, file)
    arguments.output.write_text(page(json.loads(file.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
