"""Several memory servers: replicas that are killed, a controller with servers that join and leave, network failures."""
import json
import os
import signal
import subprocess
import time

from support import FARSIDE, PROGRAMS, PYTHON, SMALL, expand, main, require, run, tail, variations
from test_servers import ENDS_WITHIN, SERVER_SECRET, START_SECONDS, STEADY, TOKEN, Servers, free_port, read_until

OPERATOR_SECRET = "the-secret-of-operators"
LIST_SECONDS = 20  # time in which the controller's list must show a change

# Parent and child of a fork have different values in the same pages, wait for a file, and compare all of them.
FORKED = """
import os, sys, time
block = bytearray(64 << 20)
def fill(value):
    for at in range(0, len(block), 4096): block[at:at + 8] = (at + value).to_bytes(8, "little")
fill(1)
child = os.fork()
mine = 1 if child else 2
fill(mine)
print("ready", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.05)
for at in range(0, len(block), 4096):
    if int.from_bytes(block[at:at + 8], "little") != at + mine: os._exit(99)
if child == 0: os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@expand
class PoolTest(Servers):
    def setUp(self):
        super().setUp()
        self.secrets = self.tokens(f"client all {TOKEN}", f"server rack {SERVER_SECRET}",
                                   f"client operator {OPERATOR_SECRET} allow=operate")

    def place(self, server_address):
        return server_address.partition("//")[2]

    def steady(self, variation, addresses, megabytes=64, rounds=1_000_000, *words, options=()):
        """Starts the program steady, which has filled its memory when this returns and checks it continuously."""
        program = self.start(self.client(variation, addresses, STEADY, megabytes, rounds, *words, options=options))
        read_until(program.stdout, b"ready", 60)
        return program

    def controller(self):
        place = f"127.0.0.1:{free_port()}"
        self.start_controller(place)
        return place

    def start_controller(self, place):
        process = self.start([FARSIDE, "serve", "--controller", "--listen", place, *self.secrets])
        read_until(process.stderr, b"list", START_SECONDS)
        return process

    def cordon(self, controller, address, word="cordon", secret=OPERATOR_SECRET):
        secret_file = self.folder / "operator.secret"
        secret_file.write_text(secret + "\n")
        secret_file.chmod(0o600)
        return run([FARSIDE, "pool", word, address, "--controller", controller, "--token-file", str(secret_file)],
                   seconds=30)

    def status(self, controller):
        result = run([FARSIDE, "pool", "status", "--json", "--controller", controller, "--token-file",
                      str(self.token_file)], seconds=30)
        self.assertEqual(result.status, 0, tail(result.errors))
        return {server["address"]: server for server in json.loads(result.output)["servers"]}

    def eventually(self, controller, condition, seconds=LIST_SECONDS):
        deadline = time.monotonic() + seconds
        while not condition(servers := self.status(controller)):
            self.assertLess(time.monotonic(), deadline, servers)
            time.sleep(0.2)
        return servers

    @variations(SMALL)
    def test_a_replica_is_killed(self, variation):
        """The program reports it once, continues, and reads no wrong value (status 99)."""
        for kinds in (("tcp", "tcp"), ("unix", "tcp")):
            servers = [self.serve(kind=kind) for kind in kinds]
            addresses = ",".join(address for _, address in servers)
            # The server is missed when something is written to it.
            program = self.steady(variation, addresses, 48, 12, "write", options=("--replicas", "2"))
            servers[1][0].kill()
            output, errors = program.communicate(timeout=120)
            self.assertEqual((program.returncode, output), (0, b"done\n"), tail(errors))
            messages = [line for line in errors.decode().splitlines() if "1 of 2 replicas left" in line]
            self.assertEqual(len(messages), 1, tail(errors))
            self.assertIn(servers[1][1], messages[0])

    @variations(SMALL)
    def test_lost_copies_are_made_anew(self, variation):
        """Two of three servers are killed, the second one when the copies of the first are complete. The program compares every byte in
        each round: with what it has just written, and with what it wrote before the first loss."""
        for words in (("write",), ()):
            servers = [self.serve() for _ in range(3)]
            addresses = ",".join(address for _, address in servers)
            stats = self.folder / "stats.json"
            program = self.steady(variation, addresses, 96, 24, *words,
                                  options=("--replicas", "2", f"--stats=json:{stats}"))
            servers[0][0].kill()
            read_until(program.stderr, b"were made anew on other servers; 0 are missing", 60)
            servers[1][0].kill()
            output, errors = program.communicate(timeout=120)
            self.assertEqual((program.returncode, output), (0, b"done\n"), tail(errors))
            self.assertIn("1 of 3 servers left", errors.decode())
            totals = json.loads(stats.read_text())["totals"]
            self.assertGreater(totals["repaired_slabs"], 0)
            self.assertGreaterEqual(totals["degraded_slabs"], 96 // 16)  # one copy of each is left

    def test_a_server_that_returns_gets_copies(self):
        servers = [self.serve() for _ in range(2)]
        addresses = ",".join(address for _, address in servers)
        program = self.steady(SMALL[0], addresses, 64, 60, "write", options=("--replicas", "2"))
        for dies in (0, 1):
            server, address = servers[dies]
            server.kill()
            server.wait()
            read_until(program.stderr, b"is lost", 30)
            again = self.start([FARSIDE, "serve", "--memory", "512M", "--listen", self.place(address), "--token-file",
                                self.token_file])
            servers[dies] = (again, address)
            read_until(program.stderr, b"from empty", 60)
            read_until(program.stderr, b"were made anew on other servers; 0 are missing", 60)
        output, errors = program.communicate(timeout=120)
        self.assertEqual((program.returncode, output), (0, b"done\n"), tail(errors))

    @variations(SMALL)
    def test_children_make_copies_too(self, variation):
        """Parent and child of a fork each have their own data on the servers, and copies of it that were lost."""
        go = self.folder / f"go-{variation.fault}"
        servers = [self.serve() for _ in range(3)]
        addresses = ",".join(address for _, address in servers)
        program = self.start(self.client(variation, addresses, PYTHON, "-c", FORKED, go, options=("--replicas", "2")))
        for _ in range(2):
            read_until(program.stdout, b"ready", 60)
        servers[0][0].kill()
        for _ in range(2):
            read_until(program.stderr, b"were made anew on other servers; 0 are missing", 60)
        servers[1][0].kill()
        go.touch()
        _, errors = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 0, tail(errors))

    @variations(SMALL)
    def test_the_last_replica_is_killed(self, variation):
        servers = [self.serve() for _ in range(2)]
        program = self.steady(variation, ",".join(address for _, address in servers), options=("--replicas", "2"))
        for server, _ in servers:
            server.kill()
            time.sleep(0.5)
        _, errors = program.communicate(timeout=ENDS_WITHIN)
        self.assertNotIn(program.returncode, (0, 99), tail(errors))
        self.assertIn("is lost", errors.decode())

    def test_children_survive_too(self):
        """Forked children have snapshots on all replicas, even if a replica is killed meanwhile."""
        servers = [self.serve() for _ in range(2)]
        addresses = ",".join(address for _, address in servers)
        program = self.start([*SMALL[0].launcher("--quiet", "--far", addresses, "--token-file", self.token_file,
                                                 "--replicas", "2"), "/bin/sh", "-c",
                              f"for i in 1 2 3 4 5 6; do {STEADY} 24 3 & wait; echo; done"])
        read_until(program.stdout, b"done", 60)
        servers[0][0].kill()
        output, errors = program.communicate(timeout=120)
        self.assertEqual((program.returncode, output.count(b"ready")), (0, 5), tail(errors))

    def test_more_replicas_than_servers(self):
        _, address = self.serve()
        self.refused_usage(["replicas", "2"], "--far", address, "--replicas", "2", "--token-file",
                           str(self.token_file))
        result = run([FARSIDE, "run", "--replicas", "2", "--", STEADY, "16", "1"], seconds=30)
        self.assertEqual(result.status, 2)
        self.assertIn("--far", result.errors.decode())

    def refused_usage(self, messages, *options):
        result = run([FARSIDE, "run", "--local", "16M", *options, "--", STEADY, "16", "1"], seconds=30)
        self.assertEqual(result.status, 1, tail(result.errors))
        for word in messages:
            self.assertIn(word, result.errors.decode())

    @variations(SMALL)
    def test_full_servers(self, variation):
        """Two servers of 64 MiB: malloc returns ENOMEM when both are full, and the stored data is intact."""
        addresses = ",".join(self.serve("--quota", "64M")[1] for _ in range(2))
        result = run(self.client(variation, addresses, PROGRAMS / "hog"), seconds=120)
        self.assertEqual((result.status, result.output), (0, b"out of memory, contents intact\n"), tail(result.errors))

    def test_a_pool(self):
        """Servers join; a program uses both; one leaves and ends when the program has moved its data; another is killed and reported."""
        controller = self.controller()
        pool = ["--pool", controller]
        first, first_address = self.serve(*pool)
        second, second_address = self.serve(*pool)
        both = {first_address, second_address}
        self.eventually(controller, lambda s: set(s) == both and all(x["state"] == "up" for x in s.values()))
        program = self.steady(SMALL[0], f"pool://{controller}", 96)
        servers = self.eventually(controller, lambda s: all(x["stored_bytes"] > 0 for x in s.values()))
        self.assertEqual([s["clients"] for s in servers.values()], [1, 1])

        first.terminate()  # it leaves, and serves its data until that is somewhere else
        self.assertEqual(first.wait(START_SECONDS), 0)
        self.eventually(controller, lambda s: set(s) == {second_address})
        other = self.steady(SMALL[0], f"pool://{controller}", 32, 2)
        self.assertEqual(other.communicate(timeout=60)[0], b"done\n")
        self.assertIsNone(program.poll())
        program.kill()
        self.end(program)

        second.kill()
        self.eventually(controller, lambda s: s[second_address]["state"] == "silent")

    def test_a_server_that_joins_is_used(self):
        controller = self.controller()
        self.serve("--pool", controller, "--quota", "96M")
        self.eventually(controller, lambda s: len(s) == 1)
        program = self.start(self.client(SMALL[0], f"pool://{controller}", PROGRAMS / "hog"))
        _, second = self.serve("--pool", controller)
        output, errors = program.communicate(timeout=120)
        self.assertEqual((program.returncode, output), (0, b"out of memory, contents intact\n"), tail(errors))
        self.assertIn(second, self.status(controller))

    def test_a_cordoned_server(self):
        """It gets no new data and keeps what it has; so it is after the controller or the server was restarted."""
        place = f"127.0.0.1:{free_port()}"
        controller = self.start_controller(place)
        (first, address), (_, other) = self.serve("--pool", place), self.serve("--pool", place)
        self.eventually(place, lambda s: set(s) == {address, other})
        program = self.steady(SMALL[0], f"pool://{place}", 96)
        used = self.eventually(place, lambda s: all(x["stored_bytes"] > 0 for x in s.values()))

        self.assertEqual(self.cordon(place, address).status, 0)
        self.assertEqual(self.status(place)[address]["state"], "cordoned")
        read_until(first.stderr, b"cordoned this server", START_SECONDS)  # it learns it with its next report
        more = self.steady(SMALL[0], f"pool://{place}", 96, 2)
        self.assertEqual(self.status(place)[address]["clients"], 1)  # no new client
        self.assertLessEqual(self.status(place)[address]["reserved_bytes"], used[address]["reserved_bytes"])
        self.assertEqual(more.communicate(timeout=60)[0], b"done\n")
        self.assertIsNone(program.poll())

        controller.kill()
        self.end(controller)
        controller = self.start_controller(place)
        self.eventually(place, lambda s: s.get(address, {}).get("state") == "cordoned")
        program.kill()
        self.end(program)
        first.kill()
        self.end(first)
        again = self.start([FARSIDE, "serve", "--memory", "512M", "--listen", self.place(address), "--pool", place,
                            *self.secrets])
        read_until(again.stderr, b"cordoned this server", START_SECONDS)
        self.assertEqual(self.status(place)[address]["state"], "cordoned")
        self.assertEqual(self.cordon(place, address, "uncordon").status, 0)
        self.assertEqual(self.status(place)[address]["state"], "up")
        read_until(again.stderr, b"here again", START_SECONDS)

    def test_a_drained_server(self):
        """Parent and child of a fork move their data to another server while they are idle, and run on when the first one is killed."""
        go = self.folder / "go"
        controller = self.controller()
        first, address = self.serve("--pool", controller)
        self.eventually(controller, lambda s: len(s) == 1)
        program = self.start(self.client(SMALL[0], f"pool://{controller}", PYTHON, "-c", FORKED, go))
        for _ in range(2):
            read_until(program.stdout, b"ready", 60)
        self.eventually(controller, lambda s: s[address]["clients"] == 2)
        refused = self.cordon(controller, address, "drain")
        self.assertEqual(refused.status, 1)
        self.assertIn("have room for 0 B; start one", refused.errors.decode())
        self.assertEqual(self.status(controller)[address]["state"], "up")
        self.serve("--pool", controller)
        self.eventually(controller, lambda s: len(s) == 2)
        self.assertEqual(self.cordon(controller, address, "drain").status, 0)
        self.assertEqual(self.status(controller)[address]["state"], "draining")
        self.eventually(controller, lambda s: s[address]["clients"] == 0)
        self.assertEqual(self.status(controller)[address]["stored_bytes"], 0)
        first.kill()
        go.touch()
        _, errors = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 0, tail(errors))
        self.assertEqual(errors.decode().count("has nothing of this program any more"), 2, tail(errors))

    def test_a_pool_whose_servers_are_all_cordoned(self):
        controller = self.controller()
        _, address = self.serve("--pool", controller)
        self.eventually(controller, lambda s: address in s)
        self.assertEqual(self.cordon(controller, address).status, 0)
        result = run(self.client(SMALL[0], f"pool://{controller}", STEADY, 16, 1), seconds=30)
        self.assertEqual(result.status, 1)
        self.assertIn("that takes new data", result.errors.decode())

    def test_cordons_that_are_refused(self):
        controller = self.controller()
        _, address = self.serve("--pool", controller)
        self.eventually(controller, lambda s: address in s)
        for secret, server, words in ((TOKEN, address, "allow=operate"), (SERVER_SECRET, address, "allow=operate"),
                                      (OPERATOR_SECRET, "tcp://10.0.0.9:7170", "not in its list"),
                                      (OPERATOR_SECRET, "x" * 104, "is not the address of a server"),
                                      ("a-secret-that-is-not-there", address, "token")):
            refused = self.cordon(controller, server, secret=secret)
            self.assertEqual(refused.status, 1)
            self.assertIn(words, refused.errors.decode())
            self.assertEqual(len(refused.errors.splitlines()), 1, refused.errors)
        self.assertEqual(self.status(controller)[address]["state"], "up")

    def test_a_server_needs_a_secret_that_clients_do_not_know(self):
        controller = self.controller()
        self.secrets = self.tokens(f"client all {SERVER_SECRET}", f"server rogue {TOKEN}", name="rogue")
        rogue, _ = self.serve("--pool", controller)
        read_until(rogue.stderr, b"rejected a report", START_SECONDS)
        self.assertEqual(self.status(controller), {})
        self.secrets = self.tokens(f"client all {TOKEN}", "server rogue neither-of-them-here", name="rogue")
        rogue, _ = self.serve("--pool", controller)
        read_until(rogue.stderr, b"rejected the secret of this server", START_SECONDS)
        self.assertEqual(self.status(controller), {})

    def test_status_text(self):
        controller = self.controller()
        command = [FARSIDE, "pool", "status", "--controller", controller, "--token-file", str(self.token_file)]
        self.assertIn(b"no server has joined", run(command, seconds=30).output)
        _, address = self.serve("--pool", controller, "--zone", "rack-7")
        self.eventually(controller, lambda s: len(s) == 1)
        shown = run(command, seconds=30).output.decode()
        self.assertIn(address, shown)
        self.assertRegex(shown, "up +rack-7")
        self.assertEqual(self.status(controller)[address]["zone"], "rack-7")
        for zone, pool, words in (("rack 7", ["--pool", controller], "without spaces"), ("rack-7", [], "add --pool")):
            refused = run([FARSIDE, "serve", "--memory", "16M", "--listen", "127.0.0.1:0", *pool, "--zone", zone], seconds=30)
            self.assertEqual(refused.status, 2)
            self.assertIn(words, refused.errors.decode())
        self.assertIn("512.0 MiB", shown)
        refused = run(command[:-2], seconds=30)
        self.assertEqual(refused.status, 1)
        self.assertIn("token", refused.errors.decode())
        _, no_controller = self.serve()
        refused = run([*command[:4], self.place(no_controller), *command[5:]], seconds=30)
        self.assertEqual(refused.status, 1)
        self.assertIn("not a controller", refused.errors.decode())

    def test_a_server_that_joins_gets_lost_copies(self):
        """Also of a program that reserves no more memory."""
        controller = self.controller()
        servers = [self.serve("--pool", controller) for _ in range(2)]
        self.eventually(controller, lambda s: len(s) == 2)
        program = self.steady(SMALL[0], f"pool://{controller}", 64, options=("--replicas", "2"))
        servers[0][0].kill()
        read_until(program.stderr, b"is lost", 30)
        self.serve("--pool", controller)
        read_until(program.stderr, b"were made anew on other servers; 0 are missing", 60)
        servers[1][0].kill()
        read_until(program.stderr, b"1 of 3 servers left", 30)
        time.sleep(0.5)
        self.assertIsNone(program.poll())

    def test_status_shows_lost_copies(self):
        """While one server of two is missing no copy can be made; when it returns, the pool is complete again."""
        controller = self.controller()
        command = [FARSIDE, "pool", "status", "--controller", controller, "--token-file", str(self.token_file)]
        servers = [self.serve("--pool", controller) for _ in range(2)]
        self.eventually(controller, lambda s: len(s) == 2)
        program = self.steady(SMALL[0], f"pool://{controller}", 64, options=("--replicas", "2"))
        copies = lambda: json.loads(run([*command, "--json"], seconds=30).output)["copies"]
        self.assertEqual(copies(), {"clients": 0, "degraded_slabs": 0, "repaired_slabs": 0, "seconds_left": 0})
        servers[0][0].kill()
        servers[0][0].wait()
        self.eventually(controller, lambda _: copies()["clients"] == 1)
        shown = copies()
        self.assertGreaterEqual(shown["degraded_slabs"], 64 // 16)
        self.assertIsNone(shown["seconds_left"])
        self.assertIn("slabs of 1 clients have fewer copies than --replicas", run(command, seconds=30).output.decode())
        self.start([FARSIDE, "serve", "--memory", "512M", "--listen", self.place(servers[0][1]), "--pool", controller,
                    *self.secrets])
        read_until(program.stderr, b"were made anew on other servers; 0 are missing", 60)
        self.eventually(controller, lambda _: copies()["clients"] == 0)
        servers[1][0].kill()
        time.sleep(0.5)
        self.assertIsNone(program.poll())

    def test_a_pool_without_servers(self):
        controller = self.controller()
        result = run(self.client(SMALL[0], f"pool://{controller}", STEADY, 16, 1), seconds=30)
        self.assertEqual(result.status, 1)
        self.assertIn("lists no memory server", result.errors.decode())

    @variations(SMALL)
    def test_a_frozen_server_is_lost_after_the_limit(self, variation):
        servers = [self.serve() for _ in range(2)]
        addresses = ",".join(address for _, address in servers)
        program = self.steady(variation, addresses, 48, 12, options=("--replicas", "2", "--patience", "2"))
        servers[0][0].send_signal(signal.SIGSTOP)
        output, errors = program.communicate(timeout=120)
        self.assertEqual((program.returncode, output), (0, b"done\n"), tail(errors))
        self.assertIn("1 of 2 replicas left", errors.decode())

    @variations(SMALL)
    def test_a_server_that_restarted_has_lost_the_data(self, variation):
        server, address = self.serve()
        program = self.steady(variation, address)
        server.kill()
        server.wait()
        again = self.start([FARSIDE, "serve", "--memory", "512M", "--listen", self.place(address), "--token-file",
                            self.token_file])
        read_until(again.stderr, b"lending", START_SECONDS)
        _, errors = program.communicate(timeout=ENDS_WITHIN)
        self.assertNotIn(program.returncode, (0, 99), tail(errors))
        self.assertIn("is lost", errors.decode())


class Link:
    """Two network namespaces, for the server and the client, connected by a pair of virtual interfaces."""
    SERVER, CLIENT = "10.213.7.1", "10.213.7.2"

    def __init__(self, test):
        self.ip = require("ip")
        self.names = [f"farside-{side}-{os.getpid()}" for side in ("s", "c")]
        self.ends = [f"fs{os.getpid()}", f"fc{os.getpid()}"]
        for name in self.names:
            self.command(test, "netns", "add", name)
            test.addCleanup(subprocess.run, [self.ip, "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
        self.command(test, "link", "add", self.ends[0], "netns", self.names[0], "type", "veth", "peer", "name",
                     self.ends[1], "netns", self.names[1])
        for name, end, address in zip(self.names, self.ends, (self.SERVER, self.CLIENT)):
            self.command(test, "-n", name, "addr", "add", f"{address}/24", "dev", end)
            self.command(test, "-n", name, "link", "set", end, "up")
            self.command(test, "-n", name, "link", "set", "lo", "up")

    def command(self, test, *words):
        result = subprocess.run([self.ip, *words], capture_output=True, check=False)
        if result.returncode != 0:
            test.skipTest(f"no network namespaces with a cable here: {tail(result.stderr)}")

    def inside(self, side):
        return [self.ip, "netns", "exec", self.names[side]]

    def plug(self, test, state):
        self.command(test, "-n", self.names[0], "link", "set", self.ends[0], state)

    def spoil(self, test, *netem):
        tc = require("tc")
        result = subprocess.run([*self.inside(0), tc, "qdisc", "add", "dev", self.ends[0], "root", "netem", *netem],
                                capture_output=True, check=False)
        if result.returncode != 0:
            test.skipTest(f"tc has no netem here: {tail(result.stderr)}")


class NetworkTest(Servers):
    def begin(self, rounds, *options):
        """Starts a server and a program, each in its own namespace."""
        link = Link(self)
        server = self.start([*link.inside(0), FARSIDE, "serve", "--memory", "512M", "--listen", f"{Link.SERVER}:7170",
                             "--token-file", self.token_file])
        read_until(server.stderr, b"lending", START_SECONDS)
        program = self.start([*link.inside(1),
                              *self.client(SMALL[0], f"tcp://{Link.SERVER}:7170", STEADY, 48, rounds, options=options)])
        read_until(program.stdout, b"ready", 60)
        return link, program

    def test_a_cable_that_is_pulled_and_put_back(self):
        """The program waits meanwhile, and no data is lost."""
        link, program = self.begin(30)
        for seconds in (3, 8):
            link.plug(self, "down")
            with self.assertRaises(subprocess.TimeoutExpired):
                program.wait(seconds)
            link.plug(self, "up")
            time.sleep(2)
        output, errors = program.communicate(timeout=120)
        self.assertEqual((program.returncode, output), (0, b"done\n"), tail(errors))

    def test_a_cable_that_stays_away(self):
        link, program = self.begin(1_000_000, "--patience", "3")
        link.plug(self, "down")
        _, errors = program.communicate(timeout=ENDS_WITHIN)
        self.assertNotIn(program.returncode, (0, 99), tail(errors))
        self.assertIn("is lost", errors.decode())

    def test_loss_and_delay(self):
        link, program = self.begin(4)
        link.spoil(self, "delay", "2ms", "1ms", "loss", "2%")
        output, errors = program.communicate(timeout=240)
        self.assertEqual((program.returncode, output), (0, b"done\n"), tail(errors))


if __name__ == "__main__":
    main()
