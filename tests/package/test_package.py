#!/usr/bin/env python3
"""Builds the Debian package from a build folder, installs it on this machine, uses it as a user would, and purges it.

BUILD_FOLDER names the build (default: build/release). Exits with 77 where the test cannot run: without root, without dpkg,
or where a package or a user called farside exists already.
"""
import os
import pwd
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD_FOLDER", ROOT / "build/release"))
NOTHING_TESTED = 77
MAX_INSTALLED_KIB = 24 << 10  # of it about 4 MiB are zstd, in each program that has a server or client
UNIT = Path("/lib/systemd/system/farside.service")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("FARSIDE_")} | {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
EXPECTED = """
/etc/farside/farside.conf
/lib/systemd/system/farside.service
/usr/bin/farside
/usr/include/farside/containers/vector.hpp
/usr/include/farside/farside.h
/usr/lib/cmake/farside/farside-config.cmake
/usr/lib/farside/libfarside_preload.so
/usr/lib/libfarside.so
/usr/lib/libfarside.so.0.1
/usr/lib/pkgconfig/farside.pc
/usr/libexec/farside/apps/gups
/usr/libexec/farside/farside-bench
/usr/libexec/farside/farside-plan
/usr/libexec/farside/farside-top
/usr/libexec/farside/farside-trace
/usr/libexec/farside/farside-track
/usr/share/bash-completion/completions/farside
/usr/share/doc/farside/README.md
/usr/share/doc/farside/copyright
/usr/share/doc/farside/examples/hints.c
/usr/share/man/man1/farside-run.1.gz
/usr/share/man/man1/farside.1.gz
/usr/share/man/man3/farside_hint.3.gz
/usr/share/zsh/vendor-completions/_farside
""".split()
EXAMPLES = Path("/usr/share/doc/farside/examples")
EXAMPLE_SOURCES = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in (".c", ".cc"))
# Called by inline functions of the headers only.
INTERNAL = {"farside_check_layout_", "farside_object_deref_slow", "farside_region_set_policy_", "farside_scopes_attach",
            "farside_scopes_release"}
# What changes when any package is installed: the state of package manager, linker and man-db.
NOT_OURS = re.compile(r"/(etc/(ld\.so\.cache|(passwd|group|shadow|gshadow|subuid|subgid)-?)|var/lib/dpkg/(?!info/)|"
                      r"var/lib/dpkg/info/format|var/lib/systemd|usr/share/man/.*index)")


def why_not():
    """Why the test cannot run here, or ""."""
    if os.geteuid() != 0:
        return "installing a package needs root"
    if not shutil.which("dpkg") or not shutil.which("cpack"):
        return "dpkg or cpack is missing"
    if subprocess.run(["dpkg", "--status", "farside"], capture_output=True, check=False).returncode == 0:
        return "a package farside is installed; it is left as it is"
    if user_exists() or Path("/etc/farside").exists():
        return "a user farside or /etc/farside exists; they are left as they are"
    return ""


def user_exists():
    try:
        return bool(pwd.getpwnam("farside"))
    except KeyError:
        return False


def run(*command, status=0, seconds=120, **options):
    """The output of a command that ends with that status; standard error is part of a failure's message."""
    result = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            check=False, timeout=seconds, **{"env": ENVIRONMENT, "cwd": "/", **options})
    if result.returncode != status:
        raise AssertionError(f"{shlex.join(map(str, command))}: status {result.returncode}, not {status}\n"
                             f"{result.stdout[-2000:]}\n{result.stderr[-2000:]}")
    return result.stdout


def system_files():
    found = set()
    for top in ("/etc", "/usr", "/var/lib", "/run/farside"):
        for folder, folders, files in os.walk(top):
            found.update(os.path.join(folder, name) for name in folders + files)
    return {path for path in found if not NOT_OURS.match(path) and "__pycache__" not in path}


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds} s: {what}")
        time.sleep(0.05)


def port_is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


# ---- The unit, as systemd reads it ----

def read_unit(path):
    """name -> list of values, of all sections together."""
    settings = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith(("#", ";")):
            settings.setdefault(name, []).append(value)
    return settings


