#!/usr/bin/env python3
"""Programs on servers of several kinds, while servers, networks and clients fail; every byte is verified.

  soak.py --seconds 120 [--seed N] [--keep]

Root: the servers are in network namespaces of their own, whose links the test cuts. BUILD_FOLDER names the build.
docs/internals/testing.md lists what happens. Exit status: 0, 1 where something was wrong, 77 without root or namespaces.
"""
import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "system"))
from support import FARSIDE, MIB, NOTHING_TESTED, PROGRAMS, environment, tail  # noqa: E402

from hostile import Hostile  # noqa: E402
from proxy import CorruptingProxy  # noqa: E402

VERIFIER = PROGRAMS / "verifier"
PATIENCE = 25  # seconds after which an unreachable server counts as lost; stalls and partitions of the test are shorter
OUTAGE = 8  # seconds at most: clients give all their connections up after a few
GRACE = 5  # of the servers: for how long they keep regions of broken connections
START_SECONDS = 20
KEEPALIVE = 20  # seconds after which a server detects that a client is gone whose reset the network lost
GROWTH = 48 * MIB  # what a server may keep resident beyond its first load: allocator, buffers, page tables
PROGRAM_SECONDS = 8
MAX_SHOWN = 40
HELD = ("farside_server_stored_bytes", "farside_server_regions", "farside_server_connections")


class Failures:
    """What went wrong, from all threads."""
    def __init__(self):
        self.lock, self.texts = threading.Lock(), []

    def add(self, text):
        with self.lock:
            self.texts.append(text)
        if len(self.texts) <= MAX_SHOWN:
            print(f"FAILED: {text}", flush=True)


class Host:
    """A network namespace with one link to this one."""
    count = 0

    def __init__(self, folder):
        Host.count += 1
        self.number, self.folder = Host.count, folder
        self.link, self.ip = f"soak{self.number}", f"10.213.{self.number}.2"
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        ip("link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self.holder.pid))
        ip("addr", "add", f"10.213.{self.number}.1/24", "dev", self.link)
        ip("link", "set", self.link, "up")
        self.ip_inside("addr", "add", f"{self.ip}/24", "dev", "eth0")
        self.ip_inside("link", "set", "lo", "up")
        self.connect()

    def enter(self):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]

    def ip_inside(self, *words):
        subprocess.run([*self.enter(), "ip", *words], check=True)

    def connect(self):
        self.ip_inside("link", "set", "eth0", "up")
        self.ip_inside("route", "add", "default", "via", f"10.213.{self.number}.1")

    def cut(self, seconds):
        """Clients' packets are lost, without an error that a sender would see."""
        self.ip_inside("link", "set", "eth0", "down")
        time.sleep(seconds)
        self.connect()


def ip(*words):
    subprocess.run(["ip", *words], check=True)


