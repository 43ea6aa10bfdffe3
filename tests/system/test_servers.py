"""Memory servers: reachable, unreachable, full, killed while programs use them."""
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time

from support import (FARSIDE, PROGRAMS, PYTHON, SMALL, SystemTest, end_group, environment, expand, main, run, tail,
                     variations)

STEADY = PROGRAMS / "steady"
START_SECONDS = 20
REPORTED_WITHIN = 5  # time in which an unreachable server must be reported
ENDS_WITHIN = 30  # time in which a program whose server was killed must end
TOKEN = "open-sesame-and-wide"
SERVER_SECRET = "known-to-servers-only"

# Changes all of its memory after a fork, and exits with the status of its child, which does the same.
CHANGED_BY_BOTH = """
import os, sys
block = bytearray(56 << 20)
def change():
    for at in range(0, len(block), 512): block[at] = (block[at] + at // 512) % 255 + 1
change()
child = os.fork()
change(), change()
if child == 0: os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


unread = {}  # what read_until has read except for its words, by stream: lines of threads come in any order


def read_until(stream, word, seconds):
    """Reads a pipe until `word` arrives. Fails at its end or after `seconds`."""
    got, deadline = unread.pop(stream, b""), time.monotonic() + seconds
    while word not in got:
        ready, _, _ = select.select([stream], [], [], max(0, deadline - time.monotonic()))
        block = os.read(stream.fileno(), 4096) if ready else b""
        if not block:
            raise AssertionError(f"waited for {word!r}, got {got!r}")
        got += block
    unread[stream] = got.replace(word, b"", 1)
    return got


def http_status(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    with connection.getresponse() as response:
        return response.status


def greet(listener):
    """Sends every client text that is not Farside's protocol, until the listener is shut down."""
    callers = []
    try:
        while True:
            caller, _ = listener.accept()
            callers.append(caller)
            caller.sendall(b"220 mail.example.org ready\r\n" * 100)
    except OSError:
        for caller in callers:
            caller.close()


class Servers(SystemTest):
    """Starts servers and their clients."""
    def setUp(self):
        self.token_file = self.folder / "token"
        self.token_file.write_text(TOKEN + "\n")
        self.token_file.chmod(0o600)
        self.secrets = ["--token-file", self.token_file]  # of servers

    def start(self, command):
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=environment(), cwd=self.folder, start_new_session=True)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        end_group(process)
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def tokens(self, *lines, name="tokens"):
        """Writes a file of tokens; returns the options that name it."""
        path = self.folder / name
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)
        return ["--tokens", path]

    def serve(self, *options, kind="tcp", memory="512M"):
        """Starts a server; returns its process and address."""
        place = f"127.0.0.1:{free_port()}" if kind == "tcp" else str(self.folder / "socket")
        where = ["--listen", place] if kind == "tcp" else ["--unix", place]
        server = self.start([FARSIDE, "serve", "--memory", memory, *where, *self.secrets, *options])
        read_until(server.stderr, b"lending", START_SECONDS)
        return server, f"{'tcp' if kind == 'tcp' else 'shm'}://{place}"

    def client(self, variation, address, *program, options=()):
        return [*variation.launcher("--quiet", "--far", address, "--token-file", str(self.token_file), *options),
                *map(str, program)]


