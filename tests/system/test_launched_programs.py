"""What programs see under farside run, and which run natively: descriptors, threads, libraries, users. The tools."""
import json
import os
import shutil
import stat
import subprocess
import unittest

from support import FARSIDE, LaunchTest, NOT_RUNNABLE, PROGRAMS, PYTHON, USAGE, environment, main, require, run

STATUS = PROGRAMS / "status"


class LaunchedProgramsTest(LaunchTest):
    def test_programs_that_run_natively(self):
        """Below a run they keep running, and the summary names them."""
        program = self.folder / "setuid"
        shutil.copy(STATUS, program)
        program.chmod(0o755 | stat.S_ISUID)
        script = f"{program} status 0; {program} status 0; env -i {STATUS} status 0"
        result, statistics = self.statistics_of("--", "sh", "-c", script + "; true")
        natives = {(n["program"], n["reason"]): n["times"] for n in statistics["native"]}
        self.assertEqual(natives, {("setuid", "setuid or setgid"): 2, ("status", "started without LD_PRELOAD"): 1})
        self.assertIn("setuid (setuid or setgid, 2 times)", result.errors.decode())

    def test_sanitized_program(self):
        source, program = self.folder / "empty.c", self.folder / "sanitized"
        source.write_text("int main(void) { return 0; }\n")
        if run(["cc", "-fsanitize=address", "-o", program, source], seconds=60, cwd=self.folder).status != 0:
            self.skipTest("no compiler with the address sanitizer")
        self.refused(NOT_RUNNABLE, ["sanitizer"], "--", program)
        _, statistics = self.statistics_of("--", "sh", "-c", f"{program}; true")
        self.assertEqual([n["reason"] for n in statistics["native"]], ["built with a sanitizer"])

    def test_valgrind(self):
        result = self.launch("--quiet", "--", require("valgrind"), "-q", STATUS, "status", 0)
        self.assertEqual(result.status, 1, result.errors)
        self.assertIn("run valgrind without farside", result.errors.decode())

    def test_other_preloaded_libraries(self):
        """A program that sets LD_PRELOAD for another one does not take far memory from it."""
        library, source = self.folder / "other.so", self.folder / "other.c"
        source.write_text('#include <unistd.h>\n__attribute__((constructor)) void f(void) { (void)!write(1, "other\\n", 6); }\n')
        self.assertEqual(run(["cc", "-shared", "-fPIC", "-o", library, source], seconds=60, cwd=self.folder).status, 0)
        for start in (f"LD_PRELOAD={library} {STATUS} status 0; true", f"env LD_PRELOAD={library} {STATUS} status 0; true"):
            for mode in ("signal", "handler"):
                result, statistics = self.statistics_of(f"--fault={mode}", "--", "sh", "-c", start)
                self.assertIn(b"other\n", result.output)
                self.assertEqual(statistics["native"], [])
                self.assertIn("status", [p["program"] for p in statistics["processes"]])

    def test_rate_of_the_clock(self):
        """Measured once in a run, which takes 2 ms, and not by each of its processes."""
        for mode in ("signal", "handler"):
            _, statistics = self.statistics_of(f"--fault={mode}", "--", "sh", "-c", f"{STATUS} status 0; ({STATUS} status 0); true")
            rates = [process["cycles_per_us"] for process in statistics["processes"]]
            self.assertGreaterEqual(len(rates), 3)
            self.assertEqual(len(set(rates)), 1, rates)

    def test_message_passing_libraries(self):
        """They do not read the memory of other processes, unless the user chooses so."""
        script = "echo $OMPI_MCA_smsc $UCX_TLS"
        result = self.launch("--quiet", "--", "sh", "-c", script, env=environment(UCX_TLS="tcp"))
        self.assertEqual(result.output, b"^cma tcp\n")

    def test_descriptors(self):
        """Farside's descriptors are in no list, and above a limit that the program sets."""
        script = self.folder / "descriptors.py"
        script.write_text("""
import os, resource, subprocess, sys
print(sorted(os.listdir('/proc/self/fd')), sorted(os.listdir('/proc/thread-self/fdinfo')), flush=True)
def is_open(fd):
    try:
        return bool(os.fstat(fd))
    except OSError:
        return False
print([fd for fd in range(os.sysconf('SC_OPEN_MAX')) if is_open(fd)], flush=True)
if len(sys.argv) > 1:
    sys.exit(len([open('/dev/null') for _ in range(30)]) - 30)
block = bytes(20 << 20)
resource.setrlimit(resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print(subprocess.run([sys.executable, __file__, 'child']).returncode)
""")
        native = run([PYTHON, script], seconds=30, cwd=self.folder)
        far = self.launch("--quiet", "--local", "8M", "--fault", "signal", "--", PYTHON, script)
        self.assertEqual((far.status, far.output), (0, native.output), far.errors)

    def test_threads_in_proc(self):
        """Programs that count their threads, as Chromium's zygote, do not see Farside's."""
        script = ("import os, threading; task = '/proc/self/task'\n"
                  "for i in range(3):\n"
                  "    print(os.stat(task).st_nlink, len(os.listdir(task)), flush=True)\n"
                  "    os.system('stat -c %h ' + task + '/../task')\n"
                  "    threading.Thread(target=threading.Event().wait, daemon=True).start()\n")
        native = run([PYTHON, "-c", script], seconds=30, cwd=self.folder)
        far = self.launch("--quiet", "--local", "8M", "--fault", "signal", "--", PYTHON, "-c", script)
        self.assertEqual((far.status, far.output), (0, native.output), far.errors)

    def test_threads_of_constructors(self):
        """A library that starts threads before the program begins, with all signals blocked: log4cplus does so."""
        library, source = self.folder / "early.so", self.folder / "early.c"
        source.write_text("""
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
static pthread_t thread;
static void* work(void* unused) {
  size_t n = 48 << 20, sum = 0;
  unsigned char* block = malloc(n);
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < n; i += 4096) sum += block[i] = (unsigned char)(block[i] + (i >> 12));
  printf("sum %zu\\n", sum);
  fflush(stdout);
  free(block);
  return unused;
}
__attribute__((constructor)) static void start(void) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_create(&thread, NULL, work, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}
__attribute__((destructor)) static void end(void) { pthread_join(thread, NULL); }
""")
        compiled = run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], seconds=60, cwd=self.folder)
        self.assertEqual(compiled.status, 0, compiled.errors)
        command = ["env", f"LD_PRELOAD={library}", STATUS, "status", "0"]
        native = run(command, cwd=self.folder)
        self.assertIn(b"sum ", native.output)
        far = self.launch("--quiet", "--local", "8M", "--fault", "signal", "--", *command)
        self.assertEqual((far.status, far.output), (0, native.output), far.errors)

    def test_processes_ended_by_a_signal(self):
        script = f"{STATUS} signal 9; {STATUS} signal 15; {STATUS} signal 9; {STATUS} status 0"
        result, statistics = self.statistics_of("--", "sh", "-c", script)
        self.assertEqual(statistics["ended_without_report"], 2)  # those that SIGTERM ends report before
        self.assertIn("2 processes ended without a report", result.errors.decode())

    def test_memory_that_cannot_be_far(self):
        # Measured at the end, since this end unmaps nothing.
        work = ("import mmap, os; shared = mmap.mmap(-1, 20 << 20); shared.write(bytes(20 << 20)); "
                "small = [mmap.mmap(-1, 32768, flags=mmap.MAP_PRIVATE) for _ in range(320)]; "
                "[piece.write(bytes(32768)) for piece in small]; os._exit(0)")
        result, statistics = self.statistics_of("--", PYTHON, "-c", work)
        self.assertGreaterEqual(statistics["totals"]["unmanaged_shared_bytes"], 20 << 20)
        self.assertGreaterEqual(statistics["totals"]["unmanaged_private_bytes"], 10 << 20)
        self.assertLess(statistics["totals"]["unmanaged_private_bytes"], 20 << 20)
        self.assertRegex(result.errors.decode(), r"since it cannot be far: at most 2\d.\d MiB of shared memory, 1\d.\d MiB")
        # What is unmapped before the end is seen while it grows, but for a fourth and 8 MiB of all resident memory.
        work = ("import mmap, time; shared = mmap.mmap(-1, 100 << 20); "
                "[shared.write(bytes(1 << 20)) for _ in range(100)]; time.sleep(0.5); shared.close()")
        _, statistics = self.statistics_of("--", PYTHON, "-c", work)
        self.assertGreaterEqual(statistics["totals"]["unmanaged_shared_bytes"], 60 << 20)

    def test_setuid_program(self):
        program = self.folder / "setuid"
        shutil.copy(STATUS, program)
        program.chmod(0o755 | stat.S_ISUID)
        self.refused(NOT_RUNNABLE, ["setuid"], "--", program, "status", 0)

    @unittest.skipUnless(os.geteuid() == 0, "only root may change the user")
    def test_unprivileged_user(self):
        """A user without privileges runs in signal mode."""
        self.folder.chmod(0o755)
        result = run([FARSIDE, "run", "--local", "8M", "--quiet", "--", PROGRAMS / "steady", "32", "1"], seconds=60,
                     cwd="/", user=65534, group=65534, extra_groups=[])
        self.assertEqual((result.status, result.output), (0, b"ready\ndone\n"), result.errors)

    @unittest.skipUnless(os.geteuid() == 0, "only root may change the user")
    def test_unprivileged_user_without_memory_for_pipes(self):
        """The kernel limits the memory of all pipes of a user. Beyond it, batches of evicted pages are small."""
        nobody = dict(cwd="/", user=65534, group=65534, extra_groups=[])
        script = ("import fcntl, os, sys\n"
                  "pages = 0\n"
                  "try:\n"
                  "    while True: pages += fcntl.fcntl(os.pipe()[1], fcntl.F_SETPIPE_SZ, 1 << 20) // 4096\n"
                  "except OSError as error: print(pages, flush=True)\n"
                  "sys.stdin.read()\n")
        holder = subprocess.Popen([PYTHON, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **nobody)
        self.assertGreater(int(holder.stdout.readline()), 8192)
        self.folder.chmod(0o777)
        statistics = self.folder / "nobody.json"
        result = run([FARSIDE, "run", "--local", "8M", f"--stats=json:{statistics}", "--quiet", "--", PROGRAMS / "steady",
                      "32", "1"], seconds=60, **nobody)
        holder.communicate()
        self.assertEqual((result.status, result.output), (0, b"ready\ndone\n"), result.errors)
        totals = json.loads(statistics.read_text())["totals"]
        self.assertGreater(totals["dirty_evictions"], 0)
        self.assertLess(totals["evictions"] / totals["batches"], 20)


class ToolsTest(unittest.TestCase):
    def test_tools_are_programs_of_their_own(self):
        """What only analyses and measures is in no program that runs beside others."""
        symbols = subprocess.run(["nm", "--demangle", FARSIDE], capture_output=True, text=True, check=True).stdout
        self.assertIn("farside::cli::run_program", symbols)
        for laboratory in ("farside::plan::", "farside::trace::", "farside::track::", "farside::ZramSwap"):
            self.assertNotIn(laboratory, symbols)
        for tool in ("plan", "trace", "track"):
            shown = run([FARSIDE, tool, "--help"], seconds=30, env=environment())
            self.assertEqual(shown.status, 0)
            self.assertIn(f"  farside {tool} ".encode(), shown.output)

    def test_mistakes_of_tools(self):
        for words, expected in ((("trace", "sort", "x"), "put -- before the program: farside trace -- sort x"),
                                (("plan", "sort"), "put -- before the program: farside plan -- sort"),
                                (("plan", "--slowdwn", "9%"), "did you mean --slowdown?"),
                                (("plan", "--slowdown", "x", "--", "true"), "--slowdown=x is not valid; use a share"),
                                (("plan", "--shares", "101", "--", "true"), "'101' is not valid; use 1 to 100"),
                                (("bench", "pagnig"), "farside bench has no command pagnig; did you mean paging?")):
            result = run([FARSIDE, *words], seconds=30)
            self.assertEqual((result.status, result.output), (USAGE, b""), words)
            self.assertIn(expected, result.errors.decode())


if __name__ == "__main__":
    main()
