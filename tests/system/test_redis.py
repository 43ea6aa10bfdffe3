"""redis-server saves its data in a forked child (BGSAVE) while clients write."""
import json
import tempfile
import time

from support import MIB, SCALE, SHARES, SystemTest, expand, main, require, variations

TEXT = 5 * MIB // 2
SAVE_SECONDS = 120
CHANGES = 100  # minimum of batches written while the server saves
BATCH = 200


@expand
class RedisTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        require("redis-server")
        import real_text
        cls.lines = [(b"%b:%d" % (path.encode(), number), line)
                     for path, data in real_text.collect(int(TEXT * SCALE))
                     for number, line in enumerate(real_text.lines_of(data), 1)]

    def write(self, client, first, count, change=lambda line: line):
        from redis_server import encode
        chosen = [self.lines[i % len(self.lines)] for i in range(first, first + count)]
        client.pipeline([(b"".join(encode("SET", key, change(line)) for key, line in chosen), b"+OK\r\n" * count)])

    def save_while_writing(self, client, mark):
        """Returns the digest at the fork. The dump is then complete."""
        before = client.digest()
        client.command("BGSAVE")
        deadline = time.monotonic() + SAVE_SECONDS
        batches = 0
        while batches < CHANGES or client.info("persistence", "rdb_bgsave_in_progress") == "1":
            self.assertLess(time.monotonic(), deadline, "BGSAVE did not end")
            self.write(client, batches * BATCH, BATCH, lambda line: line[::-1] + mark)
            batches += 1
        self.assertEqual(client.info("persistence", "rdb_last_bgsave_status"), "ok")
        return before

    def digest_of_dump(self, folder):
        from redis_server import RedisServer
        with tempfile.TemporaryDirectory(prefix="farside-system-") as other:
            (self.folder / folder / "dump.rdb").rename(f"{other}/dump.rdb")
            with RedisServer(other) as server:
                client = server.client()
                digest = client.digest()
                client.close()
        return digest

    @variations(SHARES)
    def test_saves_while_clients_write(self, variation):
        from redis_server import RedisServer
        folder = self.folder / variation.name
        folder.mkdir()
        stats = folder / "stats.json"
        with open(folder / "log", "wb") as log:
            launcher = variation.launcher("--quiet", f"--stats=json:{stats}")
            with RedisServer(str(folder), launcher, log=log) as server:
                client = server.client()
                for first in range(0, len(self.lines), 1000):
                    self.write(client, first, min(1000, len(self.lines) - first))
                for mark in (b" first", b" second"):
                    at_fork = self.save_while_writing(client, mark)
                    self.assertEqual(self.digest_of_dump(folder), at_fork)
                    self.assertNotEqual(client.digest(), at_fork)  # the writes took effect
                client.close()
                self.assertEqual(server.shut_down(), 0, (folder / "log").read_text())
        self.check_far(json.loads(stats.read_text()), variation)


if __name__ == "__main__":
    main()
