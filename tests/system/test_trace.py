"""farside trace: the report must name exactly the known faulting lines of the programs."""
import json
import os
import re
import shutil
import signal
import subprocess
import xml.dom.minidom
from pathlib import Path

from support import FARSIDE, PROGRAMS, SystemTest, end_group, environment, main, require, run

SOURCES = Path(__file__).resolve().parent / "programs"
MIN_SHARE = 0.01
USAGE = 2


def marks(source, mark):
    """Line number -> text after "// MARK: ", for the lines of a source file that have that mark."""
    lines = (SOURCES / source).read_text(encoding="utf8").splitlines()
    found = ((number, re.search(rf"(?://|#) {mark}(?:: (.*))?$", line)) for number, line in enumerate(lines, 1))
    return {number: match.group(1) for number, match in found if match}


def python_versions():
    """The installed interpreters whose frames are known: CPython 3.11 to 3.13."""
    found = [shutil.which(f"python3.{minor}", path="/usr/bin:/usr/local/bin") for minor in (11, 12, 13)]
    return [path for path in found if path]


class TraceTest(SystemTest):
    def trace(self, *words, env=None, seconds=120):
        return run([FARSIDE, "trace", *map(str, words)], seconds=seconds, env=env or environment(), cwd=self.folder)

    def traced(self, program, *options):
        """Traces a program, which must succeed. Returns the JSON document, the printed text and the output folder."""
        out = self.folder / f"{self.id()}-{program}"
        # The default policy keeps some pages near, so that accesses in order are not faults in order.
        result = self.trace("--quiet", "--local", "8M", "--tune", "policy=fifo", "--out", out, *options, "--", PROGRAMS / program)
        self.assertEqual(result.status, 0, result.errors.decode())
        return json.loads((out / "trace.json").read_text(encoding="utf8")), result.errors.decode(), out

    def check_place(self, place, wanted):
        kind, pattern, site = wanted.split(", ")
        where = f"{place['function']}:{place['line']}: {place['kinds']} {place['pattern']} {place['data']}"
        self.assertIn(place["pattern"]["name"], pattern.split("/"), where)  # memcpy chooses by the addresses
        if kind != "any":
            self.assertGreater(place["kinds"][kind], 0.9 * place["faults"], where)
        lines = {name: line for line, name in marks("traced.c", "SITE").items()}
        self.assertTrue(any(data["site"].endswith(f"(traced.c:{lines[site]})") for data in place["data"]), where)
        if kind != "any":
            self.assertTrue(place["data"][0]["site"].endswith(f"(traced.c:{lines[site]})"), where)
            self.assertGreater(place["data"][0]["faults"], 0.9 * place["faults"], where)

    def check_lines(self, program):
        trace, _, _ = self.traced(program, "--tune", "prefetch=off")
        wanted = marks("traced.c", "FAULTS")
        places = [place for place in trace["places"] if place["faults"] > MIN_SHARE * trace["faults"]]
        found = [(place["line"], place["function"], place["faults"], place["kinds"]) for place in trace["places"]]
        self.assertEqual({place["line"] for place in places}, set(wanted), (trace["faults"], trace["dropped"], found))
        for place in places:
            self.assertTrue(place["file"].endswith("/traced.c"), place["file"])
            self.check_place(place, wanted[place["line"]])
        self.assertEqual(trace["dropped"], 0)
        strided = next(place for place in places if place["pattern"]["name"] == "strided")
        self.assertEqual(strided["pattern"]["stride"], 5 * 4096)
        inlined = next(place for place in places if place["function"] == "look_up")
        stacks = [stack["frames"] for stack in trace["stacks"] if stack["frames"][-1] == f"look_up (traced.c:{inlined['line']})"]
        self.assertTrue(stacks and all("read_anywhere" in frames[-2] and "main" in frames[-3] for frames in stacks), stacks)
        self.assertTrue(any("mem" in place["inner"] and "libc" in place["inner"] for place in places))

    def test_an_interrupted_program_is_analysed(self):
        out = self.folder / "interrupted"
        process = subprocess.Popen(
            [FARSIDE, "trace", "--quiet", "--local", "8M", "--out", out, "--", PROGRAMS / "steady", "24", "1000000"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(), cwd=self.folder, start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(end_group, process)
        self.assertEqual(process.stdout.readline(), b"ready\n")
        os.killpg(process.pid, signal.SIGINT)
        errors = process.communicate(timeout=60)[1].decode()
        self.assertEqual(process.returncode, -signal.SIGINT, errors)
        self.assertGreater(json.loads((out / "trace.json").read_text(encoding="utf8"))["faults"], 0)

    def test_lines_without_frame_pointers(self):
        self.check_lines("traced")

    def test_lines_with_frame_pointers(self):
        self.check_lines("traced_frames")

    def test_patterns_behind_prefetch(self):
        """Prefetching avoids most faults of a stream. The others have the same pattern and are at the same lines."""
        trace, _, _ = self.traced("traced")
        wanted = marks("traced.c", "FAULTS")
        for place in trace["places"]:
            if place["faults"] > MIN_SHARE * trace["faults"]:
                self.assertIn(place["line"], wanted)
                self.check_place(place, wanted[place["line"]])

    def test_every_fault_is_counted(self):
        out = self.folder / "counted"
        result = self.trace("--quiet", "--local", "8M", "--stats=json:stats.json", "--out", out, "--", PROGRAMS / "traced")
        self.assertEqual(result.status, 0, result.errors.decode())
        faults = json.loads((self.folder / "stats.json").read_text())["totals"]["faults"]
        trace = json.loads((out / "trace.json").read_text())
        self.assertEqual(trace["faults"] + trace["dropped"], faults)
        self.assertEqual(sum(place["faults"] for place in trace["places"]), trace["faults"])

    def test_half_of_the_heap_is_near_by_default(self):
        """An automatic size would avoid the faults that are to be seen."""
        for given, is_half in (((), True), (("--local", "auto"), False)):
            result = self.trace("--quiet", *given, "--stats=json:stats.json", "--out", self.folder / "half", "--", PROGRAMS / "steady", "32", "1")
            self.assertEqual(result.status, 0, result.errors.decode())
            totals = json.loads((self.folder / "stats.json").read_text())["totals"]
            self.assertEqual(totals["near_peak_bytes"] < 0.7 * totals["heap_peak_bytes"], is_half, totals)

    def test_outputs(self):
        trace, errors, out = self.traced("traced")
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["flame.svg", "folded.txt", "trace.json"])
        xml.dom.minidom.parse(str(out / "flame.svg"))
        folded = (out / "folded.txt").read_text().splitlines()
        self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in folded), trace["faults"])
        self.assertRegex(errors.splitlines()[-1], r"^farside: \d+ of \d+ places have 9[5-9]\.\d % of the faults; ")

    def test_without_debug_information(self):
        program = self.folder / "stripped"
        shutil.copy(PROGRAMS / "traced", program)
        subprocess.run([require("strip"), "--strip-debug", program], check=True)
        result = self.trace("--quiet", "--local", "8M", "--out", "no-lines", "--", program)
        self.assertEqual(result.status, 0, result.errors.decode())
        self.assertRegex(result.errors.decode(), r"walk\+0x[0-9a-f]+ \(stripped\)")
        self.assertIn("build it with -g", result.errors.decode())

    def test_lines_of_python(self):
        for python in python_versions():
            with self.subTest(python):
                self.check_python(python)

    def check_python(self, python):
        out = self.folder / Path(python).name
        result = self.trace("--quiet", "--local", "25%", "--out", out, "--", python, SOURCES / "traced.py")
        self.assertEqual(result.status, 0, result.errors.decode())
        trace = json.loads((out / "trace.json").read_text())
        faults = marks("traced.py", "FAULTS")
        found = {place["line"]: place for place in trace["places"] if place["faults"] > 0.05 * trace["faults"] and place["line"]}
        self.assertLessEqual(set(faults), set(found), result.errors.decode())
        self.assertLessEqual(set(found) - set(faults), {12, *marks("traced.py", "BUILDS")}, result.errors.decode())
        for line in faults:
            self.assertTrue(found[line]["file"].endswith("/traced.py"), found[line])
            self.assertTrue(any("(traced.py:" in data["site"] for data in found[line]["data"]), found[line])
        functions = {found[line]["function"].split(".")[-1] for line in faults}
        self.assertEqual(functions, {"pick", "look"})
        named = sum(place["faults"] for place in trace["places"]
                    if place["file"].endswith("/traced.py") or place["function"] == "Py_FinalizeEx")
        self.assertGreater(named, 0.97 * (trace["faults"] + trace["dropped"]), result.errors.decode())
        through_c = [stack["frames"] for stack in trace["stacks"] if any("look (" in frame for frame in stack["frames"])]
        self.assertTrue(any("texts (traced.py:" in frame for frames in through_c for frame in frames), through_c)
        self.assertLess(sum(path.stat().st_size for path in out.iterdir()), 3 << 20)

    def test_generated_code(self):
        out = self.folder / "generated"
        result = self.trace("--quiet", "--local", "25%", "--out", out, "--", require("node"), "--perf-basic-prof",
                            "--interpreted-frames-native-stack", SOURCES / "traced.js")
        for perf_map in result.output.decode().split()[:1]:
            Path(f"/tmp/perf-{perf_map}.map").unlink()
        self.assertEqual(result.status, 0, result.errors.decode())
        place = json.loads((out / "trace.json").read_text())["places"][0]
        self.assertEqual((place["function"], Path(place["file"]).name, place["line"]), ("pick", "traced.js", 9), place)

    def test_hints_are_found_and_evaluated(self):
        trace, errors, _ = self.traced("traced_hints")
        lines = {name: line for line, name in marks("traced_hints.c", "HINT").items()}
        self.assertEqual({(hint["where"], hint["fetched"]) for hint in trace["hints"]},
                         {(f"main (traced_hints.c:{line})", 0) for line in lines.values()})
        place = next(place for place in trace["places"] if place["line"] in marks("traced_hints.c", "FAULTS"))
        self.assertEqual(place["hinted_at"], lines["before"])
        self.assertIn("never caused a fetch", errors)

    def test_forked_children_and_exit_status(self):
        script = f"{PROGRAMS / 'steady'} 16 1 >/dev/null; exit 7"
        out = self.folder / "shell"
        result = self.trace("--quiet", "--local", "8M", "--out", out, "--", "sh", "-c", script)
        self.assertEqual(result.status, 7, result.errors.decode())
        trace = json.loads((out / "trace.json").read_text())
        self.assertGreater(trace["processes"], 1)
        self.assertTrue(any(place["module"].endswith("/steady") for place in trace["places"]))

    def test_errors(self):
        for words, status, message in ((["--fault=handler", "--", "true"], USAGE, "--fault=handler"),
                                       (["--coverage", "0", "--", "true"], USAGE, "--coverage"),
                                       (["--"], USAGE, "farside trace --"),
                                       (["--out", "/proc/no", "--", "true"], 1, "/proc/no"),
                                       (["--", "no-such-program"], 127, "no-such-program")):
            result = self.trace(*words)
            errors = result.errors.decode()
            self.assertEqual(result.status, status, errors)
            self.assertEqual(len(errors.strip().splitlines()), 1, errors)
            self.assertIn(message, errors)


if __name__ == "__main__":
    main()
