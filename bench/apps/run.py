#!/usr/bin/env python3
"""Measures the applications: native, over far memory with and without hints, and on kernel swap, by share of near memory.

    bench/apps/run.py --out results                  # results/apps.json and .txt, a plot for each application
    bench/apps/run.py --apps psrs_sort --shares 25,50 --size 64M --repeat 1

Every figure is written to the JSON file at once; started again with the same settings, it goes on where it was stopped.
Ways take turns, so that drift of the machine hits all alike. Kernel swap on zram needs root; everything that is set up for
it is undone. Ends with status 1 if a program fails or computes something else than natively.
"""
import argparse
import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
import zram_swap  # noqa: E402

MIB = 1 << 20
WAYS = ("native", "unhinted", "hinted", "zram")
HINTED_POLICY = {"psrs_sort": "second-chance", "analytics": "second-chance", "web_frontend": "priority",
                 "kv_server": "second-chance"}  # in the order of the tables
MORE_SOURCES = {"kv_server": ["kv_store.h"]}
PROGRAM_ITSELF = 8 * MIB   # code, stacks and tables, beside the data; --local counts the heap alone
TRACED_SHARE = 25          # percent near while farside trace looks which faults the hinted lines cover
TIMEOUT = 300              # seconds for one run; kernel swap may take a hundred times as long as native


@dataclass(frozen=True)
class Task:
    app: str
    way: str
    share: int        # percent of the data that may be near
    repetition: int

    @property
    def key(self):
        return f"{self.app}/{self.way}/{self.share}/{self.repetition}"


def parse_size(text):
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text} is no size; write 256M or 1G")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="build directory")
    parser.add_argument("--out", type=Path, default=Path("apps-results"), help="directory for results")
    parser.add_argument("--apps", type=lambda t: t.split(","), default=list(HINTED_POLICY))
    parser.add_argument("--ways", type=lambda t: t.split(","), default=list(WAYS))
    parser.add_argument("--shares", type=lambda t: [int(s) for s in t.split(",")], default=[10, 25, 50, 75, 100])
    parser.add_argument("--size", type=parse_size, default=256 * MIB, help="data of each application")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3, help="repetitions, of which the median is told")
    parser.add_argument("--far", help="memory server; none: an embedded one")
    parser.add_argument("--fresh", action="store_true", help="measure again what the JSON file has already")
    arguments = parser.parse_args()
    for name, given, known in ("--apps", arguments.apps, HINTED_POLICY), ("--ways", arguments.ways, WAYS):
        if unknown := set(given) - set(known):
            parser.error(f"{name}: {', '.join(sorted(unknown))} is not known; use {', '.join(known)}")
    if not all(1 <= share <= 100 for share in arguments.shares):
        parser.error("--shares: give percents from 1 to 100")
    return arguments


def settings_of(a):
    return {"size": a.size, "seed": a.seed, "threads": a.threads, "far": a.far or "embedded"}


class Results:
    """The JSON file: settings, and a record for each task that was done."""

    def __init__(self, file, settings, fresh):
        self.file = file
        self.document = {"settings": settings, "runs": {}, "traces": {}}
        if not fresh and file.exists():
            old = json.loads(file.read_text())
            if old["settings"] != settings:
                sys.exit(f"{file} was measured with other settings; give --fresh or another --out")
            self.document = old

    def has(self, task):
        return "ops_per_s" in self.document["runs"].get(task.key, {})

    def put(self, task, record):
        self.document["runs"][task.key] = record
        self._write()

    def put_trace(self, app, record):
        self.document["traces"][app] = record
        self._write()

    def _write(self):
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.document, indent=1) + "\n")
        part.replace(self.file)

    def records(self, app, way, share):
        start = f"{app}/{way}/{share}/"
        return [r for key, r in self.document["runs"].items() if key.startswith(start)]

    def median(self, app, way, share):
        values = [r["ops_per_s"] for r in self.records(app, way, share) if "ops_per_s" in r]
        return statistics.median(values) if values else None


