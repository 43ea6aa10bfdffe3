"""Debian's redis-server as a child process, and a client that uses its Unix socket."""
import os
import signal
import socket
import subprocess
import threading
import time

START_SECONDS = 60
STOP_SECONDS = 120
REPLY_SECONDS = 300  # DEBUG DIGEST of a large database takes long
SAMPLE_SECONDS = 0.01


class WrongReply(Exception):
    """The server's reply is not the expected one."""


def encode(*words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word.encode() if isinstance(word, str) else word
        parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(parts)


class Client:
    def __init__(self, path, reply_seconds=REPLY_SECONDS):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(reply_seconds)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        self.input = self.socket.makefile("rb")

    def close(self):
        self.input.close()
        self.socket.close()

    def command(self, *words):
        """One command and its reply: bytes, int, None or a list. An error reply raises."""
        self.socket.sendall(encode(*words))
        return self._reply()

    def _reply(self):
        line = self.input.readline()
        if not line.endswith(b"\r\n"):
            raise WrongReply("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.input.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._reply() for _ in range(int(rest))]
        raise WrongReply(f"the server replied {line!r}")

    def pipeline(self, pairs):
        """Sends the requests of (request, expected reply) pairs, two in flight, and compares every byte of the replies.
        Each pair may contain many commands."""
        waiting = []
        for request, expected in pairs:
            self.socket.sendall(request)
            waiting.append(expected)
            if len(waiting) == 2:
                self._expect(waiting.pop(0))
        for expected in waiting:
            self._expect(expected)

    def _expect(self, expected):
        at = 0
        while at < len(expected):
            try:
                got = self.input.read1(len(expected) - at)
            except TimeoutError:
                got = b""
            if not got or got != expected[at:at + len(got)]:
                self._explain(expected, at, got)
            at += len(got)

    def _explain(self, expected, at, got):
        if not got:
            raise WrongReply(f"the server closed the connection or did not reply for {self.socket.gettimeout():.0f} s; "
                             f"expected {expected[at:at + 80]!r}")
        wrong = next(i for i in range(len(got)) if got[i] != expected[at + i])
        start = max(0, wrong - 40)
        raise WrongReply(f"expected ...{expected[at + start:at + wrong + 80]!r}, got ...{got[start:wrong + 80]!r}")

    def digest(self):
        return self.command("DEBUG", "DIGEST").decode()

    def info(self, section, field):
        for line in self.command("INFO", section).decode().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return value
        raise WrongReply(f"INFO {section} has no {field}")


class MemoryWatch(threading.Thread):
    """Samples a process's memory from /proc while it runs: current values and peaks, in bytes."""
    FIELDS = ("RssAnon", "RssShmem", "VmHWM", "VmSwap")

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path = f"/proc/{pid}/status"
        self.peaks = dict.fromkeys(self.FIELDS, 0)
        self.now = dict(self.peaks)
        self.ended = threading.Event()
        self.sample()
        self.start()

    def sample(self):
        with open(self.path, encoding="utf8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name in self.peaks:
                    self.now[name] = int(value.split()[0]) * 1024
                    self.peaks[name] = max(self.peaks[name], self.now[name])

    def run(self):
        try:
            while not self.ended.wait(SAMPLE_SECONDS):
                self.sample()
        except (FileNotFoundError, ProcessLookupError):
            pass

    def stop(self):
        self.ended.set()
        self.join()


class RedisServer:
    """A redis-server in a given folder, started by a launcher (a list of words that precede its command line, such as
    `farside run ... --`). Ends with the `with` block."""

    def __init__(self, folder, launcher=(), arguments=(), environment=None, log=None):
        self.socket_path = os.path.join(folder, "s")
        self.command = [*launcher, "redis-server", "--save", "", "--appendonly", "no", "--port", "0",
                        "--unixsocket", self.socket_path, "--unixsocketperm", "700", "--enable-debug-command", "local",
                        "--dir", folder, "--daemonize", "no", "--loglevel", "warning", *arguments]
        self.folder, self.environment, self.log = folder, environment, log
        self.process = self.pidfd = self.memory = self.pid = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, cwd=self.folder, env=self.environment,
                                        stdin=subprocess.DEVNULL, stdout=self.log or subprocess.DEVNULL,
                                        stderr=self.log, start_new_session=True)
        try:
            client = self._first_client()
            self.pid = int(client.info("server", "process_id"))  # may be a child of the launcher
            client.close()
            self.pidfd = os.pidfd_open(self.pid)
            self.memory = MemoryWatch(self.pid)
        except BaseException:
            self._kill()
            raise
        return self

    def _first_client(self):
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.command[0]} ended with status {self.process.returncode} during startup")
            try:
                client = Client(self.socket_path)
                if client.info("persistence", "loading") == "0":
                    return client
                client.close()
            except (FileNotFoundError, ConnectionRefusedError):
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(f"redis-server was not ready within {START_SECONDS} s")
            time.sleep(0.01)

    def client(self, **options):
        return Client(self.socket_path, **options)

    def shut_down(self):
        """Shuts the server down, so that its launcher can report. Returns the launcher's exit status."""
        self.memory.stop()
        client = self.client()
        try:
            client.command("SHUTDOWN", "NOSAVE")
        except (WrongReply, OSError):
            pass  # a server that shuts down closes the connection
        finally:
            client.close()
        return self.process.wait(STOP_SECONDS)

    def __exit__(self, *_):
        if self.memory:
            self.memory.stop()
        self._kill()

    def _kill(self):
        if self.pidfd is not None:
            try:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass
            os.close(self.pidfd)
            self.pidfd = None
        if self.process.poll() is None:
            self.process.terminate()  # a launcher passes the signal on and stops its embedded server
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
