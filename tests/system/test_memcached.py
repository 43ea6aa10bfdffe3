"""memcached stores real text in values of several sizes; every value read must be the one written last."""
import json
import signal
import socket
import subprocess
import time

from support import MIB, SCALE, SHARES, SystemTest, end_group, environment, expand, main, require, tail, variations

TEXT = 48 * MIB
SIZES = (40, 500, 3000, 20_000, 150_000)
START_SECONDS = 30
REPLY_SECONDS = 60


class Client:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(REPLY_SECONDS)
        try:
            self.socket.connect(str(path))
        except OSError:
            self.socket.close()
            raise
        self.input = self.socket.makefile("rb")

    def close(self):
        self.input.close()
        self.socket.close()

    def exchange(self, request, expected):
        self.socket.sendall(request)
        got = b""
        while len(got) < len(expected) and expected.startswith(got):
            block = self.input.read1(len(expected) - len(got))
            if not block:
                break
            got += block
        if got != expected:
            raise AssertionError(f"expected {expected[:100]!r}, got {got[:100]!r}")


@expand
class MemcachedTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import real_text
        cls.memcached = require("memcached")
        text = b"".join(data for _, data in real_text.collect(int(TEXT * SCALE)))
        cls.values, at = [], 0
        while at < len(text):
            size = SIZES[len(cls.values) % len(SIZES)]
            cls.values.append(text[at:at + size])
            at += size

    def connect(self, path, process):
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.assertIsNone(process.poll(), "memcached ended during startup")
            try:
                return Client(path)
            except (FileNotFoundError, ConnectionRefusedError):
                self.assertLess(time.monotonic(), deadline, "memcached does not listen")
                time.sleep(0.01)

    def use(self, client):
        for number, value in enumerate(self.values):
            client.exchange(b"set k%d 0 0 %d\r\n%b\r\n" % (number, len(value), value), b"STORED\r\n")
        for number, value in enumerate(self.values):
            client.exchange(b"get k%d\r\n" % number, b"VALUE k%d 0 %d\r\n%b\r\nEND\r\n" % (number, len(value), value))
        for number, value in enumerate(self.values):
            if number % 3 == 0:
                client.exchange(b"delete k%d\r\n" % number, b"DELETED\r\n")
            if number % 3 == 1 and len(value) < 1000:
                client.exchange(b"append k%d 0 0 5\r\n, far\r\n" % number, b"STORED\r\n")
        for number, value in enumerate(self.values):
            if number % 3 == 1 and len(value) < 1000:
                value += b", far"
            found = b"" if number % 3 == 0 else b"VALUE k%d 0 %d\r\n%b\r\n" % (number, len(value), value)
            client.exchange(b"get k%d\r\n" % number, found + b"END\r\n")

    @variations(SHARES)
    def test_values(self, variation):
        path, stats = self.folder / f"{variation.name}.s", self.folder / f"{variation.name}.json"
        command = [*variation.launcher("--quiet", f"--stats=json:{stats}"), self.memcached, "-u", "root", "-m", "512",
                   "-t", "2", "-s", str(path)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   env=environment(), start_new_session=True)
        try:
            client = self.connect(path, process)
            self.use(client)
            client.close()
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, tail(errors))
        finally:
            end_group(process)
            process.communicate()
        self.check_far(json.loads(stats.read_text()), variation)


if __name__ == "__main__":
    main()