class Runner:
    def __init__(self, arguments):
        self.a = arguments
        self.farside = arguments.build / "src/cli/farside"

    def program(self, app, hints):
        return [self.a.build / "bench/apps" / app, "--size", str(self.a.size), "--seed", str(self.a.seed),
                "--threads", str(self.a.threads), "--hints", "on" if hints else "off"]

    def run(self, task):
        try:
            if task.way == "native":
                return self.measure(self.program(task.app, False))
            return self.on_swap(task) if task.way == "zram" else self.far(task)
        except subprocess.TimeoutExpired:
            return {"failed": f"took longer than {TIMEOUT} s"}

    def measure(self, command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        if done.returncode != 0:
            return {"failed": f"status {done.returncode}: {done.stderr.strip()[-300:]}"}
        return json.loads(done.stdout)

    def far(self, task):
        policy = HINTED_POLICY[task.app] if task.way == "hinted" else "second-chance"
        with tempfile.TemporaryDirectory() as directory:
            stats = Path(directory) / "stats.json"
            command = [self.farside, "run", "--quiet", "--local", f"{task.share}%", "--policy", policy, f"--stats=json:{stats}"]
            command += ["--far", self.a.far] if self.a.far else []
            record = self.measure([*command, "--", *self.program(task.app, task.way == "hinted")])
            if stats.exists():
                record["stats"] = json.loads(stats.read_text())["totals"]
            return record | {"policy": policy}

    def on_swap(self, task):
        if reason := zram_swap.why_unavailable():
            return {"skipped": reason}
        with contextlib.ExitStack() as stack:
            stack.enter_context(zram_swap.ZramSwap(2 * self.a.size))
            limit = stack.enter_context(zram_swap.MemoryLimit(self.a.size * task.share // 100 + PROGRAM_ITSELF))
            record = self.measure([*limit.launcher, *self.program(task.app, False)])
            # Kernel swap that makes too little progress ends in the out-of-memory killer, whatever the program.
            return {"skipped": "killed by the kernel in its memory limit"} if "status -9" in record.get("failed", "") else record

    def trace(self, app):
        """What farside trace says of the application without hints: how many of its faults stand at hinted lines."""
        with tempfile.TemporaryDirectory() as directory:
            command = [self.farside, "trace", "--quiet", "--local", f"{TRACED_SHARE}%", "--out", directory]
            command += ["--far", self.a.far] if self.a.far else []
            done = subprocess.run([*command, "--", *self.program(app, False)], capture_output=True, text=True,
                                  timeout=TIMEOUT, check=False)
            if done.returncode != 0:
                return {"failed": f"farside trace: status {done.returncode}: {done.stderr.strip()[-300:]}"}
            found = json.loads((Path(directory) / "trace.json").read_text())
        places = [(p, sum(count for kind, count in p["kinds"].items() if kind != "allocation")) for p in found["places"]]
        faults = sum(count for _, count in places)
        hinted = sum(count for place, count in places if place["hinted_at"])
        return {"faults": faults, "at_hinted_lines": hinted, "coverage": hinted / faults if faults else 0,
                "places_of_95_percent": found["coverage_places"]}


def tasks_of(a):
    for repetition in range(a.repeat):
        for app in a.apps:
            for share in a.shares:
                for way in a.ways:
                    if way != "native":
                        yield Task(app, way, share, repetition)
            if "native" in a.ways:
                yield Task(app, "native", 100, repetition)


def measure_all(a, results):
    runner = Runner(a)
    tasks = [t for t in tasks_of(a) if not results.has(t)]
    started = time.monotonic()
    for done, task in enumerate(tasks):
        left = (time.monotonic() - started) / done * (len(tasks) - done) if done else 0
        print(f"[{done + 1}/{len(tasks)}] {task.key}" + (f"  about {left:.0f} s left" if done else ""), file=sys.stderr, flush=True)
        record = runner.run(task)
        results.put(task, record)
        if problem := record.get("failed") or record.get("skipped"):
            print(f"    {problem}", file=sys.stderr)
    for app in a.apps if "unhinted" in a.ways else []:
        if "coverage" not in results.document["traces"].get(app, {}):
            print(f"[trace] {app}", file=sys.stderr, flush=True)
            results.put_trace(app, runner.trace(app))


def hinted_lines(app):
    """Lines of the source that hint, as people count them: calls, without the wrapper of app.h."""
    sources = [f"{app}.cc", *MORE_SOURCES.get(app, [])]
    return sum(len(re.findall(r"(?<![\w_])hint\(", (ROOT / "bench/apps" / name).read_text())) for name in sources)


def problems_of(a, results):
    for app in a.apps:
        sums = {}
        for key, record in results.document["runs"].items():
            if not key.startswith(app + "/"):
                continue
            if "failed" in record:
                yield f"{key}: {record['failed']}"
            if "checksum" in record:
                sums.setdefault(record["checksum"], key)
        if "failed" in (trace := results.document["traces"].get(app, {})):
            yield f"{app}: {trace['failed']}"
        if len(sums) > 1:
            yield f"{app}: results differ: {', '.join(f'{key} {value}' for value, key in sums.items())}"


def table(a, results):
    lines = []
    for app in a.apps:
        native = results.median(app, "native", 100)
        trace = results.document["traces"].get(app, {})
        covered = f", at {100 * trace['coverage']:.0f} % of the faults" if "coverage" in trace else ""
        lines.append(f"{app}, {hinted_lines(app)} hinted lines{covered}; operations/s" + (f"; native {native:,.0f}" if native else ""))
        lines.append(f"  {'near':>6}" + "".join(f"{way:>22}" for way in a.ways if way != "native") + f"{'hinted / unhinted':>20}")
        for share in a.shares:
            cells = []
            for way in (w for w in a.ways if w != "native"):
                value = results.median(app, way, share)
                of_native = f" ({100 * value / native:.0f}%)" if value and native else ""
                cells.append(f"{f'{value:,.0f}{of_native}' if value else '-':>22}")
            hinted, plain = results.median(app, "hinted", share), results.median(app, "unhinted", share)
            cells.append(f"{f'{hinted / plain:.2f}x' if hinted and plain else '-':>20}")
            lines.append(f"  {share:>5}%" + "".join(cells))
        lines.append("")
    return "\n".join(lines)


def plot(a, results, app):
    """Operations/s in percent of native, by share of near memory, as SVG."""
    width, height, left, top, bottom = 520, 340, 50, 70, 40
    colours = {"unhinted": "#4fa3c7", "hinted": "#0b6e99", "zram": "#d1495b"}
    native = results.median(app, "native", 100)
    if not native:
        return None

    def text(x, y, content, anchor="middle", size=12):
        return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="#24292f">{content}</text>'

    curves = {w: [(s, 100 * v / native) for s in a.shares if (v := results.median(app, w, s))] for w in colours if w in a.ways}
    most = max([100] + [v for points in curves.values() for _, v in points])
    x = lambda share: left + (width - left - 20) * share / 100  # noqa: E731
    y = lambda value: height - bottom - (height - top - bottom) * value / most  # noqa: E731
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" role="img">',
             f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
             text(left, 24, f"{app}: operations/s, % of native", "start", 15),
             text((left + width) / 2, height - 6, "% of the data near")]
    for step in range(5):
        value = most * step / 4
        parts.append(f'<line x1="{left}" y1="{y(value):.1f}" x2="{width - 20}" y2="{y(value):.1f}" stroke="#e3e6e8"/>')
        parts.append(text(left - 6, y(value) + 4, f"{value:.0f}", "end", 11))
    for share in a.shares:
        parts.append(text(x(share), height - bottom + 16, share, size=11))
    for i, (way, points) in enumerate(curves.items()):
        line = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in points)
        parts.append(f'<polyline fill="none" stroke-width="2" stroke="{colours[way]}" points="{line}"/>')
        parts.append(f'<rect x="{left + 110 * i}" y="40" width="12" height="12" fill="{colours[way]}"/>')
        parts.append(text(left + 110 * i + 18, 50.5, way, "start"))
    return "\n".join([*parts, "</svg>\n"])


def main():
    a = parse_arguments()
    a.out.mkdir(parents=True, exist_ok=True)
    missing = [app for app in a.apps if not (a.build / "bench/apps" / app).exists()]
    if missing:
        sys.exit(f"{', '.join(missing)} is not built; run scripts/bootstrap bench, then make")
    results = Results(a.out / "apps.json", settings_of(a), a.fresh)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that swap and limits are undone
    try:
        measure_all(a, results)
    except KeyboardInterrupt:
        print("interrupted; start again with the same options to go on", file=sys.stderr)
    (a.out / "apps.txt").write_text(table(a, results) + "\n")
    print(table(a, results))
    for app in a.apps:
        if svg := plot(a, results, app):
            (a.out / f"{app}.svg").write_text(svg)
    problems = list(problems_of(a, results))
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
