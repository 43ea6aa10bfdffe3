"""Functions that programs call on memory servers: the same results everywhere, and servers that survive everything."""
import contextlib
import os
import signal
import time
from pathlib import Path

from support import PROGRAMS, SMALL, expand, main, run, tail, variations
from test_servers import START_SECONDS, TOKEN, Servers, read_until

OFFLOAD = PROGRAMS / "offload"
CASES = ("scan", "change", "share", "list", "errors", "fibers", "forks", "storm", "map", "algorithms",
         "containers", "owners", "objects")
BY_SERVER = ("scan", "change", "list")  # every call of these runs on a server


def children_of(process):
    """The isolated processes of a server."""
    pids = []
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended, and its child with it
            pids += [int(pid) for pid in (task / "children").read_text(encoding="utf8").split()]
    return pids


@expand
class OffloadTest(Servers):
    def check_case(self, case, command):
        expected = self.once(case, lambda: run([OFFLOAD, case]))
        on_server = ["env", "OFFLOAD_ON_SERVER=1"] if case in BY_SERVER else []
        result = run([*on_server, *command], cwd=self.folder, seconds=120)
        self.assertEqual((result.status, result.output), (0, expected.output), tail(result.errors))
        if case in BY_SERVER:
            self.assertNotIn(b"local", result.errors)
            self.assertIn(b"server", result.errors)

    def wait_until_no_process(self, server):
        deadline = time.monotonic() + START_SECONDS
        while children_of(server):
            self.assertLess(time.monotonic(), deadline, "processes outlive their clients")
            time.sleep(0.05)

    @variations(SMALL)
    def test_results_are_the_same_over_shared_memory(self, variation):
        for case in CASES:
            with self.subTest(case):
                self.check_case(case, [*variation.launcher("--quiet", "--offload"), OFFLOAD, case])

    @variations(SMALL)
    def test_results_are_the_same_over_tcp(self, variation):
        server, address = self.serve("--offload")
        for case in CASES:
            with self.subTest(case):
                self.check_case(case, self.client(variation, address, OFFLOAD, case))
        self.wait_until_no_process(server)

    def test_functions_of_linked_objects(self):
        _, address = self.serve("--offload")
        result = run(self.client(SMALL[0], address, PROGRAMS / "offload_linked"), cwd=self.folder)
        self.assertEqual((result.status, result.output), (0, b"3 0\n"), tail(result.errors))
        self.assertIn(b"server", result.errors)

    def test_pools_reduce_on_each_server(self):
        servers = [self.serve("--offload") for _ in range(2)]
        result = run(self.client(SMALL[0], ",".join(address for _, address in servers), OFFLOAD, "scan"), cwd=self.folder)
        self.assertEqual(result.output, run([OFFLOAD, "scan"]).output, tail(result.errors))
        self.assertIn(b"for_each: server", result.errors)
        self.assertIn(b"sum: local", result.errors, "the array lies on two servers")

    def test_a_replica_serves_the_calls_of_one_that_died(self):
        servers = [self.serve("--offload") for _ in range(2)]
        addresses = ",".join(address for _, address in servers)
        program = self.start(self.client(SMALL[0], addresses, OFFLOAD, "replicas", options=("--replicas", "2")))
        read_until(program.stdout, b"ready", 60)
        time.sleep(0.3)
        servers[0][0].kill()
        output, errors = program.communicate(timeout=120)
        self.assertEqual((program.returncode, output), (0, b"done\n"), tail(errors))

    def test_without_permission_functions_run_locally(self):
        self.secrets = self.tokens(f"client all {TOKEN} allow=create,fork")
        for options, reason in ((("--offload",), b"may not call functions"), ((), b"executes no functions")):
            server, address = self.serve(*options, "--log", "debug")
            result = run(self.client(SMALL[0], address, OFFLOAD, "scan"), cwd=self.folder)
            self.assertEqual((result.status, result.output), (0, run([OFFLOAD, "scan"]).output), tail(result.errors))
            self.assertNotIn(b"server", result.errors)
            read_until(server.stderr, reason, START_SECONDS)

    def test_calls_at_a_time_have_a_process_each(self):
        """As many as the server permits; the others wait."""
        for permitted in (1, 2, 4):
            server, address = self.serve("--offload", "--offload-processes", str(permitted))
            program = self.start(["env", "OFFLOAD_ON_SERVER=1", *self.client(SMALL[0], address, OFFLOAD, "parallel")])
            most = 0
            while program.poll() is None:
                most = max(most, len(children_of(server)))
                time.sleep(0.005)
            self.assertEqual((program.returncode, program.stdout.read()), (0, b"30\n"), tail(program.stderr.read()))
            self.assertEqual(most, permitted)
            self.wait_until_no_process(server)

    def test_a_client_that_is_killed_leaves_no_process(self):
        server, address = self.serve("--offload")
        program = self.start(self.client(SMALL[0], address, OFFLOAD, "replicas"))
        read_until(program.stdout, b"ready", 60)
        read_until(program.stderr, b"server", 60)
        self.assertEqual(len(children_of(server)), 1)
        os.killpg(program.pid, signal.SIGKILL)
        self.wait_until_no_process(server)

    def test_a_server_that_stops_ends_its_processes(self):
        server, address = self.serve("--offload")
        program = self.start(self.client(SMALL[0], address, OFFLOAD, "replicas"))
        read_until(program.stderr, b"server", 60)
        process = children_of(server)[0]
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(START_SECONDS), 0)
        self.assertFalse(os.path.exists(f"/proc/{process}"))


if __name__ == "__main__":
    main()
