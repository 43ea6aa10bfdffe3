"""The command line of farside run: exit statuses, signals, arguments, errors."""
import ctypes
import json
import os
import re
import signal
import struct
import subprocess
import time
import xml.dom.minidom
from pathlib import Path

from support import FARSIDE, LaunchTest, NOT_FOUND, NOT_RUNNABLE, PROGRAMS, PYTHON, USAGE, end_group, environment, main, run, tail

STATUS = PROGRAMS / "status"
VMSPLICE, MEMFD_CREATE = 278, 319  # numbers of system calls, x86-64


class LauncherTest(LaunchTest):
    def test_exit_status(self):
        for status in (0, 1, 7, 77, 255):
            self.assertEqual(self.launch("--quiet", "--", STATUS, "status", status).status, status)

    def test_the_mode_is_announced_once(self):
        """Also by bash, which has an unsetenv() of its own."""
        result = self.launch("--", "bash", "-c", "/bin/true; /bin/true")
        self.assertEqual(result.errors.decode().count("far memory over shm"), 1, result.errors.decode())

    def test_death_by_signal(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGINT):
            result = self.launch("--quiet", "--", STATUS, "signal", int(number))
            self.assertIn(result.status, (-number, 128 + number), number)

    def test_core_dump(self):
        """A core has the size of the memory that was used, and not of all addresses that Farside reserves."""
        if Path("/proc/sys/kernel/core_pattern").read_text().startswith("|"):
            self.skipTest("cores are written to a program")
        script = f"ulimit -c unlimited; exec {FARSIDE} run --quiet --local 8M -- {STATUS} signal 11"
        run(["sh", "-c", script], seconds=60, cwd=self.folder, env=environment())
        cores = list(self.folder.glob("core*"))
        if not cores:
            self.skipTest("this machine writes cores elsewhere")
        self.assertLess(cores[0].stat().st_size, 1 << 30)
        cores[0].unlink()

    def core_of(self, *options):
        """The bytes of the core of a program that fills 48 MiB and then aborts; None if it left none."""
        if Path("/proc/sys/kernel/core_pattern").read_text().startswith("|"):
            self.skipTest("cores are written to a program")
        program = "import os; b = [b'%015d\\n' % i * 256 for i in range(12288)]; os.abort()"
        command = f'ulimit -c unlimited; exec "$0" run --local 8M "$@" -- {PYTHON} -c "{program}"'
        result = run(["sh", "-c", command, FARSIDE, *options], seconds=60, cwd=self.folder, env=environment())
        self.assertIn(result.status, (-6, 134), tail(result.errors))
        cores = list(self.folder.glob("core*"))
        data = cores[0].read_bytes() if cores else None
        self.far_ranges = self.ranges_of(cores[0]) if cores else None
        for core in cores:
            core.unlink()
        return data, result.errors.decode()

    def ranges_of(self, core):
        """What `farside core` prints, of the file, of an address in the first range, and of one before it."""
        ranges = json.loads(run([FARSIDE, "core", "--json", core], seconds=30).output)["far"]
        for address in (ranges[0]["begin"], ranges[0]["begin"] - 1) if ranges else ():
            answer = run([FARSIDE, "core", core, hex(address)], seconds=30).output.decode()
            self.assertIn("not far" if address < ranges[0]["begin"] else "far: ", answer)
        return ranges

    def test_content_of_cores(self):
        """--tune core: what was near, all of far memory, or no core."""
        near, errors = self.core_of()
        if near is None:
            self.skipTest("this machine writes cores elsewhere")
        pages = [b"%015d\n" % i * 200 for i in range(0, 12288, 256)]
        self.assertLess(sum(page in near for page in pages), len(pages) // 2)
        self.assertIn("--tune core=all", errors)
        far_bytes = sum(r["end"] - r["begin"] for r in self.far_ranges)
        self.assertTrue(30 << 20 < far_bytes < 80 << 20, far_bytes)
        everything, errors = self.core_of("--tune=core=all")
        self.assertEqual(sum(page in everything for page in pages), len(pages), errors)
        self.assertEqual(self.far_ranges, [])
        self.assertNotIn("--tune core=all", errors)
        self.assertIsNone(self.core_of("--tune=core=none")[0])
        for file, words in ((FARSIDE, "is not a core dump"), (self.folder / "nothing", "cannot open")):
            result = run([FARSIDE, "core", file], seconds=30)
            self.assertEqual(result.status, 1)
            self.assertIn(words, result.errors.decode())
        self.refused(USAGE, ["--tune core=some is not valid"], "--tune=core=some", "--", "true")
        self.refused(1, ["--tune core=all", "signal mode"], "--quiet", "--tune=core=all", "--fault=handler", "--",
                     "true")

    def test_signals_reach_the_program(self):
        process = subprocess.Popen([FARSIDE, "run", "--quiet", "--", STATUS, "wait"], stdout=subprocess.PIPE,
                                   env=environment(), start_new_session=True)
        self.addCleanup(end_group, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        process.terminate()
        self.assertEqual(process.wait(30), 42)
        process.stdout.close()

    def test_an_interrupted_run_prints_its_summary(self):
        """Ctrl-C reaches the whole process group; SIGTERM and SIGHUP the launcher, which passes them on."""
        for number, send in ((signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill), (signal.SIGHUP, os.kill)):
            process = subprocess.Popen(
                [FARSIDE, "run", "--local", "8M", "--stats=json:stats.json", "--", PROGRAMS / "steady", "24", "1000000"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=self.folder, start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            self.addCleanup(end_group, process)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            send(process.pid, number)
            errors = process.communicate(timeout=60)[1].decode()
            self.assertEqual(process.returncode, -number, errors)
            self.assertIn(f"farside: the program was ended by signal {int(number)} (", errors)
            self.assertNotIn("counters are lost", errors)
            self.assertIn("lost in faults", errors)
            stats = json.loads((self.folder / "stats.json").read_text())
            self.assertEqual((stats["signal"], len(stats["processes"]), stats["ended_without_report"]), (number, 1, 0))
            self.assertGreater(stats["totals"]["evictions"], 0)

    def test_a_program_that_cannot_report_leaves_figures_and_the_reason(self):
        """Its own report is missing; what it had when the launcher looked last is there."""
        work = "import os, sys, time; b = [bytes([i % 251]) * 65536 for i in range(500)]; time.sleep(1); os.kill(os.getpid(), int(sys.argv[1]))"
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT):
            for mode in ("signal", "handler"):
                result = self.launch("--local", "8M", "--tune=core=none", f"--fault={mode}", "--stats=json:stats.json", "--", PYTHON, "-c",
                                     work, int(number))
                self.assertEqual(result.status, -number)
                lines = result.errors.decode().splitlines()
                self.assertLessEqual(len(lines), 5, lines)  # the first is printed at the start
                self.assertRegex(lines[1], "python3.*: .* of a heap of .* near at most")
                self.assertIn("lost in faults", lines[2])
                self.assertRegex(lines[-1], rf"^farside: the program was ended by signal {int(number)} \([A-Z][a-z ]+\)$")
                stats = json.loads((self.folder / "stats.json").read_text())
                self.assertEqual((stats["signal"], stats["reason"]), (number, lines[-1].removeprefix("farside: ")))
                self.assertTrue(stats["processes"][0]["ended_without_report"])
                self.assertGreater(stats["totals"]["evictions"], 0)
                self.assertGreater(stats["totals"]["heap_peak_bytes"], 20 << 20)

    def test_a_picture_of_a_run(self):
        result = self.launch("--local", "8M", "--timeline", "run.svg", "--", PROGRAMS / "steady", "24", "60")
        self.assertEqual(result.status, 0, result.errors.decode())
        lines = xml.dom.minidom.parse(str(self.folder / "run.svg")).getElementsByTagName("polyline")
        self.assertEqual(len(lines), 4)  # near, far, budget, pressure
        self.assertTrue(all(len(line.getAttribute("points").split()) > 2 for line in lines))
        result = self.launch("--timeline", "/proc/no/run.svg", "--", "true")
        self.assertEqual((result.status, len(result.errors.splitlines())), (1, 1), result.errors.decode())

    def test_full_far_memory_is_one_line_and_a_count(self):
        program = ("import time\nkept = []\ntry:\n    while True: kept.append(bytearray(1 << 20)); time.sleep(0.02)\n"
                   "except MemoryError: pass\nfor _ in range(500):\n    try: kept.append(bytearray(1 << 20))\n"
                   "    except MemoryError: pass")
        result = self.launch("--local", "8M", "--far-memory", "64M", "--stats=json:stats.json", "--", PYTHON, "-c", program)
        errors = result.errors.decode()
        self.assertEqual(result.status, 0, errors)
        self.assertEqual(len(re.findall("far memory is full", errors)), 1, errors)
        self.assertIn("(--far-memory)", errors)
        self.assertEqual(len(re.findall("% of far memory .* is reserved, and soon the server is full; raise --far-memory", errors)), 1, errors)
        refused = re.search(r"far memory was full: (\d+) requests for memory were refused", errors)
        self.assertGreaterEqual(int(refused.group(1)), 500)
        stats = json.loads((self.folder / "stats.json").read_text())
        self.assertEqual(stats["totals"]["refused_reservations"], int(refused.group(1)))

    def test_a_failed_run_leaves_no_empty_files(self):
        result = self.launch("--stats=json:failed.json", "--far", "tcp://127.0.0.1:1", "--", "true")
        self.assertEqual(result.status, 1, result.errors.decode())
        self.assertFalse((self.folder / "failed.json").exists())

    def test_arguments_and_streams(self):
        words = ["", "a b", "--local", "é\n", "*", "--"]
        result = self.launch("--quiet", "--", STATUS, "echo", *words)
        self.assertEqual(result.output.decode(), "".join(word + "\n" for word in words))
        self.assertEqual(result.errors, b"")
        text = b"through and through\n" * 100_000
        (self.folder / "input").write_bytes(text)
        with open(self.folder / "input", "rb") as file:
            self.assertEqual(self.launch("--quiet", "--", "cat", stdin=file).output, text)

    def test_script(self):
        script = self.folder / "script"
        script.write_text("#!/bin/sh\necho \"$1\"\nexit 3\n")
        script.chmod(0o755)
        result = self.launch("--quiet", "--", script, "word")
        self.assertEqual((result.status, result.output), (3, b"word\n"))

    def test_summary_and_statistics(self):
        result = self.launch("--stats=json:stats.json", "--", STATUS, "status", 5)
        self.assertEqual(result.status, 5)
        lines = result.errors.decode().splitlines()
        self.assertTrue(lines and all(line.startswith("farside: ") for line in lines), lines)
        stats = json.loads((self.folder / "stats.json").read_text())
        self.assertEqual(stats["exit_status"], 5)
        self.assertEqual(len(stats["processes"]), 1)
        self.assertIsNone(stats["reason"])
        self.assertLess(len(lines), len(self.launch("--verbose", "--", STATUS, "status", 0).errors.splitlines()))
        for name in ("mode", "local_bytes", "heap_peak_bytes", "near_peak_bytes"):
            self.assertIn(name, stats["processes"][0])

    def test_audited_programs(self):
        """The tunable that they need is hidden, and the program's own are kept."""
        audit = f"LD_AUDIT={PROGRAMS / 'audit.so'}"
        script = ["sh", "-c", 'echo "[$GLIBC_TUNABLES]"']
        for tunables, expected in (([], b"[]\n"), (["GLIBC_TUNABLES=glibc.malloc.perturb=1"], b"[glibc.malloc.perturb=1]\n")):
            inner = run([FARSIDE, "run", "--quiet", "--local", "8M", "--", "env", audit, *tunables, *script])
            self.assertEqual((inner.status, inner.output, inner.errors), (0, expected, b""))
            outer = run(["env", audit, *tunables, FARSIDE, "run", "--quiet", "--local", "8M", "--", *script])
            self.assertEqual((outer.status, outer.output, outer.errors), (0, expected, b""))

    def test_audited_children(self):
        """By every function that executes programs, in handler mode also; the library is loaded, so memory is far."""
        audit = f"LD_AUDIT={PROGRAMS / 'audit.so'}"
        for mode in ("signal", "handler"):
            for way in ("execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat",
                        "posix_spawn", "posix_spawnp", "vfork", "system", "popen"):
                for outside in ([], [audit]):
                    result = run([FARSIDE, "run", "--quiet", "--local", "8M", f"--fault={mode}", "--", "env", *outside,
                                  PROGRAMS / "executions", way, audit if not outside else "NONE=1"])
                    self.assertEqual((result.status, result.output, result.errors), (0, b"true far\n", b""),
                                     (mode, way, outside))

    def test_a_limit_on_addresses(self):
        """Far space is as large as it permits; where it permits too little, the run does not start."""
        text = self.folder / "lines"
        text.write_text("".join(f"{i * 7919 % 100003}\n" for i in range(50000)))
        expected = run(["sort", text]).output
        for mode in ("signal", "handler"):
            for kib in (4000000, 600000):
                far = f"ulimit -v {kib}; exec {FARSIDE} run --quiet --local 8M --fault={mode} -- sort {text}"
                result = run(["sh", "-c", far])
                self.assertEqual((result.status, result.output), (0, expected), result.errors)
                self.assertIn(b"ulimit -v", result.errors)
        result = run(["sh", "-c", f"ulimit -v 200000; exec {FARSIDE} run --quiet --local 8M -- sort {text}"])
        self.assertEqual((result.status, result.output), (1, b""), result.errors)
        self.assertIn(b"ulimit -v", result.errors)

    def test_the_server_of_a_run_compresses_what_is_not_used(self):
        program = ["python3", "-c", "import time; x = [str(i) * 20 for i in range(200000)]; time.sleep(4); print(len(x))"]
        shares = {}
        for switch in ("auto", "off"):
            result = self.launch("--local", "8M", "--tune", f"compress={switch}", "--stats", "json:run.json", "--", *program)
            self.assertEqual((result.status, result.output), (0, b"200000\n"), result.errors)
            server = json.loads((self.folder / "run.json").read_text())["server"]
            self.assertGreater(server["stored_mean_bytes"], 0)
            shares[switch] = server["used_mean_bytes"] / server["stored_mean_bytes"]
            self.assertEqual(b"of RAM: far memory is in this machine's, too, compressed to" in result.errors, switch == "auto")
        self.assertLess(shares["auto"], 0.95)
        self.assertGreaterEqual(shares["off"], 1)

    def test_options_from_the_environment(self):
        result = self.launch("--", STATUS, "status", 0,
                             env=environment(FARSIDE_QUIET="1", FARSIDE_LOCAL="64M", FARSIDE_STATS="json:env.json"))
        self.assertEqual((result.status, result.errors), (0, b""))
        process = json.loads((self.folder / "env.json").read_text())["processes"][0]
        self.assertEqual(process["local_bytes"], 64 << 20)

    def test_help_and_version(self):
        for words in (["--help"], ["--version"], ["run", "--help"], ["serve", "--help"], ["doctor", "--help"]):
            result = run([FARSIDE, *words], seconds=30)
            self.assertEqual(result.status, 0, words)
            self.assertTrue(result.output)

    def test_statuses_in_the_help(self):
        for status in (b"134", b"137", b"139"):
            self.assertIn(status, self.launch("--help").output)

    def test_errors(self):
        self.refused(USAGE, ["--lokal is not an option", "did you mean --local?"], "--lokal", "1G", "--", "true")
        self.refused(USAGE, ["did you mean --tune policy=VALUE?"], "--polcy", "lru", "--", "true")
        self.refused(USAGE, ["did you mean --tune log=VALUE?"], "--log", "info", "--", "true")
        for bad in ("banana", "0", "-5M", "900%", "1M"):
            self.refused(USAGE, [f"--local={bad} is not valid; use 8M or more"], "--local", bad, "--", "true")
        self.refused(USAGE, ["--fault=maybe is not valid; use auto, signal or handler"], "--fault=maybe", "--", "true")
        self.refused(USAGE, ["--tune evictors=9 is not valid; use 1 to 8"], "--tune", "evictors=9", "--", "true")
        self.refused(USAGE, ["--patience=100 is not valid; use 0.1 to 29"], "--patience", "100", "--", "true")
        self.refused(USAGE, ["--tune has no key 'evictor'; did you mean evictors?"], "--tune", "evictor=2", "--", "true")
        self.refused(USAGE, ["--stats=xml:x is not valid; use json:FILE"], "--stats=xml:x", "--", "true")
        self.refused(USAGE, ["put -- before the program: farside run --local 1G -- sort x"], "--local", "1G", "sort", "x")
        self.refused(USAGE, ["program"], "--local", "1G", "--")
        self.refused(USAGE, ["no/such/token"], "--token-file", "no/such/token", "--", "true")
        self.refused(USAGE, ["nonsense"], "--far", "nonsense", "--", "true")

    def without_call(self, *numbers):
        """Forbids system calls (EPERM) in the process that calls it, and in what it executes."""
        allow, deny, load, equal = 0x7FFF0000, 0x00050000 | 1, 0x20, 0x15
        lines = [(load, 0, 0, 0)]
        for number in numbers:
            lines += [(equal, 0, 1, number), (6, 0, 0, deny)]
        lines.append((6, 0, 0, allow))
        program = b"".join(struct.pack("HBBI", *line) for line in lines)
        buffer = ctypes.create_string_buffer(program)
        header = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(buffer))
        libc = ctypes.CDLL(None)
        libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
        if libc.prctl(22, 2, ctypes.create_string_buffer(header), 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
            os._exit(99)

    def advice_of_doctor(self, name, **options):
        checks = json.loads(run([FARSIDE, "doctor", "--json"], env=environment(), **options).output)["checks"]
        return next(check["advice"] for check in checks if check["name"] == name)

    def test_what_cannot_work_is_refused_as_doctor_says(self):
        """In the same words, before the program starts."""
        cases = [("page hold", [VMSPLICE], []), ("memory files", [MEMFD_CREATE], [])]
        if os.geteuid() == 0 and Path("/proc/sys/vm/unprivileged_userfaultfd").read_text().strip() == "0":
            nobody = {"user": 65534, "group": 65534, "extra_groups": []}
            cases.append(("userfaultfd", [], ["--fault=handler"]))
        for check, forbidden, options in cases:
            how = {"preexec_fn": lambda: self.without_call(*forbidden)} if forbidden else nobody
            result = run([FARSIDE, "run", *options, "--", "/bin/echo", "started"], env=environment(), **how)
            self.assertEqual((result.status, result.output), (1, b""), tail(result.errors))
            self.assertIn(self.advice_of_doctor(check, **how), result.errors.decode())
            self.assertIn("[F504]", result.errors.decode())

    def test_identifiers(self):
        for words, identifier in ((["--lokal"], "F001"), (["--", "/no/such"], "F003"),
                                  (["--far", "tcp://127.0.0.1:1", "--", "true"], "F101")):
            self.assertTrue(self.launch(*words).errors.rstrip().endswith(f"[{identifier}]".encode()), words)

    def test_an_empty_value_is_an_error_everywhere(self):
        for option in ("--local", "--far", "--stats", "--tune", "--tls", "--token-file", "--metrics"):
            variable = "FARSIDE_" + option[2:].upper().replace("-", "_")
            for words in ((option, ""), (f"{option}=",)):
                self.refused(USAGE, [f"{option} has an empty value"], *words, "--", "true")
            self.refused(USAGE, [f"{variable} has an empty value"], "--", "true", env=environment(**{variable: ""}))
        self.refused(USAGE, ["--tune policy has an empty value"], "--tune", "policy=", "--", "true")

    def test_misspelt_command(self):
        result = run([FARSIDE, "rnu", "--", "true"], seconds=30)
        self.assertEqual((result.status, result.output), (USAGE, b""))
        self.assertIn(b"farside has no command rnu; did you mean run?", result.errors)

    def test_help_of_tune(self):
        self.assertLessEqual(len(re.findall(rb"^  --[a-z-]+", self.launch("--help").output, re.MULTILINE)), 16)
        keys = self.launch("--help-tune").output.decode()
        for key in ("log", "core", "policy", "evictors", "prefetch", "writeback", "paths", "page-share", "space", "ucx"):
            self.assertRegex(keys, rf"(?m)^  {key}=")
        self.assertRegex(keys, r"(?m)^  --fault MODE ")

    def test_sizes_are_printed_in_their_unit(self):
        self.assertIn(b", 16.0 TiB near,", self.launch("--local", "16T", "--", "true").errors)

    def test_a_run_in_a_run_has_its_options_and_changes_them(self):
        """Options of the outer run hold in the inner one, where its command line and environment have no others."""
        inner = f"FARSIDE_LOCAL=32M {FARSIDE} run --stats=json:inner.json -- {STATUS} status 0"
        result = self.launch("--local", "64M", "--stats=json:outer.json", "--tune", "policy=lru", "--quiet", "--", "sh", "-c", inner,
                             env=environment(FARSIDE_LOCAL="128M"))
        self.assertEqual((result.status, result.errors), (0, b""))
        processes = {name: json.loads((self.folder / f"{name}.json").read_text())["processes"] for name in ("inner", "outer")}
        self.assertEqual([(p["local_bytes"], p["policy"]) for p in processes["inner"]], [(32 << 20, "lru")])
        self.assertEqual({(p["local_bytes"], p["policy"]) for p in processes["outer"]}, {(64 << 20, "lru")})

    def test_the_environment_of_the_program_has_no_options(self):
        """They are in a descriptor. A variable that a program sets is for the runs that it starts."""
        shown = self.launch("--quiet", "--local", "64M", "--", "env", env=environment(FARSIDE_TUNE="policy=lru")).output.decode()
        names = {line.split("=")[0] for line in shown.splitlines() if line.startswith("FARSIDE_")}
        self.assertEqual(names, {"FARSIDE_RUN_FD"})

    def test_unknown_variable(self):
        self.refused(USAGE, ["FARSIDE_LOCALL", "FARSIDE_LOCAL?"], "--", "true", env=environment(FARSIDE_LOCALL="1G"))

    def test_unsuitable_programs(self):
        self.refused(NOT_FOUND, ["no-such-program"], "--", "no-such-program")
        self.refused(NOT_FOUND, ["/no/such/program"], "--", "/no/such/program")
        text = self.folder / "text"
        text.write_text("just text\n")
        self.refused(NOT_RUNNABLE, [str(text)], "--", text)
        self.refused(NOT_RUNNABLE, [str(self.folder)], "--", self.folder)

    def test_a_killed_launcher_leaves_no_directory(self):
        """The next run removes the directory of a launcher that was killed, and no other one."""
        folder = self.folder / "temporary"
        others = [folder / "farside-run-abcdef", folder / "farside-backup"]
        for other in others:
            other.mkdir(parents=True)
        env = environment(TMPDIR=str(folder))
        command = [FARSIDE, "run", "--quiet", "--", "sleep"]
        killed, living = (subprocess.Popen([*command, "20"], env=env, start_new_session=True) for _ in range(2))
        for process in (killed, living):
            self.addCleanup(end_group, process)
        deadline = time.monotonic() + 20
        while len(list(folder.glob("*/socket-*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        killed.kill()
        killed.wait()
        self.assertEqual(len(list(folder.iterdir())), 4)
        self.assertEqual(run([*command, "0"], env=env).status, 0)
        left = set(folder.iterdir())
        self.assertEqual(len(left), 3)
        self.assertLess(set(others), left)
        self.assertEqual(len(list(folder.glob("*/socket-*"))), 1)
        end_group(living)
        living.wait()


if __name__ == "__main__":
    main()