class Server:
    """`farside serve` on a host; it can be killed, stopped and started again."""
    def __init__(self, soak, host, port, *options):
        self.soak, self.host, self.options = soak, host, options
        self.lends = "--memory" in options
        self.place, self.metrics = f"{host.ip}:{port}", f"{host.ip}:{port + 1000}"
        self.address = f"tcp://{self.place}"
        self.log = soak.folder / f"server-{host.number}.log"
        self.start()

    def start(self):
        command = [*self.host.enter(), FARSIDE, "serve", "--listen", self.place, "--tokens", str(self.soak.tokens),
                   "--grace", str(GRACE), "--metrics", self.metrics, *self.options]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment())
        time.sleep(0.5)
        if self.process.poll() is not None:
            raise AssertionError(f"no server: {tail(self.log.read_bytes())}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stall(self, seconds):
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def resident(self):
        """Bytes of the server's own memory; what it lends is in memory files, which are counted apart."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        return 0

    def check_alive(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.address} ended with {self.process.returncode}: {tail(self.log.read_bytes())}")


class Soak:
    def __init__(self, folder, seconds, seed):
        self.folder, self.seed = folder, seed
        self.ends = time.monotonic() + seconds
        self.failures, self.counts = Failures(), {}
        self.token = folder / "token"
        self.tokens = folder / "tokens"
        self.token.write_text("known-to-clients-of-the-soak\n")
        self.tokens.write_text(f"client all {self.token.read_text()}server all-servers known-to-servers-of-the-soak\n")
        self.token.chmod(0o600)
        self.tokens.chmod(0o600)
        self.certificate, self.key = str(folder / "server.pem"), str(folder / "server.key")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                        "/CN=soak", "-addext", "subjectAltName=IP:10.213.2.2", "-keyout", self.key, "-out", self.certificate],
                       check=True, stderr=subprocess.DEVNULL)
        self.text = folder / "text"
        self.text.write_bytes(b"".join(b"%d line %d\n" % (i * 7919 % 100003, i) for i in range(150000)))
        self.sorted = subprocess.run(["sort", "-n", str(self.text)], stdout=subprocess.PIPE, check=True,
                                     env=environment()).stdout

    def over(self):
        return time.monotonic() > self.ends

    def sleep(self, seconds):
        time.sleep(max(0, min(seconds, self.ends - time.monotonic())))

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def run(self, name, far, program, local="12M", options=(), kill_after=None, resize=False, may_refuse=False):
        """One program. Returns its status and output. may_refuse: a server may be down or cut off when it starts."""
        token = ["--token-file", str(self.token)] if far else []
        command = [FARSIDE, "run", "--quiet", "--local", local, *(["--far", far] if far else []), *token, *options, "--",
                   *map(str, program)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=environment(), cwd=self.folder, start_new_session=True)
        if kill_after is not None:
            time.sleep(kill_after)
            os.killpg(process.pid, signal.SIGKILL)
        while resize and process.poll() is None and not self.over():
            subprocess.run([FARSIDE, "ctl", str(process.pid), "--local", random.choice(["8M", "16M", "32M"]), "--wait", "0"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(), check=False)
            time.sleep(0.3)
        try:
            output, errors = process.communicate(timeout=PROGRAM_SECONDS + 90)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            self.failures.add(f"{name}: no end within {PROGRAM_SECONDS + 90} s: {tail(errors)}")
            return None, output
        if may_refuse and process.returncode == 1 and not output:
            self.count(f"{name} refused")
            self.sleep(0.5)
            return 1, output
        self.count(name)
        if kill_after is None and process.returncode != 0:
            self.failures.add(f"{name}: status {process.returncode}: {tail(errors)}")
        return process.returncode, output

    def verify(self, name, far, *words, mib=48, **options):
        seed = random.randrange(1 << 30)
        status, output = self.run(name, far, [VERIFIER, PROGRAM_SECONDS // 2, mib, seed, *words], **options)
        if status == 0 and output != b"verified\n":
            self.failures.add(f"{name}: seed {seed}: {output!r}")

    def sort(self, name, far, **options):
        status, output = self.run(name, far, ["sort", "-n", self.text], **options)
        if status == 0 and output != self.sorted:
            self.failures.add(f"{name}: sorted wrongly")

    def lane(self, body):
        """A thread that repeats `body` until the time is over."""
        def repeat():
            while not self.over():
                try:
                    body()
                except Exception as problem:  # pylint: disable=broad-except
                    self.failures.add(f"{body.__name__}: {type(problem).__name__}: {problem}")
                    self.sleep(5)
        thread = threading.Thread(target=repeat)
        thread.start()
        return thread


def build(soak):
    """The hosts, the servers, and the lanes of programs and faults."""
    hosts = [Host(soak.folder) for _ in range(5)]
    steady = Server(soak, hosts[0], 7171, "--memory", "2G")
    spare, mortal = (Server(soak, host, 7172, "--memory", "2G") for host in hosts[1:3])
    small = Server(soak, hosts[3], 7174, "--memory", "96M", "--quota", "64M")
    controller = Server(soak, hosts[4], 7175, "--controller")
    pooled = [Server(soak, host, 7176, "--memory", "1G", "--pool", controller.place) for host in hosts[:2]]
    encrypted = Server(soak, hosts[1], 7177, "--memory", "1G", "--tls", f"cert={soak.certificate},key={soak.key}")
    proxy = CorruptingProxy((steady.host.ip, 7171), soak.seed)
    hostile = Hostile([(steady.host.ip, 7171), (encrypted.host.ip, 7177), (small.host.ip, 7174), (controller.host.ip, 7175)], (steady.host.ip, 8171),
                      soak.seed)
    servers = SimpleNamespace(steady=steady, spare=spare, mortal=mortal, small=small, controller=controller, encrypted=encrypted,
                              pooled=pooled)
    lanes = [*lanes_of_programs(soak, servers, proxy), *lanes_of_failures(soak, servers, hosts, hostile)]
    return hosts, [steady, encrypted, spare, mortal, small, *pooled, controller], lanes, proxy


def lanes_of_programs(soak, servers, proxy):
    pool = f"pool://{servers.controller.place}"
    two = f"{servers.spare.address},{servers.mortal.address}"
    kinds = [("fork", "threads"), ("threads",), ("fork",), ("fork", "user")]

    def one_server():
        soak.verify("one server", servers.steady.address, *random.choice(kinds))

    def corrupting_network():
        soak.verify("corrupting network", f"tcp://127.0.0.1:{proxy.port}", *random.choice(kinds[:3]))

    def two_replicas():
        soak.verify("two replicas", two, *random.choice(kinds[:3]), options=("--replicas", "2"), may_refuse=True)

    def server_over_tls():
        far = f"tls://{servers.encrypted.place}"
        soak.verify("TLS", far, *random.choice(kinds), options=("--tls", f"ca={soak.certificate}"))

    def pool_of_servers():
        soak.sort("pool", pool, options=("--replicas", "2"), may_refuse=True)

    def own_server():
        soak.verify("own server", None, *random.choice(kinds), resize=random.random() < 0.5)

    def full_server():
        status, output = soak.run("full server", servers.small.address, [PROGRAMS / "hog"])
        if status == 0 and output != b"out of memory, contents intact\n":
            soak.failures.add(f"full server: {output!r}")

    return [one_server, server_over_tls, corrupting_network, two_replicas, pool_of_servers, own_server, full_server]


def lanes_of_failures(soak, servers, hosts, hostile):
    def killed_clients():
        soak.run("killed", servers.steady.address, [VERIFIER, 60, 48, 1, "fork"], kill_after=random.uniform(0.5, 3))

    def hostile_clients():
        hostile.attack(random.uniform(1, 3))
        soak.count("attacks")

    def failures_of_the_network():
        soak.sleep(random.uniform(3, 8))
        random.choice(hosts).cut(random.uniform(0.5, OUTAGE))
        soak.count("partitions")

    def failures_of_servers():
        soak.sleep(random.uniform(3, 8))
        what = random.randrange(3)
        if what == 0:
            servers.mortal.kill()
            soak.sleep(random.uniform(1, 4))
            servers.mortal.start()
            soak.count("deaths")
        elif what == 1:
            stalled = random.choice([servers.steady, servers.encrypted, servers.spare, *servers.pooled])
            stalled.stall(random.uniform(0.5, OUTAGE))
            soak.count("stalls")
        else:
            servers.controller.kill()
            servers.controller.start()
            time.sleep(2)  # its list is complete
            soak.count("controller's deaths")

    return [killed_clients, hostile_clients, failures_of_the_network, failures_of_servers]


def stored(server):
    """Bytes and regions that a server holds, from its metrics."""
    text = urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10).read().decode()
    return {name: int(float(line.split()[-1])) for line in text.splitlines() for name in HELD if line.startswith(name + " ")}


def left_on(server, until):
    """What the server holds at that time, or all zeros as soon as it holds nothing."""
    while True:
        server.check_alive()
        held = stored(server) if server.lends else dict.fromkeys(HELD, 0)
        if time.monotonic() > until or (len(held) == len(HELD) and not any(held.values())):
            return held
        time.sleep(0.5)


def check_end(soak, servers, before):
    """When all programs have ended: nothing is stored, nothing resident beyond what a server needs."""
    until = time.monotonic() + KEEPALIVE + GRACE + 5
    for server in servers:
        try:
            held = left_on(server, until)
            if len(held) < len(HELD) or any(held.values()):
                soak.failures.add(f"{server.address} holds {held}")
            grown = server.resident() - before[server]
            if grown > GROWTH:
                soak.failures.add(f"{server.address} has grown by {grown // MIB} MiB")
        except (AssertionError, OSError) as problem:
            soak.failures.add(f"{server.address}: {problem}")


def show_progress(soak, begin):
    while not soak.over():
        soak.sleep(10)
        if sys.stderr.isatty():
            print(f"\r{time.monotonic() - begin:.0f} s: {summary(soak)}", end="", file=sys.stderr, flush=True)


def summary(soak):
    return ", ".join(f"{name} {count}" for name, count in sorted(soak.counts.items()))


def can_run():
    if os.geteuid() != 0:
        return False
    probe = subprocess.run(["unshare", "--net", "ip", "link", "add", "soak", "type", "veth", "peer", "name", "other"],
                           stderr=subprocess.DEVNULL, check=False)
    return probe.returncode == 0


def run_soak(folder, seconds, seed):
    begin = time.monotonic()
    soak = Soak(folder, seconds, seed)
    hosts, servers, lanes, proxy = [], [], [], None
    try:
        hosts, servers, bodies, proxy = build(soak)
        before = {server: server.resident() for server in servers}
        lanes = [soak.lane(body) for body in bodies]
        show_progress(soak, begin)
        for lane in lanes:
            lane.join()
        check_end(soak, servers, before)
    finally:
        soak.ends = 0
        for lane in lanes:
            lane.join()
        for server in servers:
            server.kill()
        for host in hosts:
            host.holder.kill()
            host.holder.wait()
        if proxy:
            proxy.close()
    print(f"seed {seed}, {time.monotonic() - begin:.0f} s: {summary(soak)}")
    return 1 if soak.failures.texts else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", action="store_true", help="keep the folder with the servers' logs")
    arguments = parser.parse_args()
    if not can_run():
        print("skipped: needs root, ip and network namespaces")
        sys.exit(NOTHING_TESTED)
    if os.environ.get("FARSIDE_SOAK_NAMESPACE") != "own":  # links of the test stay out of the machine's namespace
        os.environ["FARSIDE_SOAK_NAMESPACE"] = "own"
        os.execvp("unshare", ["unshare", "--net", sys.executable, "-B", *sys.argv])
    ip("link", "set", "lo", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")  # of this namespace: pooled servers report to the controller
    random.seed(arguments.seed)
    folder = Path(tempfile.mkdtemp(prefix="farside-soak-"))
    folder.chmod(0o755)
    try:
        status = run_soak(folder, arguments.seconds, arguments.seed)
    finally:
        if arguments.keep:
            print(f"logs: {folder}")
        else:
            shutil.rmtree(folder)
    sys.exit(status)


if __name__ == "__main__":
    main()
