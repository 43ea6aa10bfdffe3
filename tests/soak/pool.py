#!/usr/bin/env python3
"""Programs on a pool whose servers drain, restart, join and die, two of three copies at a time; every byte is verified.

  pool.py --seconds 120 [--seed N]

Needs no root. BUILD_FOLDER names the build. Exit status: 0, or 1 where something was wrong.
"""
import argparse
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "system"))
from support import FARSIDE, PROGRAMS, end_group, environment, tail  # noqa: E402

ZONES = "aabbc"
COMPLETE_SECONDS = 60  # in which all copies are made, and a server is left
KINDS = (["threads"], ["threads", "fork"])


def free_place():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Pool:
    def __init__(self, folder):
        self.folder, self.counts, self.processes = folder, {}, []
        self.token, self.tokens = folder / "token", folder / "tokens"
        self.token.write_text("known-to-clients-of-the-soak\n")
        self.tokens.write_text(f"client all {self.token.read_text()}server all-servers known-to-servers-of-the-soak\n")
        self.token.chmod(0o600)
        self.tokens.chmod(0o600)
        self.controller = free_place()
        self.start("controller", "serve", "--controller", "--listen", self.controller, "--tokens", self.tokens)
        self.servers = [self.join(zone, free_place()) for zone in ZONES]
        wait_for(lambda: len(self.status()["servers"]) == len(ZONES), "servers in the list")

    def start(self, name, *words):
        with open(self.folder / name, "wb") as log:
            process = subprocess.Popen([FARSIDE, *map(str, words)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       env=environment(), cwd=self.folder, start_new_session=True)
        process.log = self.folder / name
        self.processes.append(process)
        time.sleep(0.2)
        return process

    def join(self, zone, place):
        server = self.start(f"server-{len(self.processes)}", "serve", "--memory", "512M", "--listen", place, "--pool",
                            self.controller, "--tokens", self.tokens, "--zone", zone)
        server.place = place
        return server

    def status(self):
        command = [FARSIDE, "pool", "status", "--controller", self.controller, "--token-file", str(self.token), "--json"]
        result = subprocess.run(command, stdout=subprocess.PIPE, env=environment(), check=False)
        return json.loads(result.stdout) if result.returncode == 0 else {"servers": [], "copies": {"clients": -1}}

    def verify(self, seconds, kind):
        return self.start(f"program-{len(self.processes)}", "run", "--quiet", "--local", "12M", "--far",
                          f"pool://{self.controller}", "--replicas", "3", "--token-file", self.token, "--",
                          PROGRAMS / "verifier", seconds, 48, random.randrange(1 << 30), *kind)

    def die(self, number):
        """Another server takes its place, under another address."""
        self.servers[number].kill()
        self.servers[number].wait()
        self.servers[number] = self.join(ZONES[number], free_place())
        self.counts["deaths"] = self.counts.get("deaths", 0) + 1

    def drain(self, number):
        """It starts again under its address when programs have left it."""
        self.servers[number].terminate()
        self.servers[number].wait(COMPLETE_SECONDS)
        if self.servers[number].returncode != 0:
            raise AssertionError(f"a drained server ended with {self.servers[number].returncode}")
        self.servers[number] = self.join(ZONES[number], self.servers[number].place)
        self.counts["drains"] = self.counts.get("drains", 0) + 1

    def disturb(self):
        """Two deaths, the second one mostly during the repair, while a third server drains; or drains alone."""
        first, second, third = random.sample(range(len(ZONES)), 3)
        if random.random() < 0.5:
            self.servers[third].terminate()
            self.die(first)
            time.sleep(random.uniform(0, 0.5))
            self.die(second)
        self.drain(third)
        time.sleep(2)  # losses are found and reported
        wait_for(lambda: self.status()["copies"]["clients"] == 0, "all copies")


def wait_for(holds, what):
    ends = time.monotonic() + COMPLETE_SECONDS
    while not holds():
        if time.monotonic() > ends:
            raise AssertionError(f"no {what} within {COMPLETE_SECONDS} s")
        time.sleep(0.2)


def soak(folder, seconds):
    pool, programs, begin = Pool(folder), [], time.monotonic()
    try:
        programs = [pool.verify(seconds, kind) for kind in KINDS]
        while time.monotonic() < begin + seconds - 1:
            pool.disturb()
        for program in programs:
            program.wait(COMPLETE_SECONDS)
            if program.returncode != 0 or not program.log.read_bytes().endswith(b"verified\n"):
                raise AssertionError(f"status {program.returncode}: {tail(program.log.read_bytes())}")
    finally:
        for process in pool.processes:
            end_group(process)
            process.wait()
    print(f"{time.monotonic() - begin:.0f} s: {pool.counts}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="farside-soak-") as folder:
        try:
            soak(Path(folder), arguments.seconds)
        except (AssertionError, subprocess.TimeoutExpired) as problem:
            sys.exit(f"FAILED: {problem}")


if __name__ == "__main__":
    main()
