"""Metrics and logs of servers and of programs, and the files of deploy/ that use them."""
import json
import re
import signal
import time
import urllib.request

from support import FARSIDE, PROGRAMS, ROOT, SMALL, environment, main, require, run, tail
from test_servers import SERVER_SECRET, START_SECONDS, TOKEN, Servers, free_port, read_until

STEADY = PROGRAMS / "steady"
DEPLOY = ROOT / "deploy"


def names(metrics):
    """The names of the metrics in a text of Prometheus' format."""
    return set(re.findall(r"^# TYPE (\S+)", metrics, re.MULTILINE))


def samples(metrics):
    return set(re.findall(r"^([a-z]\w*)", metrics, re.MULTILINE))


def value(metrics, sample):
    return float(re.search(rf"^{re.escape(sample)} (\S+)$", metrics, re.MULTILINE)[1])


class MetricsTest(Servers):
    def get(self, port, path="/metrics"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            return reply.read().decode()

    def check(self, *arguments, **options):
        result = run([require("promtool"), *map(str, arguments)], cwd=DEPLOY, **options)
        self.assertEqual(result.status, 0, tail(result.output + result.errors))

    def check_metrics(self, text):
        """promtool reads the text from its standard input, and finds nothing to complain about."""
        file = self.folder / "metrics"
        file.write_text(text)
        with open(file, encoding="utf8") as standard_input:
            self.check("check", "metrics", stdin=standard_input)

    def server_metrics(self):
        """What a server, a controller and a program print, after a program has used the server."""
        pool, controller, member = (free_port() for _ in range(3))
        self.secrets = self.tokens(f"client all {TOKEN}", f"server rack {SERVER_SECRET}")
        self.start([FARSIDE, "serve", "--controller", "--listen", f"127.0.0.1:{pool}", *self.secrets,
                    "--metrics", f"127.0.0.1:{controller}"])
        server, address = self.serve("--metrics", f"127.0.0.1:{member}", "--pool", f"127.0.0.1:{pool}")
        file = self.folder / "run.prom"
        program = self.start(self.client(SMALL[0], address, STEADY, 32, 1_000_000, options=("--metrics", f"file:{file}")))
        read_until(program.stdout, b"ready", 60)
        deadline = time.monotonic() + 30
        while not ("farside_run_processes{" in file.read_text() and re.search(r"farside_run_evictions_total\{.*\} [1-9]", file.read_text())):
            self.assertLess(time.monotonic(), deadline, file.read_text())
            time.sleep(0.1)
        while value(self.get(controller), 'farside_controller_servers{state="up"}') == 0:  # until the server's first report
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        texts = self.get(controller), self.get(member), file.read_text()
        self.assertEqual(self.get(member, "/healthz"), "ok\n")
        program.send_signal(signal.SIGTERM)
        program.wait(30)
        self.assertIn("farside_run_exit_status{", file.read_text())
        self.assertRegex(file.read_text(), r"farside_run_evictions_total\{.*\} [1-9]")  # though a signal ended it
        self.assertEqual(list(self.folder.glob("run.prom?*")), [])
        return texts

    def test_top_shows_servers_and_pools(self):
        pool, controller, member, none = (free_port() for _ in range(4))
        self.secrets = self.tokens(f"client all {TOKEN}", f"server rack {SERVER_SECRET}")
        self.start([FARSIDE, "serve", "--controller", "--listen", f"127.0.0.1:{pool}", *self.secrets,
                    "--metrics", f"127.0.0.1:{controller}"])
        _, address = self.serve("--metrics", f"127.0.0.1:{member}", "--pool", f"127.0.0.1:{pool}")
        program = self.start(self.client(SMALL[0], address, STEADY, 32, 1_000_000))
        read_until(program.stdout, b"ready", 60)
        deadline = time.monotonic() + 30
        while value(self.get(controller), 'farside_controller_servers{state="up"}') == 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        servers = ",".join(f"127.0.0.1:{port}" for port in (member, controller, none))
        top = [FARSIDE, "top", "--servers", servers, "--interval", "0.5", "--once"]
        rows = [json.loads(line) for line in run([*top, "--json"], seconds=60).output.splitlines()]
        found = {(row["server"].split(":")[1], row["part"]): row for row in rows}
        server, client = found[str(member), ""], found[str(member), "127.0.0.1"]
        self.assertEqual((server["lent_bytes"], client["clients"]), (512 << 20, 1))
        self.assertGreater(server["stored_bytes"], 20 << 20)
        self.assertGreater(server["operations_per_second"], 0)
        self.assertTrue(0 < server["mean_us"] and 0 < server["p99_us"], server)
        self.assertEqual(found[str(controller), address]["lent_bytes"], 512 << 20)
        self.assertFalse(found[str(none), ""]["replies"])
        text = run(top, seconds=60).output.decode().splitlines()
        self.assertEqual((text[0].split()[0], len(text)), ("SERVER", len(rows) + 1), text)
        self.assertTrue(text[-1].endswith("does not reply"), text)

    def test_metrics(self):
        controller, member, program = self.server_metrics()
        for text in (controller, member, program):
            self.check_metrics(text)
            self.assertIn('farside_build_info{', text)
        self.assertEqual(value(controller, 'farside_controller_servers{state="up"}'), 1)
        self.assertGreater(value(member, "farside_server_stored_bytes"), 0)
        self.assertGreater(value(member, 'farside_server_tenant_stored_bytes{tenant="127.0.0.1"}'), 0)
        self.assertGreater(value(member, 'farside_server_request_duration_seconds_count{operation="write"}'), 0)
        self.assertGreater(value(member, 'farside_server_pool_reports_total{result="accepted"}'), 0)
        self.assertGreater(value(member, "process_start_time_seconds"), 1e9)
        self.assertNotIn("process_", program)  # the node exporter has metrics of that name
        self.check_deployed(samples(controller) | samples(member) | samples(program))
        self.check_documented(names(controller) | names(member) | names(program))

    def check_deployed(self, known):
        """Rules and dashboard use no metric that is not printed."""
        dashboard = json.loads((DEPLOY / "dashboard.json").read_text(encoding="utf8"))
        used = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        used.append((DEPLOY / "rules.yaml").read_text(encoding="utf8"))
        for text in used:
            for name in re.findall(r"\b(?:farside|process)_[a-z_0-9]+", text):
                self.assertIn(name, known)

    def check_documented(self, printed):
        guide = (ROOT / "docs/guide/servers.md").read_text(encoding="utf8") + \
            (ROOT / "docs/guide/running.md").read_text(encoding="utf8")
        for name in printed:
            short = re.sub(r"^farside_(server|controller|run)_", "", name)
            counter = name.startswith("farside_run_") and name.endswith("_total")  # they have the names of the statistics
            self.assertTrue(counter or f"`{short}`" in guide, f"{name} is not in docs/guide/servers.md or running.md")

    def test_rules(self):
        self.check("check", "rules", "rules.yaml")
        self.check("test", "rules", "rules_test.yaml")
        self.check("check", "config", "prometheus.yaml")

    def test_json_log(self):
        """One line when a client comes and one when it has left, with what it had; every line is an object."""
        server, address = self.serve("--log-format", "json", "--log", "debug")
        result = run(self.client(SMALL[0], address, STEADY, 32, 3), seconds=60)
        self.assertEqual(result.status, 0, tail(result.errors))
        wrong = self.folder / "wrong"
        wrong.write_text("close sesame\n")
        self.assertEqual(run([FARSIDE, "run", "--far", address, "--token-file", wrong, "--", "true"]).status, 1)
        server.terminate()
        server.wait(START_SECONDS)
        lines = [json.loads(line) for line in server.stderr.read().decode().splitlines()]
        for line in lines:
            self.assertRegex(line["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line["level"], ("info", "debug", "warning"))
        left = [line for line in lines if line["message"] == "client disconnected"]
        came = [line for line in lines if line["message"] == "client connected"]
        self.assertEqual(sorted(line["region"] for line in left), sorted(line["region"] for line in came))
        largest = max(left, key=lambda line: line["stored_bytes"])
        self.assertGreater(largest["requests"], 10)
        self.assertGreater(largest["received_bytes"], largest["stored_bytes"])
        self.assertGreater(largest["duration_ms"], 0)
        refused = [line for line in lines if "token" in line["message"]]
        self.assertEqual([(line["level"], line["request"]) for line in refused], [("warning", "prove")])
        self.assertTrue(refused[0]["peer"].startswith("127.0.0.1:"))

    def test_metrics_of_a_run_over_http(self):
        port = free_port()
        program = self.start([FARSIDE, "run", "--quiet", "--local", "8M", "--metrics", f"127.0.0.1:{port}", "--", STEADY,
                              "32", "1000000"])
        read_until(program.stdout, b"ready", 60)
        time.sleep(0.7)  # the launcher looks several times a second
        text = self.get(port)
        self.check_metrics(text)
        for counter in ("faults_total", "evictions_total", "near_bytes", "heap_bytes", "budget_bytes", "saved_bytes"):
            self.assertRegex(text, rf"farside_run_{counter}{{.*}} [1-9]")
        for window in (1, 10, 60):
            self.assertGreater(float(re.search(rf"farside_run_pressure_{window}s{{.*}} (\S+)", text)[1]), 0)
        self.assertIn("farside_server_capacity_bytes{", text)  # of the run's own server
        self.assertIn("process_resident_memory_bytes", text)
        for option, bad in (("--metrics", "127.0.0.1:99999"), ("--metrics", f"127.0.0.1:{port}"),
                            ("--metrics", "file:/nowhere/run.prom")):
            result = run([FARSIDE, "run", option, bad, "--", "true"])
            self.assertEqual(result.status, 1)
            self.assertIn(bad.removeprefix("file:").encode(), result.errors)
            self.assertEqual(len(result.errors.splitlines()), 1, result.errors)

    def test_bad_log_options(self):
        for option in ("--log", "--log-format"):
            result = run([FARSIDE, "serve", "--memory", "16M", "--listen", "127.0.0.1:0", option, "loud"])
            self.assertEqual(result.status, 2)
            self.assertIn(option.encode(), result.errors)
            self.assertEqual(len(result.errors.splitlines()), 1, result.errors)


if __name__ == "__main__":
    main()
