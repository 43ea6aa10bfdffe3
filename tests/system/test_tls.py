"""Memory servers, programs and controllers over TLS, with certificates that the openssl command line makes."""
import json
import subprocess
import time

from support import FARSIDE, SMALL, expand, main, require, run, tail, variations
from test_offload import BY_SERVER, OFFLOAD
from test_servers import ENDS_WITHIN, START_SECONDS, STEADY, Servers, free_port, read_until

ABROAD = "192.0.2.1:7170"  # reserved for documentation: no connection is made to it


@expand
class TlsTest(Servers):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        require("openssl")
        for authority in ("ca", "other"):
            cls.openssl(authority, "-days", "30")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-days", "30", "-addext", "basicConstraints=CA:FALSE")
        cls.openssl("server", *signed, "-addext", "subjectAltName=IP:127.0.0.1")
        cls.openssl("client", *signed, "-addext", "extendedKeyUsage=clientAuth")

    @classmethod
    def openssl(cls, name, *options):
        """Makes a key and a certificate: NAME.key and NAME.pem."""
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj",
                        f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem", *options],
                       check=True, capture_output=True, cwd=cls.folder)

    IDENTITY = ("--tls", "cert=server.pem,key=server.key")
    CLIENT = ("--tls", "cert=client.pem,key=client.key")
    TRUST = ("--tls", "ca=ca.pem")
    MUTUAL = ("--tls", "ca=ca.pem,verify-clients")

    def serve_tls(self, *options, wait_for=b"lending"):
        place = f"127.0.0.1:{free_port()}"
        server = self.start([FARSIDE, "serve", "--listen", place, *self.IDENTITY, *options])
        read_until(server.stderr, wait_for, START_SECONDS)
        return server, place

    def run_far(self, address, *options, program=(STEADY, 32, 2), **more):
        return run([*SMALL[0].launcher("--quiet", "--far", address, *options), *map(str, program)], cwd=self.folder, **more)

    def refused(self, words, address, *options):
        result = self.run_far(address, *options, seconds=30)
        errors = result.errors.decode()
        self.assertEqual((result.status, result.output), (1, b""), errors)
        for word in words:
            self.assertIn(word, errors)
        self.assertEqual(errors.count("\n"), 1, errors)

    @variations(SMALL)
    def test_a_program(self, variation):
        """Its children too; the token is still needed. No library for TLS is loaded into it."""
        _, place = self.serve_tls("--memory", "512M", "--token-file", self.token_file)
        options = ("--far", f"tls://{place}", *self.TRUST, "--token-file", str(self.token_file))
        script = "cat /proc/self/maps; seq 100000 | shuf | sort -n | sha256sum"
        native = self.native(["sh", "-c", script.partition("; ")[2]])
        far = self.far(variation, ["sh", "-c", script], options=options, evictions=False)
        self.assertTrue(far.output.endswith(native.output), tail(far.output))
        self.assertNotIn(b"libssl", far.output)
        self.assertEqual({process["transport"] for process in far.stats["processes"]}, {"tls"})
        result = run(self.client(variation, f"tls://{place}", STEADY, 48, 3, options=self.TRUST), cwd=self.folder)
        self.assertEqual((result.status, result.output), (0, b"ready\ndone\n"), tail(result.errors))
        self.refused(["rejected the token"], f"tls://{place}", *self.TRUST)

    def test_functions_on_the_server(self):
        """The server relays calls, since the isolated process has no keys."""
        _, place = self.serve_tls("--memory", "512M", "--token-file", self.token_file, "--offload")
        for case in ("scan", "list", "errors", "map"):
            with self.subTest(case):
                expected = run([OFFLOAD, case])
                command = self.client(SMALL[0], f"tls://{place}", OFFLOAD, case, options=self.TRUST)
                result = run(["env", "OFFLOAD_ON_SERVER=1", *command] if case in BY_SERVER else command, cwd=self.folder)
                self.assertEqual((result.status, result.output), (0, expected.output), tail(result.errors))
                if case in BY_SERVER:
                    self.assertNotIn(b"local", result.errors)

    def test_client_certificates_instead_of_a_token(self):
        server, place = self.serve_tls("--memory", "512M", *self.MUTUAL)
        address = f"tls://{place}"
        result = self.run_far(address, *self.TRUST, *self.CLIENT)
        self.assertEqual((result.status, result.output), (0, b"ready\ndone\n"), tail(result.errors))
        self.refused(["client certificate is required", "--tls cert"], address, *self.TRUST)
        self.openssl("stranger", "-CA", "other.pem", "-CAkey", "other.key", "-days", "30")
        stranger = ("--tls", "cert=stranger.pem,key=stranger.key")
        self.refused(["does not accept the certificate"], address, *self.TRUST, *stranger)
        server.terminate()
        _, errors = server.communicate(timeout=20)
        self.assertIn(b"0 B of 512.0 MiB reserved", errors)  # no region waits for a client that was cut off

    def test_certificates_that_are_not_accepted(self):
        _, place = self.serve_tls("--memory", "64M")
        address = f"tls://{place}"
        self.refused([address, "certificate", "--tls ca"], address)
        self.refused([address, "certificate", "--tls ca"], address, "--tls", "ca=other.pem")
        self.refused([address, "hostname mismatch", "--tls ca and --tls name"], address, *self.TRUST, "--tls", "name=elsewhere.example")
        self.refused(["--tls ca", "missing.pem"], address, "--tls", "ca=missing.pem")
        self.refused(["--tls cert and --tls key"], address, *self.TRUST, "--tls", "cert=client.pem")

    def test_only_one_side_uses_tls(self):
        _, place = self.serve_tls("--memory", "64M")
        self.refused([f"tcp://{place}", "tls://HOST:PORT"], f"tcp://{place}")
        _, plain = self.serve()
        address = plain.replace("tcp", "tls")
        self.refused([address, "does not speak TLS", "--tls cert"], address, *self.TRUST)
        address = f"tls://127.0.0.1:{free_port()}"
        self.refused([address, "connection refused"], address, *self.TRUST)

    def test_a_server_is_killed(self):
        """One replica: the program reports it once and continues. Both: it ends."""
        servers = [self.serve_tls("--memory", "512M") for _ in range(2)]
        addresses = ",".join(f"tls://{place}" for _, place in servers)
        program = self.start([*SMALL[0].launcher("--quiet", "--far", addresses, "--replicas", "2", *self.TRUST), STEADY, 48,
                              1_000_000, "write"])
        read_until(program.stdout, b"ready", 60)
        servers[0][0].kill()
        read_until(program.stderr, b"1 of 2 replicas left", 20)
        servers[1][0].kill()
        _, errors = program.communicate(timeout=ENDS_WITHIN)
        self.assertNotIn(program.returncode, (0, 99), tail(errors))
        self.assertIn(servers[1][1], errors.decode())

    def test_one_server_as_two_replicas(self):
        """It has the same number over TLS and over shared memory."""
        socket = self.folder / "socket"
        _, place = self.serve_tls("--memory", "64M", "--unix", socket)
        twice = f"tls://{place},shm://{socket}"
        self.refused([f"tls://{place} and shm://{socket} are one memory server", "[F115]"], twice, "--replicas", "2", *self.TRUST)

    def test_a_pool(self):
        """All connections over TLS with certificates of both sides, and no token."""
        _, controller = self.serve_tls("--controller", *self.MUTUAL, wait_for=b"list")
        controller = f"pool+tls://{controller}"
        places = {self.serve_tls("--memory", "256M", "--pool", controller, *self.MUTUAL)[1] for _ in range(2)}
        deadline = time.monotonic() + 20
        while True:
            status = run([FARSIDE, "pool", "status", "--json", "--controller", controller, *self.TRUST, *self.CLIENT],
                         seconds=30, cwd=self.folder)
            self.assertEqual(status.status, 0, tail(status.errors))
            if len(json.loads(status.output)["servers"]) == 2:
                break
            self.assertLess(time.monotonic(), deadline, tail(status.output))
            time.sleep(0.1)
        listed = {server["address"] for server in json.loads(status.output)["servers"]}
        self.assertEqual(listed, {f"tls://{place}" for place in places})
        result = self.run_far(controller, "--replicas", "2", "--tls", "required", *self.TRUST, *self.CLIENT)
        self.assertEqual((result.status, result.output), (0, b"ready\ndone\n"), tail(result.errors))
        anonymous = run([FARSIDE, "pool", "status", "--controller", controller, *self.TRUST], seconds=30, cwd=self.folder)
        self.assertEqual(anonymous.status, 1)
        self.assertIn(b"client certificate is required", anonymous.errors)

    def test_plain_text_to_other_hosts(self):
        """It is refused with --tls required, also where only a controller's list names such a server."""
        self.refused([f"tcp://{ABROAD}", "--tls required"], f"tcp://{ABROAD}", "--tls", "required")
        self.refused([f"pool://{ABROAD}", "pool+tls://"], f"pool://{ABROAD}", "--tls", "required")
        for command in (["pool", "status", "--controller", ABROAD], ["serve", "--memory", "64M", "--listen", "0.0.0.0:0"]):
            result = run([FARSIDE, *command, "--tls", "required"], seconds=30, cwd=self.folder)
            self.assertIn(result.status, (1, 2), tail(result.errors))
            self.assertIn(b"--tls required", result.errors)
        _, controller = self.serve_tls("--controller", wait_for=b"list")
        controller = f"pool+tls://{controller}"
        plain = self.start([FARSIDE, "serve", "--memory", "64M", "--listen", f"127.0.0.1:{free_port()}", "--address",
                            f"tcp://{ABROAD}", "--pool", controller, *self.TRUST])
        read_until(plain.stderr, b"lending", START_SECONDS)
        time.sleep(1.5)  # it reports every second
        self.refused([f"tcp://{ABROAD}", "--tls required"], controller, "--tls", "required", *self.TRUST)

    def test_plain_text_to_other_hosts_is_reported(self):
        """Once for a run, and not where --tls required is absent."""
        result = run([FARSIDE, "run", "--patience", "0.1", "--far", f"tcp://{ABROAD}", "--", "true"], seconds=30)
        self.assertEqual(result.errors.count(b"is not encrypted"), 1, tail(result.errors))
        server = self.start([FARSIDE, "serve", "--memory", "64M", "--listen", "0.0.0.0:0", "--token-file", self.token_file])
        self.assertIn(b"not encrypted", read_until(server.stderr, b"lending", START_SECONDS))


if __name__ == "__main__":
    main()