def read_environment_file(path):
    pairs = (line.split("=", 1) for line in path.read_text(encoding="utf-8").splitlines()
             if "=" in line and not line.startswith(("#", ";")))
    return {name: "".join(shlex.split(value)) if value[:1] in "\"'" else value for name, value in pairs}


def expand(command, variables):
    """${NAME} is one word, $NAME as many as it has."""
    words = []
    for word in shlex.split(command):
        if re.fullmatch(r"\$\w+", word):
            words += variables.get(word[1:], "").split()
        else:
            words.append(re.sub(r"\$\{(\w+)\}", lambda match: variables.get(match[1], ""), word))
    return words


class Service:
    """`farside serve` as the unit starts it: its command line, its user, no capabilities, no new privileges."""

    def __init__(self, log):
        self.log = log
        self.unit = read_unit(UNIT)
        variables = read_environment_file(Path(self.unit["EnvironmentFile"][0]))
        self.command = expand(self.unit["ExecStart"][0], variables)
        self.user, self.group = self.unit["User"][0], self.unit["Group"][0]
        self.runtime = Path("/run") / self.unit["RuntimeDirectory"][0]
        self.process = None

    def start(self):
        self.runtime.mkdir(exist_ok=True)
        shutil.chown(self.runtime, self.user, self.group)
        # A container's root may be unable to raise the limit.
        files = min(int(self.unit["LimitNOFILE"][0]), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        as_user = ["prlimit", f"--nofile={files}", "setpriv", "--reuid", self.user, "--regid",
                   self.group, "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(as_user + self.command, cwd="/", env={"PATH": ENVIRONMENT["PATH"]},
                                            stdin=subprocess.DEVNULL, stderr=log, umask=0o077)

    def text(self):
        return self.log.read_text(encoding="utf-8")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self.process.wait()
            shutil.rmtree(self.runtime, ignore_errors=True)


# ---- The test ----

class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="farside-package-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.folder.chmod(0o755)
        run("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", cls.folder, cwd=BUILD)
        cls.package, = cls.folder.glob("*.deb")
        cls.before = system_files()
        cls.addClassCleanup(cls.purge)
        cls.install()
        cls.data = cls.folder / "numbers.txt"
        cls.data.write_text("".join(f"{number * 7919 % 1000003}\n" for number in range(300000)), encoding="utf-8")
        cls.sorted = run("sort", "-n", cls.data)

    @classmethod
    def install(cls):
        """With dpkg where all dependencies are there, else with apt."""
        try:
            run("dpkg", "--install", cls.package)
        except AssertionError:
            run("apt-get", "install", "-y", "-qq", "--no-install-recommends", cls.package)

    @classmethod
    def purge(cls):
        subprocess.run(["dpkg", "--purge", "farside"], capture_output=True, env=ENVIRONMENT, check=False)

    def field(self, name):
        return run("dpkg-deb", "--field", self.package, name).strip()

    def installed(self):
        return set(run("dpkg", "--listfiles", "farside").split("\n")) - {""}

    def test_name_size_and_dependencies(self):
        architecture = run("dpkg", "--print-architecture").strip()
        version = re.search(r"project\(farside VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
        self.assertEqual(self.package.name, f"farside_{version}_{architecture}.deb")
        self.assertLess(int(self.field("Installed-Size")), MAX_INSTALLED_KIB)
        depends = self.field("Depends")
        for library in ("libc6 (>= ", "libdw1 (>= ", "libncurses6 (>= ", "libstdc++6 (>= ", "passwd"):
            self.assertIn(library, depends)

    def test_every_file_is_where_it_belongs(self):
        files = self.installed()
        self.assertEqual([path for path in EXPECTED if path not in files and f"/usr{path}" not in files], [])
        for path in files:
            self.assertTrue(Path(path).exists(), path)
            self.assertEqual(os.stat(path).st_uid, 0, path)
            self.assertFalse(os.stat(path).st_mode & 0o022, f"{path} can be written by others than root")
        self.assertFalse([path for path in files if path.startswith("/usr/local") or str(ROOT) in path])

    def test_programs_are_stripped(self):
        for path in ("/usr/bin/farside", "/usr/lib/farside/libfarside_preload.so", "/usr/lib/libfarside.so",
                     "/usr/libexec/farside/farside-bench", "/usr/libexec/farside/farside-track"):
            self.assertNotIn(".debug_info", run("readelf", "--section-headers", "--wide", path), path)

    def test_a_program_runs_far(self):
        out = run("/usr/bin/farside", "run", "--quiet", "--local", "25%", "--", "sort", "-n", self.data)
        self.assertEqual(out, self.sorted)

    def test_tools_are_found(self):
        out = self.folder / "track"
        run("/usr/bin/farside", "track", "--quiet", "--out", out, "--", "sort", "-n", self.data)
        self.assertTrue((out / "track.json").exists())

    def test_benchmarks_are_found(self):
        out = self.folder / "policies.json"
        run("/usr/bin/farside", "bench", "policies", "--pages", "500", "--accesses", "5000", "--json", out, "--quiet")
        self.assertTrue(out.exists())
        run("/usr/libexec/farside/apps/gups", "--size", "4M", "--verify", "on")

    def test_programs_are_built_with_the_library(self):
        source = self.folder / "hinted.c"
        source.write_text('#include <farside/farside.h>\n#include <stdio.h>\nint main(void) {\n  struct farside_stats s;\n'
                          '  farside_get_stats(&s);\n  puts("linked");\n  return 0;\n}\n', encoding="utf-8")
        flags = run("pkg-config", "--cflags", "--libs", "farside").split()
        run("cc", source, "-o", self.folder / "hinted", *flags)
        self.assertEqual(run(self.folder / "hinted"), "linked\n")
        self.assertEqual(run("/usr/bin/farside", "run", "--quiet", "--", self.folder / "hinted"), "linked\n")

    def test_cmake_finds_the_library(self):
        project = self.folder / "project"
        project.mkdir()
        (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nproject(x LANGUAGES CXX)\n"
                                                "find_package(farside 0.1 REQUIRED)\nadd_executable(x x.cc)\n"
                                                "target_compile_features(x PRIVATE cxx_std_20)\n"
                                                "target_link_libraries(x farside::farside)\n", encoding="utf-8")
        (project / "x.cc").write_text("#include <farside/ptr.hpp>\nint main() { farside::deref_scope scope; }\n",
                                      encoding="utf-8")
        run("cmake", "-S", project, "-B", project / "build")
        run("cmake", "--build", project / "build")
        run(project / "build/x")

    def check_example(self, program, name):
        """It prints the same natively and far, and something."""
        native = run(program)
        self.assertTrue(native.strip(), name)
        options = ["--offload"] if name == "offload" else []
        self.assertEqual(run("/usr/bin/farside", "run", "--quiet", "--local", "25%", *options, "--", program), native, name)

    def test_examples_are_built_by_cmake(self):
        build = self.folder / "examples"
        run("cmake", "-S", EXAMPLES, "-B", build, "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        run("cmake", "--build", build)
        for source in EXAMPLE_SOURCES:
            self.check_example(build / source.stem, source.stem)

    def test_examples_are_built_by_pkg_config(self):
        flags = run("pkg-config", "--cflags", "--libs", "farside").split()
        for source in EXAMPLE_SOURCES:
            compiler = ["cc"] if source.suffix == ".c" else ["c++", "-std=c++20", "-pthread"]
            program = self.folder / f"by_pkg_config_{source.stem}"
            run(*compiler, "-O2", "-Wall", "-Wextra", "-Werror", EXAMPLES / source.name, "-o", program, *flags)
            self.check_example(program, source.stem)

    def test_each_function_of_the_library_has_a_man_page(self):
        symbols = run("nm", "--dynamic", "--defined-only", "/usr/lib/libfarside.so").split()
        functions = {name.split("@")[0] for kind, name in zip(symbols[1:], symbols[2:]) if kind == "T"}
        pages = {path.name.removesuffix(".3.gz") for path in Path("/usr/share/man/man3").glob("farside*")}
        self.assertLess({"farside_hint_slow", "farside_fiber_run", "farside_offload_call"}, functions)
        self.assertLessEqual(functions - INTERNAL, pages)
        for page in pages:
            formatted = subprocess.run(["man", "--warnings=all", "3", page], capture_output=True, text=True,
                                       env=ENVIRONMENT, check=False)
            self.assertEqual(formatted.stderr, "", page)
            for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"):
                self.assertIn(f"\n{heading}\n", "\n" + formatted.stdout, page)

    def test_man_pages(self):
        commands = re.findall(r"^  (\w+) +[A-Z]", run("/usr/bin/farside", "--help").split("ubcommands:")[1], re.MULTILINE)
        self.assertIn("run", commands)
        for page in ["farside", *(f"farside-{command}" for command in commands)]:
            path = run("man", "--where", page).strip()
            self.assertEqual(path, f"/usr/share/man/man1/{page}.1.gz")
            formatted = subprocess.run(["man", "--warnings=all", page], capture_output=True, text=True, env=ENVIRONMENT,
                                       check=False)
            self.assertEqual(formatted.stderr, "", page)
            for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"):
                self.assertIn(f"\n{heading}\n", "\n" + formatted.stdout, page)

    def complete(self, *words):
        script = ("compopt() { :; }; source /usr/share/bash-completion/completions/farside; COMP_WORDS=(\"$@\"); "
                  "COMP_CWORD=$(($# - 1)); _farside; printf '%s\\n' \"${COMPREPLY[@]}\"")
        return run("bash", "-c", script, "bash", *words).split()

    def test_completions(self):
        self.assertTrue({"run", "serve", "ctl", "bench", "pool"} <= set(self.complete("farside", "")))
        self.assertEqual(self.complete("farside", "run", "--repl"), ["--replicas"])
        self.assertEqual(self.complete("farside", "run", "--fault", "hand"), ["handler"])
        self.assertIn("near", self.complete("farside", "bench", "objects", "--suites", ""))
        self.assertIn("sort", self.complete("farside", "run", "--", "sor"))
        if shutil.which("zsh"):
            run("zsh", "-n", "/usr/share/zsh/vendor-completions/_farside")

    def test_the_service_serves_as_its_user(self):
        service = Service(self.folder / "service.log")
        port = int(re.search(r"127\.0\.0\.1:(\d+)", " ".join(service.command)).group(1))
        wait_until(lambda: port_is_free(port), 60, f"something else listens at port {port}")
        token = service.command[service.command.index("--token-file") + 1]
        self.assertEqual(os.stat(token).st_mode & 0o777, 0o640)
        self.assertEqual(os.stat(token).st_gid, pwd.getpwnam("farside").pw_gid)
        service.start()
        try:
            wait_until(lambda: not port_is_free(port) or service.process.poll() is not None, 20, "no server")
            self.assertIsNone(service.process.poll(), service.text())
            status = Path(f"/proc/{service.process.pid}/status").read_text(encoding="utf-8")
            uid = pwd.getpwnam("farside").pw_uid
            self.assertIn(f"Uid:\t{uid}\t{uid}", status)
            self.assertIn("CapBnd:\t0000000000000000", status)
            far = ["--far", f"tcp://127.0.0.1:{port}"]
            out = run("/usr/bin/farside", "run", "--quiet", "--local", "25%", *far, "--token-file", token, "--", "sort",
                      "-n", self.data)
            self.assertEqual(out, self.sorted)
            wrong = self.folder / "wrong"
            wrong.write_text("wrong\n", encoding="utf-8")
            run("/usr/bin/farside", "run", *far, "--token-file", wrong, "--", "true", status=1)
        finally:
            self.assertEqual(service.stop(), 0, service.text())
        self.assertIn("stopped", service.text())

    def test_systemd_accepts_the_unit(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("systemd-analyze is not installed")
        run("systemd-analyze", "verify", "--man=no", UNIT)
        # Tenths of a point; 0 is the least exposure.
        run("systemd-analyze", "security", "--offline=yes", "--threshold=20", UNIT)

    def test_zz_nothing_is_left_after_a_purge(self):
        run("dpkg", "--remove", "farside")
        self.assertTrue(Path("/etc/farside/farside.conf").exists(), "removing keeps the configuration")
        self.assertFalse(Path("/usr/bin/farside").exists())
        run("dpkg", "--purge", "farside")
        self.assertFalse(user_exists())
        self.assertEqual(sorted(system_files() - self.before), [])


def main():
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        return NOTHING_TESTED
    return 0 if unittest.main(exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