@expand
class ServerTest(Servers):
    def refused(self, expected, *options):
        begin = time.monotonic()
        result = run([FARSIDE, "run", "--local", "16M", *options, "--", STEADY, "16", "1"], seconds=30, cwd=self.folder)
        took = time.monotonic() - begin
        errors = result.errors.decode()
        self.assertEqual((result.status, result.output), (1, b""), errors)
        self.assertLess(took, REPORTED_WITHIN, errors)
        for word in expected:
            self.assertIn(word, errors)

    def test_no_listener(self):
        place = f"127.0.0.1:{free_port()}"
        self.refused([place], "--far", f"tcp://{place}")
        self.refused(["tcp://h:99999", "1 to 65535"], "--far", "tcp://h:99999")
        self.refused(["nowhere"], "--far", f"shm://{self.folder}/nowhere")

    def test_silent_listener(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            place = f"127.0.0.1:{listener.getsockname()[1]}"
            self.refused([place], "--far", f"tcp://{place}")

    def test_another_service_listens(self):
        """Another service listens at the address."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            place = f"127.0.0.1:{listener.getsockname()[1]}"
            service = threading.Thread(target=greet, args=[listener], daemon=True)
            service.start()
            self.refused([place], "--far", f"tcp://{place}")
            listener.shutdown(socket.SHUT_RDWR)
            service.join(10)

    def test_wrong_token(self):
        _, address = self.serve()
        wrong = self.folder / "wrong"
        wrong.write_text("close sesame\n")
        self.refused(["token"], "--far", address, "--token-file", str(wrong))
        self.refused(["token"], "--far", address)

    @variations(SMALL)
    def test_pins_of_many_threads_exceed_near_memory(self, variation):
        """Their calls wait for frames, and hold pages meanwhile; others hold theirs until the end."""
        many = [("tcp", 16, "vector"), ("shm", 16, "plain")] if variation.fault == "signal" else []  # one handler: slower
        for kind, threads, form in [("tcp", 8, "plain"), *many]:
            server, address = self.serve(kind=kind)
            result = run(self.client(variation, address, PROGRAMS / "pins", threads, form), seconds=120, cwd=self.folder)
            self.assertEqual((result.status, result.output), (0, b"ok\n"), tail(result.errors))
            self.end(server)

    def test_server_exits_on_sigterm(self):
        server, _ = self.serve()
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(START_SECONDS), 0)

    def test_address_in_use(self):
        _, address = self.serve()
        place = address.removeprefix("tcp://")
        result = run([FARSIDE, "serve", "--memory", "16M", "--listen", place], seconds=30)
        self.assertEqual(result.status, 1)
        self.assertIn(place, result.errors.decode())

    @variations(SMALL)
    def test_two_programs_at_one_server(self, variation):
        for kind in ("tcp", "unix"):
            server, address = self.serve(kind=kind)
            programs = [self.start(self.client(variation, address, STEADY, 48, 3)) for _ in range(2)]
            for program in programs:
                output, errors = program.communicate(timeout=120)
                self.assertEqual((program.returncode, output), (0, b"ready\ndone\n"), tail(errors))
            server.terminate()
            server.wait(START_SECONDS)

    @variations(SMALL)
    def test_server_is_killed(self, variation):
        """The program ends soon, with a message that names the server, and reads no wrong value (status 99)."""
        server, address = self.serve()
        program = self.start(self.client(variation, address, STEADY, 64, 1_000_000))
        read_until(program.stdout, b"ready", 60)
        server.kill()
        _, errors = program.communicate(timeout=ENDS_WITHIN)
        self.assertNotIn(program.returncode, (0, 99), tail(errors))
        self.assertIn(address.partition("//")[2], errors.decode())

    @variations(SMALL)
    def test_a_lost_server_is_the_reason_beside_the_figures(self, variation):
        server, address = self.serve()
        stats = self.folder / "lost.json"
        words = self.client(variation, address, STEADY, 64, 1_000_000, options=("--patience", "0.5", f"--stats=json:{stats}"))
        program = self.start([word for word in words if word != "--quiet"])
        read_until(program.stdout, b"ready", 60)
        time.sleep(1)  # the launcher has looked
        server.kill()
        _, errors = program.communicate(timeout=ENDS_WITHIN)
        lines = errors.decode().splitlines()
        self.assertRegex(lines[-1], f"^farside: far memory was lost: .*{address} is lost")
        self.assertTrue(any("lost in faults" in line for line in lines), lines)
        report = json.loads(stats.read_text())
        self.assertEqual("farside: " + report["reason"], lines[-1])
        self.assertGreater(report["totals"]["evictions"], 0)

    @variations(SMALL)
    def test_server_of_shared_memory_is_killed(self, variation):
        """Shared memory outlives its server, so the program may continue; it must not read a wrong value."""
        server, address = self.serve(kind="unix")
        program = self.start(self.client(variation, address, STEADY, 48, 10))
        read_until(program.stdout, b"ready", 60)
        server.kill()
        output, errors = program.communicate(timeout=120)
        if program.returncode == 0:
            self.assertEqual(output, b"done\n")
        else:
            self.assertNotEqual(program.returncode, 99, tail(errors))
            self.assertIn(str(self.folder / "socket"), errors.decode())

    @variations(SMALL)
    def test_a_stopped_server_is_reported_as_silent(self, variation):
        """With its address and the time for which the program waited, and not by a number."""
        server, address = self.serve()
        program = self.start(self.client(variation, address, STEADY, 48, 100_000, options=("--patience", "9")))
        read_until(program.stdout, b"ready", 60)
        server.send_signal(signal.SIGSTOP)
        _, errors = program.communicate(timeout=60)
        self.assertEqual(program.returncode, 134, tail(errors))
        lines = errors.decode().splitlines()
        if variation.fault == "signal":  # else a thread may wait for a new connection, which is tried for seconds
            self.assertRegex(lines[0], f"{address} has not responded for [567]")
        self.assertIn(f"{address} is lost: ", lines[-1])
        self.assertRegex(lines[-1], r"(has not responded for|waited) [89]\.")
        self.assertNotIn("error 1", errors.decode())

    @variations(SMALL[:1])
    def test_a_server_that_is_full_after_a_fork(self, variation):
        """The child ends, with the reason: its copy of what the parent changes needs memory."""
        for kind in ("tcp", "unix"):
            _, address = self.serve(kind=kind, memory="80M")
            result = run(self.client(variation, address, PYTHON, "-c", CHANGED_BY_BOTH), seconds=120, cwd=self.folder)
            self.assertEqual(result.status, 134, tail(result.errors))
            for words in (address, "full", "--memory"):
                self.assertIn(words, result.errors.decode())

    def test_no_controller(self):
        place = f"127.0.0.1:{free_port()}"
        self.refused([f"controller pool://{place}", "farside serve --controller"], "--far", f"pool://{place}")

    @variations(SMALL)
    def test_a_unix_socket_is_reached_after_chroot(self, variation):
        """Its path is not visible then, nor permitted to the process's new user."""
        _, address = self.serve(kind="unix")
        result = run(self.client(variation, address, PROGRAMS / "identity", "after_chroot"), seconds=60, cwd=self.folder)
        self.assertEqual(result.status, 0, tail(result.errors))

    @variations(SMALL)
    def test_a_stopped_server_continues(self, variation):
        """The server is stopped: the program waits, and continues when the server does."""
        server, address = self.serve()
        program = self.start(self.client(variation, address, STEADY, 48, 10))
        read_until(program.stdout, b"ready", 60)
        server.send_signal(signal.SIGSTOP)
        with self.assertRaises(subprocess.TimeoutExpired):
            program.wait(1)
        server.send_signal(signal.SIGCONT)
        output, errors = program.communicate(timeout=120)
        self.assertEqual((program.returncode, output), (0, b"done\n"), tail(errors))

    @variations(SMALL)
    def test_out_of_far_memory(self, variation):
        """malloc returns ENOMEM, the reason is printed, and the stored data is intact."""
        result = run([*variation.launcher("--quiet", "--far-memory", "96M"), str(PROGRAMS / "hog")], seconds=120)
        self.assertEqual((result.status, result.output), (0, b"out of memory, contents intact\n"), tail(result.errors))
        self.assertIn("far memory", result.errors.decode())

    @variations(SMALL[:1])
    def test_an_overflow_file(self, variation):
        """A program stores more than the server's RAM has, over TCP and in a run's own server."""
        script = ("import hashlib, os\nblocks = [os.urandom(1 << 20) for _ in range(48)]\n"
                  "sums = [hashlib.md5(b).digest() for b in blocks]\n"
                  "assert all(hashlib.md5(b).digest() == s for b, s in zip(blocks, sums))\n")
        server, address = self.serve("--compress", "auto", "--overflow", f"{self.folder}:64M", memory="16M")
        result = run(self.client(variation, address, PYTHON, "-c", script), seconds=60)
        self.assertEqual(result.status, 0, tail(result.errors))
        server.send_signal(signal.SIGTERM)
        _, errors = server.communicate(timeout=20)
        self.assertEqual(server.returncode, 0, tail(errors))
        own = ["--quiet", "--far-memory", "16M", "--tune", f"overflow={self.folder}/own:64M"]
        result = run([*variation.launcher(*own), PYTHON, "-c", script], seconds=60)
        self.assertEqual(result.status, 0, tail(result.errors))
        self.assertFalse((self.folder / "own").exists())

    def test_an_overflow_file_that_cannot_be_used(self):
        (self.folder / "taken").touch()
        for options, expected in ((["--overflow", f"{self.folder}:1G"], "--compress auto"),
                                  (["--overflow", "8G"], "PATH:SIZE"), (["--overflow", f"{self.folder}:8M"], "16M or more"),
                                  (["--compress", "auto", "--overflow", f"{self.folder}/taken:1G"], "File exists")):
            result = run([FARSIDE, "serve", "--memory", "64M", "--unix", self.folder / "s", *options], seconds=20)
            self.assertNotEqual(result.status, 0)
            self.assertIn(expected, result.errors.decode())

    def test_many_small_programs(self):
        """A program reserves little more on the server than it uses."""
        _, address = self.serve(kind="unix")
        programs = [self.start(self.client(SMALL[0], address, STEADY, 12, 2)) for _ in range(24)]
        for program in programs:
            output, errors = program.communicate(timeout=60)
            self.assertEqual((program.returncode, output), (0, b"ready\ndone\n"), errors)

    def test_places_in_messages(self):
        """Port 0: the messages have the port that was taken. Metrics that everyone can read give a warning."""
        server = self.start([FARSIDE, "serve", "--memory", "64M", "--listen", "127.0.0.1:0", "--token-file", self.token_file,
                             "--metrics", "0.0.0.0:0"])
        text = read_until(server.stderr, b"lending", START_SECONDS).decode()
        self.assertRegex(text, r"--metrics 0\.0\.0\.0:0: everyone")
        metrics = re.search(r"metrics at http://0\.0\.0\.0:(\d+)/", text)[1]
        self.assertEqual(http_status(int(metrics), "/healthz"), 200)
        if "tcp://" not in text:
            text += read_until(server.stderr, b"tcp://", START_SECONDS).decode()
        address = re.search(r"tcp://127\.0\.0\.1:[1-9]\d*", text)[0]
        result = run(self.client(SMALL[0], address, STEADY, 12, 1), seconds=60, cwd=self.folder)
        self.assertEqual(result.status, 0, tail(result.errors))

    def test_few_descriptors(self):
        """A server with 64 descriptors refuses new programs, with a message, before it fails the old ones."""
        place = f"127.0.0.1:{free_port()}"
        server = self.start(["sh", "-c", f"ulimit -n 64; exec {FARSIDE} serve --memory 2G --listen {place} "
                                         f"--token-file {self.token_file} --metrics 127.0.0.1:{(port := free_port())}"])
        read_until(server.stderr, b"lending", START_SECONDS)
        silent = [socket.create_connection(place.split(":")) for _ in range(50)]
        self.assertEqual(http_status(port, "/readyz"), 200)
        address, programs, refused = f"tcp://{place}", [], None
        while refused is None and len(programs) < 20:
            program = self.start(self.client(SMALL[0], address, STEADY, 16, 30))
            ready, _, _ = select.select([program.stdout, program.stderr], [], [], 60)
            if program.stderr in ready:
                refused = program.communicate(timeout=60)[1]
            else:
                programs.append(program)
        self.assertIn(b"no file descriptors left", refused)
        self.assertEqual(http_status(port, "/readyz"), 503)
        self.assertGreater(len(programs), 2)
        for program in programs:
            output, errors = program.communicate(timeout=120)
            self.assertEqual((program.returncode, output), (0, b"ready\ndone\n"), tail(errors))
        for connection in silent:
            connection.close()

    @variations(SMALL)
    def test_quota(self, variation):
        _, address = self.serve("--quota", "96M")
        result = run(self.client(variation, address, PROGRAMS / "hog"), seconds=120)
        self.assertEqual((result.status, result.output), (0, b"out of memory, contents intact\n"), tail(result.errors))
        self.assertIn("far memory", result.errors.decode())

    def test_quota_of_a_token(self):
        """A token's programs share its quota; another token has its own."""
        self.secrets = self.tokens(f"client small {TOKEN} quota=96M", f"client large {SERVER_SECRET}")
        _, address = self.serve()
        result = run(self.client(SMALL[0], address, PROGRAMS / "hog"), seconds=120)
        self.assertEqual((result.status, result.output), (0, b"out of memory, contents intact\n"), tail(result.errors))
        self.token_file.write_text(SERVER_SECRET + "\n")
        result = run(self.client(SMALL[0], address, STEADY, 128, 1), seconds=60)
        self.assertEqual((result.status, result.output), (0, b"ready\ndone\n"), tail(result.errors))

    def test_operations_of_a_token(self):
        self.secrets = self.tokens(f"client watcher {TOKEN} allow=statistics")
        _, address = self.serve()
        self.refused(["watcher", "may not create"], "--far", address, "--token-file", str(self.token_file))

    def test_tokens_are_read_again(self):
        self.secrets = self.tokens(f"client first {TOKEN}")
        server, address = self.serve()
        program = self.start(self.client(SMALL[0], address, STEADY, 32, 1_000_000))
        read_until(program.stdout, b"ready", 60)
        self.tokens("client first nonsense")
        server.send_signal(signal.SIGHUP)
        errors = read_until(server.stderr, b"the tokens stay as they were", START_SECONDS)
        self.assertIn(b"tokens:1: the secret of first has 8 characters", errors)
        result = run(self.client(SMALL[0], address, STEADY, 16, 1), seconds=60)
        self.assertEqual(result.status, 0, tail(result.errors))
        self.tokens(f"client second {SERVER_SECRET}")
        server.send_signal(signal.SIGHUP)
        read_until(server.stderr, b"read the tokens again", START_SECONDS)
        self.refused(["token"], "--far", address, "--token-file", str(self.token_file))
        self.assertIsNone(program.poll())  # it keeps its memory
        self.token_file.write_text(SERVER_SECRET + "\n")
        result = run(self.client(SMALL[0], address, STEADY, 16, 1), seconds=60)
        self.assertEqual(result.status, 0, tail(result.errors))

    def test_bad_files_of_tokens(self):
        def refused(expected, *options):
            result = run([FARSIDE, "serve", "--memory", "64M", "--listen", "127.0.0.1:0", *map(str, options)], seconds=30)
            errors = result.errors.decode()
            self.assertEqual((result.status, errors.count("\n")), (2, 1), errors)
            self.assertIn(expected, errors)
            self.assertNotIn(TOKEN, errors)
        good = self.tokens(f"client all {TOKEN}")
        refused("exclude each other", *good, "--token-file", self.token_file)
        refused("nowhere", "--tokens", self.folder / "nowhere")
        refused("client or server", *self.tokens(f"user all {TOKEN}", name="bad"))
        refused("create, fork, statistics, offload or operate", *self.tokens(f"client all {TOKEN} allow=everything", name="bad"))
        refused("server NAME SECRET", "--controller", *good)
        refused("server NAME SECRET", "--pool", "127.0.0.1:1", *good)


if __name__ == "__main__":
    main()
