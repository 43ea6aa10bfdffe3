"""Far memory by UCX over TCP and shared memory, and what happens without UCX, a card, or the server's process of UCX."""
import os
import signal
import subprocess
import time

from support import FARSIDE, SMALL, expand, main, run, tail, variations
from test_servers import START_SECONDS, STEADY, Servers, free_port, read_until

WITHIN = 10  # seconds, for processes that start or end beside the test


def children(pid):
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "farside-ucx export" in line]


@expand
class UcxTest(Servers):
    def serve_ucx(self, *options, transports="tcp"):
        place = f"127.0.0.1:{free_port()}"
        server = self.start([FARSIDE, "serve", "--memory", "512M", "--listen", place, "--token-file", self.token_file,
                             *(["--ucx", transports] if transports else []), *options])
        read_until(server.stderr, b"lending", START_SECONDS)
        return server, f"ucx://{place}"

    def exporters_become(self, server, count):
        begin = time.monotonic()
        while len(children(server.pid)) != count and time.monotonic() - begin < WITHIN:
            time.sleep(0.02)
        self.assertEqual(len(children(server.pid)), count)
        return children(server.pid)

    @variations(SMALL)
    def test_a_program(self, variation):
        """Its children too. No library of UCX is loaded into it, and the server's process ends with it."""
        server, address = self.serve_ucx()
        options = ("--far", address, "--tune", "ucx=tcp", "--token-file", str(self.token_file))
        script = "cat /proc/self/maps; seq 100000 | shuf | sort -n | sha256sum"
        native = self.native(["sh", "-c", script.partition("; ")[2]])
        far = self.far(variation, ["sh", "-c", script], options=options, evictions=False)
        self.assertTrue(far.output.endswith(native.output), tail(far.output))
        self.assertNotIn(b"libuc", far.output)
        self.assertEqual({process["transport"] for process in far.stats["processes"]}, {"ucx"})
        self.exporters_become(server, 0)

    def test_the_end_of_the_servers_process_is_survived(self):
        self.survives("tcp", signal.SIGKILL)

    def test_a_servers_process_that_hangs_is_survived(self):
        for transports in "tcp", "posix":
            with self.subTest(transports):
                self.survives(transports, signal.SIGSTOP)

    def survives(self, transports, reason):
        """The client goes on over TCP and loses nothing. If it still runs after a while, it uses UCX again."""
        server, address = self.serve_ucx(transports=transports)
        program = self.start(self.client(SMALL[0], address, STEADY, 48, 6, options=("--tune", f"ucx={transports}")))
        before = self.exporters_become(server, 1)
        os.kill(before[0], reason)
        begin = time.monotonic()
        while ((now := children(server.pid)) in ([], before) and program.poll() is None
               and time.monotonic() - begin < WITHIN):
            time.sleep(0.02)
        self.assertNotEqual(now, before)
        self.assertTrue(now or program.poll() is not None)
        output, errors = program.communicate(timeout=60)
        self.assertEqual((program.returncode, output), (0, b"ready\ndone\n"), tail(errors))

    def test_access_ends_with_a_client_that_is_killed(self):
        server, address = self.serve_ucx("--grace", "60")
        program = self.start(self.client(SMALL[0], address, STEADY, 48, 60, options=("--tune", "ucx=tcp")))
        self.exporters_become(server, 1)
        os.killpg(program.pid, signal.SIGKILL)
        self.exporters_become(server, 0)

    def test_a_server_without_ucx(self):
        _, address = self.serve_ucx(transports=None)
        result = run(self.client(SMALL[0], address, STEADY, 32, 1, options=("--tune", "ucx=tcp")), cwd=self.folder)
        self.assertEqual((result.status, result.output), (0, b"ready\ndone\n"), tail(result.errors))
        self.assertIn(b"[F112]", result.errors)

    def test_no_transport_and_no_library(self):
        """A message, and no program is started."""
        command = self.client(SMALL[0], "ucx://127.0.0.1:9", "true", options=("--tune", "ucx=nothing"))
        result = run(command, cwd=self.folder)
        self.assertEqual((result.status, result.output), (1, b""), tail(result.errors))
        self.assertIn(b"none of the transports 'nothing'", result.errors)
        # A library with this name that is none comes first.
        (self.folder / "libucp.so.0").write_text("no library")
        result = run(["env", f"LD_LIBRARY_PATH={self.folder}", *command], cwd=self.folder)
        self.assertEqual((result.status, result.output), (1, b""), tail(result.errors))
        self.assertIn(b"UCX cannot be loaded", result.errors)

    def test_doctor(self):
        result = run([FARSIDE, "doctor"], cwd=self.folder)
        self.assertIn(b"UCX 1.", result.output)
        self.assertRegex(result.output, rb"tcp \([^)]*\blo\b")
        (self.folder / "libucp.so.0").write_text("no library")
        result = run(["env", f"LD_LIBRARY_PATH={self.folder}", FARSIDE, "doctor"], cwd=self.folder)
        self.assertIn(b"not installed", result.output)
        self.assertIn(b"only ucx:// addresses need it", result.output)


if __name__ == "__main__":
    main()
