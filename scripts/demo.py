#!/usr/bin/env python3


"""A demonstration on real data: Debian's redis-server, unmodified, with a quarter of its memory near.

The text and header files of this machine are stored a few lines at a time, each passage under its file and first line.
Every key is read back and compared with the source, and DEBUG DIGEST is compared with a native run of the same load.
The exit status is 1 if a value or a digest differs or near memory exceeded its limit. All temporary files are removed.
"""
import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path

sys.dont_write_bytecode = True
import real_text  # noqa: E402
import zram_swap  # noqa: E402
from redis_server import RedisServer, WrongReply, encode  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
MB = 1_000_000
MIB = 1 << 20
PASSAGE_BYTES = 512     # a passage is complete when it has reached these
IN_FLIGHT = 64  # pipelined requests
LATENCY_SAMPLES = 20_000
SWAP_SECONDS = 90  # limit for filling and for reading on kernel swap, which may take many times as long
ALLOWANCE = 16 * MIB  # beyond --local and the memory of an idle redis-server; print_limits() explains it
MODES = ("native", "shm", "tcp", "zram")
TITLES = {"native": "native", "shm": "farside shm", "tcp": "farside tcp", "zram": "zram swap"}


@dataclass
class Outcome:
    mode: str
    fill_per_s: float = 0
    read_per_s: float = 0
    p99_us: float = 0
    peak_resident: int = 0
    far: int = 0
    digest: str = ""
    limit: int = 0  # of near memory; 0: none
    keys: int = 0  # stored keys; fewer than all if the time was limited
    skipped: str = ""  # reason, if it did not run
    problems: list = field(default_factory=list)


class Progress:
    """A bar on a terminal, otherwise one line per step."""
    WIDTH = 30

    def __init__(self):
        self.terminal = sys.stderr.isatty()
        self.label = ""
        self.drawn = -1

    def step(self, label):
        self.end()
        self.label, self.drawn = label, -1
        if not self.terminal:
            print(label, file=sys.stderr, flush=True)

    def update(self, done, total):
        filled = self.WIDTH * done // max(1, total)
        if self.terminal and filled != self.drawn:
            self.drawn = filled
            print(f"\r\033[K[{'#' * filled:{self.WIDTH}}] {self.label}", end="", file=sys.stderr, flush=True)

    def end(self):
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


