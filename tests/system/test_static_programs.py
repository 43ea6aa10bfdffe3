"""Static programs: the small programs of the other tests, linked with -static, and what is particular to them."""
import json

from support import FARSIDE, PROGRAMS, SMALL, SystemTest, main, require, run, small_program

SIGNAL = [variation for variation in SMALL if variation.fault == "signal"]
STATUS = PROGRAMS / "status_static"


class Allocator(small_program("allocator_static", SIGNAL)):
    pass


class Calls(small_program("calls_static", SIGNAL)):
    pass


# libc's posix_spawn reports that the program is missing through memory that the child shares only natively.
class Children(small_program("children_static", SIGNAL, {"spawn_of_nothing"})):
    pass


# These load libraries.
class Mappings(small_program("mappings_static", SIGNAL, {"aligned_library", "forks_with_a_library"})):
    pass


class Signals(small_program("signals_static", SIGNAL)):
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
        result = self.launch("--", STATUS, "status", "0")
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
        compiler = require("musl-gcc")
        source = self.folder / "sum.c"
        source.write_text("""
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
        compiled = run([compiler, "-static", "-O1", "-o", "sum", source, "-lpthread"], cwd=self.folder, seconds=60)
        self.assertEqual(compiled.status, 0, compiled.errors)
        program = [self.folder / "sum"]
        self.same(SIGNAL[0], program, self.native(program))


if __name__ == "__main__":
    main()
