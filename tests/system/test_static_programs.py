"""Static programs: the small programs of the other tests, linked with -static, and what is particular to them."""
import json
import os
import shutil

from support import FARSIDE, PROGRAMS, SMALL, SystemTest, main, require, run, small_program

SIGNAL = [variation for variation in SMALL if variation.fault == "signal"]
STATUS = PROGRAMS / "status_static"


class Allocator(small_program("allocator_static", SIGNAL)):
    pass


class Calls(small_program("calls_static", SIGNAL)):
    pass


class BlockingCalls(small_program("blocking_calls_static", SIGNAL)):
    pass


# libc's posix_spawn reports that the program is missing through memory that the child shares only natively.
class Children(small_program("children_static", SIGNAL, {"spawn_of_nothing"})):
    pass


class Clones(small_program("clones_static", SIGNAL)):
    pass


# These load libraries.
class Mappings(small_program("mappings_static", SIGNAL, {"aligned_library", "forks_with_a_library"})):
    pass


class Signals(small_program("signals_static", SIGNAL)):
    pass


class SignalsInCalls(small_program("signals_in_calls_static", SIGNAL)):
    pass


class SignalStacks(small_program("signal_stacks_static", SIGNAL)):
    pass


class Loader(SystemTest):
    def launch(self, *words):
        return run([FARSIDE, "run", "--local", "8M", *words], cwd=self.folder)

    def refused(self, text, *words):
        result = self.launch("--quiet", *words)
        self.assertEqual(result.status, 126)
        self.assertIn(text, result.errors.decode())

    def test_exit_status_and_name(self):
        for status in (0, 7):
            self.assertEqual(self.launch("--quiet", "--", STATUS, "status", str(status)).status, status)
        result = self.launch("--verbose", "--", STATUS, "status", "0")
        self.assertIn("status_static: signal mode", result.errors.decode())

    def test_below_a_run(self):
        result = self.launch("--stats=json:stats.json", "--", "sh", "-c", f"{STATUS} status 0; {STATUS} status 0; true")
        self.assertEqual(result.status, 0, result.errors)
        statistics = json.loads((self.folder / "stats.json").read_text())
        self.assertEqual(statistics["native"], [])
        self.assertEqual([p["program"] for p in statistics["processes"]].count("status_static"), 2)

    def test_refused(self):
        self.refused("signal mode only", "--fault=handler", "--", STATUS, "status", "0")
        script = self.folder / "script"
        script.write_text(f"#!{STATUS}\n")
        script.chmod(0o755)
        self.refused("statically linked", "--", script)

    def test_damaged(self):
        whole = STATUS.read_bytes()
        program = self.folder / "damaged"
        for name, data in {"incomplete": whole[:100], "address": whole[:64 + 16] + b"\xff" * 8 + whole[64 + 24:],
                           "headers": whole[:32] + b"\xff" * 8 + whole[40:]}.items():
            program.write_bytes(data)
            program.chmod(0o755)
            result = self.launch("--quiet", "--", program)
            self.assertEqual(result.status, 126, name)
            self.assertIn("damaged", result.errors.decode(), name)

    def test_what_runs_natively(self):
        """The dynamic linker, files that may not be executed, and what a run in handler mode starts."""
        linker = "/lib64/ld-linux-x86-64.so.2"
        if os.path.exists(linker):
            result = self.launch("--quiet", "--", linker, "/bin/echo", "hello")
            self.assertEqual((result.status, result.output), (0, b"hello\n"), result.errors)
        program = self.folder / "not-executable"
        shutil.copy(STATUS, program)
        program.chmod(0o644)
        for variation in SMALL:
            script = f"{program} status 0; echo $?; {STATUS} status 7; echo $?"
            result = run([*variation.launcher("--quiet"), "bash", "-c", script], cwd=self.folder)
            self.assertEqual((result.status, result.output), (0, b"126\n7\n"), (variation, result.errors))

    def test_executable_stack(self):
        source = self.folder / "nested.c"
        source.write_text("""
int call(int (*f)(int)) { return f(2); }
int main(int argc, char** argv) {
  int add(int x) { return x + argc; }
  return call(add) == 3 ? 0 : 1;
}
""")
        if run(["gcc", "-static", "-o", "nested", source], cwd=self.folder, seconds=60).status != 0:
            self.skipTest("no compiler with nested functions")
        result = self.launch("--quiet", "--", self.folder / "nested")
        self.assertEqual(result.status, 0, result.errors)

    def compile_for_musl(self, name, text):
        source, compiler = self.folder / f"{name}.c", require("musl-gcc")
        source.write_text(text)
        compiled = run([compiler, "-static", "-O1", "-o", name, source, "-lpthread"], cwd=self.folder, seconds=60)
        self.assertEqual(compiled.status, 0, compiled.errors)
        return [self.folder / name]

    def test_signals_on_the_stacks_of_musl(self):
        """The kernel writes signal frames into parts of a thread's stack that were never used."""
        program = self.compile_for_musl("deep", """
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile int handled, done;
static void handler(int number) { handled++; (void)number; }
static __attribute__((noinline)) void spin(void) {
  int before = handled;
  while (handled < before + 2) __asm__ volatile("");
}
static __attribute__((noinline)) void deep(size_t bytes) {
  volatile char* block = alloca(bytes);
  __asm__ volatile("" ::"r"(block));
  spin();
}
static void* run(void* unused) {
  for (size_t bytes = 1000; bytes < 60000; bytes += 1000) deep(bytes);
  done = 1;
  return unused;
}
int main(void) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  pthread_t thread;
  pthread_create(&thread, NULL, run, NULL);
  while (!done) {
    pthread_kill(thread, SIGUSR1);
    usleep(300);
  }
  pthread_join(thread, NULL);
  return puts("done") < 0;
}
""")
        self.same(SIGNAL[0], program, self.native(program), evictions=False)

    def test_shell(self):
        """BusyBox executes itself again and again: all of its commands are far."""
        busybox = require("busybox")
        if run([busybox, "sh", "-c", "cat /proc/self/maps"]).output.count(b".so") > 0:
            self.skipTest("busybox is dynamically linked")
        script = "busybox seq 1 200000 | busybox sort -r | busybox md5sum; readlink /proc/self/exe"
        expected = run([busybox, "sh", "-c", script], cwd=self.folder)
        result = self.launch("--quiet", "--", busybox, "sh", "-c", script)
        self.assertEqual((result.status, result.output), (0, expected.output), result.errors)

    def test_musl(self):
        program = self.compile_for_musl("sum", """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void* sum(void* bytes) {
  size_t n = (size_t)bytes, total = 0;
  unsigned char* block = malloc(n);
  for (size_t i = 0; i < n; i += 64) block[i] = (unsigned char)(i >> 8);
  for (size_t i = 0; i < n; i += 64) total += block[i];
  free(block);
  return (void*)total;
}
int main(void) {
  pthread_t threads[4];
  for (size_t i = 0; i < 4; i++) pthread_create(&threads[i], NULL, sum, (void*)((i + 4) << 22));
  for (int i = 0; i < 4; i++) {
    void* total;
    pthread_join(threads[i], &total);
    printf("%zu\\n", (size_t)total);
  }
  return 0;
}
""")
        self.same(SIGNAL[0], program, self.native(program))


if __name__ == "__main__":
    main()