class Data:
    """The passages to store: file:line -> some lines from there on."""

    def __init__(self, max_bytes):
        self.files = real_text.collect(max_bytes)
        self.bytes = sum(len(data) for _, data in self.files)
        self.count = sum(1 for _ in self.passages())

    def passages(self):
        for path, data in self.files:
            prefix = path.encode() + b":"
            for number, passage in real_text.passages_of(data, PASSAGE_BYTES):
                yield prefix + b"%d" % number, passage

    def fill_pairs(self):
        for key, text in self.passages():
            yield b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(text), text), b"+OK\r\n"

    def read_pairs(self):
        for key, text in self.passages():
            yield b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(key), key), b"$%d\r\n%b\r\n" % (len(text), text)

    def sample(self, count, keys):
        """`count` pairs spread over the first `keys` keys, in a random order that is always the same."""
        step = max(1, keys // count)
        pairs = [(encode("GET", key), b"$%d\r\n%b\r\n" % (len(text), text))
                for key, text in islice(self.passages(), 0, keys, step)]
        random.Random(1).shuffle(pairs)
        return pairs


def batches(pairs, size):
    """Joins pairs of (request, reply) into larger ones. Yields them with the number of pairs in each."""
    pairs = iter(pairs)
    while batch := list(islice(pairs, size)):
        requests, replies = zip(*batch)
        yield b"".join(requests), b"".join(replies), len(batch)


class Load:
    """The load of every mode: fill, read back and compare, latency, digest. With a time limit, filling and reading may
    stop early, and there is no digest unless every key was stored."""

    def __init__(self, data, progress, in_flight):
        self.data, self.progress = data, progress
        self.batch = max(1, in_flight // 2)  # two batches are in flight at a time

    def run(self, server, outcome, seconds=None):
        client = server.client()
        title = TITLES[outcome.mode]
        outcome.keys, outcome.fill_per_s = self._timed(client, f"{title}: fill", self.data.fill_pairs(), seconds)
        if client.command("DBSIZE") != outcome.keys:
            outcome.problems.append("the number of keys is wrong")
        reads = islice(self.data.read_pairs(), outcome.keys)
        _, outcome.read_per_s = self._timed(client, f"{title}: read and compare", reads, seconds)
        outcome.p99_us = self._latency(client, f"{title}: latency", outcome.keys)
        if outcome.keys == self.data.count:
            self.progress.step(f"{title}: digest")
            outcome.digest = client.digest()
        client.close()

    def _timed(self, client, label, pairs, seconds):
        """Returns the number of commands and the commands per second."""
        self.progress.step(label)
        begin = time.monotonic()
        done = 0

        def shown():
            nonlocal done
            for request, reply, count in batches(pairs, self.batch):
                if seconds and time.monotonic() - begin > seconds:
                    return
                self.progress.update(done, self.data.count)
                done += count
                yield request, reply

        client.pipeline(shown())
        return done, done / (time.monotonic() - begin)

    def _latency(self, client, label, keys):
        self.progress.step(label)
        times = []
        for pair in self.data.sample(LATENCY_SAMPLES, keys):
            begin = time.perf_counter()
            client.pipeline([pair])
            times.append(time.perf_counter() - begin)
        return sorted(times)[len(times) * 99 // 100] * 1e6


class Demo:
    def __init__(self, options, data, progress):
        self.options, self.data = options, data
        self.load = Load(data, progress, options.in_flight)
        self.idle_resident = 0    # an empty native redis-server
        self.native = None        # outcome of the native run

    def run(self, mode):
        outcome = Outcome(mode)
        with tempfile.TemporaryDirectory(prefix="farside-demo-") as folder:
            try:
                getattr(self, "_" + mode)(folder, outcome)
            except (WrongReply, RuntimeError, OSError, subprocess.SubprocessError) as problem:
                outcome.problems.append(f"{type(problem).__name__}: {problem}")
            if outcome.problems:
                show_log(folder)
        self._judge(outcome)
        return outcome

    def _judge(self, outcome):
        if outcome.mode == "native":
            self.native = outcome
        elif outcome.digest and outcome.digest != self.native.digest:
            outcome.problems.append(f"digest {outcome.digest} differs from native {self.native.digest}")
        if outcome.limit and outcome.peak_resident > outcome.limit + self.idle_resident + ALLOWANCE:
            outcome.problems.append(f"{size(outcome.peak_resident)} were resident: more than --local {size(outcome.limit)}"
                                    f" + idle {size(self.idle_resident)} + {size(ALLOWANCE)}")

    def _serve(self, folder, outcome, launcher=(), seconds=None):
        """Starts a server by the launcher and runs the load. Returns the peaks of the server's memory."""
        with open(os.path.join(folder, "log"), "ab") as log:
            with RedisServer(folder, launcher, log=log) as server:
                if outcome.mode == "native":
                    self.idle_resident = server.memory.now["RssAnon"]
                self.load.run(server, outcome, seconds)
                status = server.shut_down()
                if status != 0:
                    outcome.problems.append(f"the server ended with status {status}")
                outcome.peak_resident = server.memory.peaks["RssAnon"]
                return server.memory.peaks

    def _native(self, folder, outcome):
        self._serve(folder, outcome)

    def _shm(self, folder, outcome):
        self._under_farside(folder, outcome, ["--far-memory", str(self._far_memory())])

    def _tcp(self, folder, outcome):
        with FarsideServer(self.options.farside, folder, self._far_memory()) as server:
            self._under_farside(folder, outcome, ["--far", server.address, "--token-file", server.token_file])

    def _far_memory(self):
        return 2 * self.native.peak_resident + 256 * MIB

    def _under_farside(self, folder, outcome, far):
        stats = os.path.join(folder, "stats.json")
        launcher = [self.options.farside, "run", "--local", self.options.local, *far, f"--stats=json:{stats}", "--"]
        self._serve(folder, outcome, launcher)
        with open(stats, encoding="utf8") as file:
            report = json.load(file)
        main = max(report["processes"], key=lambda process: process["heap_peak_bytes"])
        outcome.limit, outcome.far = main["local_bytes"], main["far_peak_bytes"]
        if report["totals"]["evictions"] == 0:
            outcome.problems.append("nothing was evicted: far memory was not used")

    def _zram(self, folder, outcome):
        outcome.skipped = zram_swap.why_unavailable() or ""
        if outcome.skipped:
            return
        peak = self.native.peak_resident
        with zram_swap.ZramSwap(2 * peak), zram_swap.MemoryLimit(peak // 4) as limit:
            outcome.far = self._serve(folder, outcome, limit.launcher, SWAP_SECONDS)["VmSwap"]


class FarsideServer:
    """`farside serve` on a free port of the loopback address."""
    START_SECONDS = 10

    def __init__(self, farside, folder, memory):
        self.token_file = os.path.join(folder, "token")
        with open(self.token_file, "w", encoding="utf8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(os.urandom(16).hex() + "\n")
        self.farside, self.memory, self.log_path = farside, memory, os.path.join(folder, "log")
        self.process = self.address = None

    def __enter__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{probe.getsockname()[1]}"
        self.address = f"tcp://{place}"
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([self.farside, "serve", "--memory", str(self.memory), "--listen", place,
                                             "--token-file", self.token_file], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True)
        try:
            self._wait_until_ready(place)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_until_ready(self, place):
        host, _, port = place.partition(":")
        deadline = time.monotonic() + self.START_SECONDS
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"farside serve ended with status {self.process.returncode} during startup")
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection((host, int(port)), timeout=1):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"farside serve did not listen within {self.START_SECONDS} s")
            time.sleep(0.01)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def size(number):
    return f"{number / MIB:.0f}M"


def show_log(folder):
    try:
        with open(os.path.join(folder, "log"), encoding="utf8", errors="replace") as file:
            for line in file.readlines()[-20:]:
                print("  log: " + line.rstrip(), file=sys.stderr)
    except FileNotFoundError:
        pass


def row_of(outcome, native):
    if outcome.skipped:
        return [TITLES[outcome.mode], "not run: " + outcome.skipped]
    same = "-" if not outcome.digest else "native's" if outcome.digest == native.digest else "DIFFERS"
    return [TITLES[outcome.mode], f"{outcome.fill_per_s:,.0f}", f"{outcome.read_per_s:,.0f}", f"{outcome.p99_us:,.0f}",
            size(outcome.peak_resident), size(outcome.far), same]


def print_table(outcomes):
    rows = [["mode", "fill ops/s", "read ops/s", "p99 us", "peak resident", "far", "digest"]]
    rows += [row_of(outcome, outcomes[0]) for outcome in outcomes]
    widths = [max(len(row[column]) for row in rows if len(row) > 2) for column in range(len(rows[0]))]
    for row in rows:
        if len(row) == 2:
            print(f"{row[0]:{widths[0]}}  {row[1]}")
        else:
            print(f"{row[0]:{widths[0]}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:])))


def print_limits(demo, outcomes):
    print(f"\nfill, read: {demo.options.in_flight} requests in flight. p99: {LATENCY_SAMPLES:,} single GETs in random "
          "order, one in flight.")
    print("peak resident: anonymous memory of the redis-server process, sampled every 10 ms. far: Farside's peak of far "
          "bytes; kernel: swap.")
    for outcome in outcomes:
        if outcome.mode == "zram" and 0 < outcome.keys < demo.data.count:
            print(f"{TITLES[outcome.mode]}: stopped after {SWAP_SECONDS} s of filling: {outcome.keys:,} of "
                  f"{demo.data.count:,} keys; all would be slower")
        if outcome.limit:
            print(f"{TITLES[outcome.mode]}: {size(outcome.peak_resident)} resident; allowed {size(outcome.limit)} for the "
                  f"heap (--local {demo.options.local}) + {size(demo.idle_resident)} that an idle redis-server holds + "
                  f"{size(ALLOWANCE)} for Farside's library, its threads' stacks and jemalloc's metadata")


def verdict(outcomes):
    problems = [f"{TITLES[outcome.mode]}: {problem}" for outcome in outcomes for problem in outcome.problems]
    for problem in problems:
        print("FAILED  " + problem)
    if not problems:
        compared = [TITLES[outcome.mode] for outcome in outcomes if outcome.digest]
        print(f"OK  every value read back equals its source; the digests are equal: {', '.join(compared)}")
    return 1 if problems else 0


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300, help="text to store (default: 300)")
    parser.add_argument("--local", default="25%", help="near memory, as for farside run (default: 25%%)")
    parser.add_argument("--modes", default=",".join(MODES), help=f"what to run in addition to native (default: {','.join(MODES)})")
    parser.add_argument("--in-flight", type=int, default=IN_FLIGHT, help=f"pipelined requests (default: {IN_FLIGHT})")
    parser.add_argument("--farside", default=str(ROOT / "build/release/bin/farside"), help="the program farside")
    parser.add_argument("--json", help="file for the results")
    options = parser.parse_args()
    unknown = set(options.modes.split(",")) - set(MODES)
    if unknown:
        parser.error(f"no such mode: {', '.join(unknown)}; there are {', '.join(MODES)}")
    return options


def end_in_order(*_):
    """Handles SIGTERM: exits so that everything is undone. A second SIGTERM must not interrupt that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main():
    options = parse_arguments()
    signal.signal(signal.SIGTERM, end_in_order)
    progress = Progress()
    progress.step("collecting text")
    data = Data(options.megabytes * MB)
    print(f"{data.bytes / MB:.0f} MB of text: {data.count:,} passages of {len(data.files):,} files", flush=True)
    if data.bytes < options.megabytes * MB * 0.99:
        print(f"this is all the text below {', '.join(real_text.ROOTS)} on this machine")
    demo = Demo(options, data, progress)
    modes = [mode for mode in MODES if mode == "native" or mode in options.modes.split(",")]
    outcomes = [demo.run(mode) for mode in modes]
    progress.end()
    print_table(outcomes)
    print_limits(demo, outcomes)
    if options.json:
        results = {"text_bytes": data.bytes, "keys": data.count, "local": options.local,
                   "outcomes": [asdict(outcome) for outcome in outcomes]}
        Path(options.json).write_text(json.dumps(results, indent=2) + "\n", encoding="utf8")
    return verdict(outcomes)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
