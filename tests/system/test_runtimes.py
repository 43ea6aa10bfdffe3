"""Language runtimes with heaps of their own: each reserves and commits memory in its own way. Equal output, and the
heap is far. Where a runtime is not installed, its tests are skipped."""
from support import SMALL, PYTHON, SystemTest, Variation, expand, main, require, variations

RUNS = [Variation("25%", "signal"), Variation("25%", "handler"), Variation("24M", "signal")]
MIB = 1 << 20

NODE = """
const list = [];
for (let i = 0; i < 400000; i++) list.push({i, text: 'entry ' + (i * 7919) % 1000003});
list.sort((a, b) => a.text < b.text ? -1 : a.text > b.text ? 1 : 0);
const bytes = Buffer.alloc(30e6);
for (let i = 0; i < bytes.length; i += 4096) bytes[i] = i % 251;
console.log(list[12345].text, list.reduce((sum, e, at) => (sum * 31 + e.i * at) % 1e9, 7), bytes[4096 * 250]);
"""

JAVA = """
import java.util.*;
public class Work {
  public static void main(String[] arguments) {
    Map<Integer, String> map = new HashMap<>();
    long sum = 0;
    for (int round = 0; round < 3; round++) {
      for (int i = 0; i < 150000; i++) map.put(i, "value " + i * 7L % 1000003 + round);
      for (var entry : map.entrySet()) sum = sum * 31 + entry.getValue().hashCode() + entry.getKey();
    }
    System.out.println(map.size() + " " + sum);
  }
}
"""

PHP = """
$list = [];
for ($i = 0; $i < 400000; $i++) $list["key " . ($i * 7919) % 1000003] = str_repeat(chr(97 + $i % 26), 50);
ksort($list);
echo count($list), " ", md5(implode(",", array_keys($list)) . implode("", $list)), "\\n";
"""

RUBY = """
list = (0...300_000).map { |i| "entry #{(i * 7919) % 1_000_003}" * 3 }
list.sort!
pid = fork { exit!(list.size == 300_000 && list[0] < list[-1] ? 0 : 1) }
Process.wait(pid)
puts list[12345], list.sum(&:size), $?.exitstatus
"""

NUMPY = """
import numpy as np
values = np.random.default_rng(1).random((600, 600))
large = np.arange(6_000_000, dtype=np.float64)
print(round(float((values @ values).sum()), 3), float(np.sort(large[::-1])[1234567]), float(large.reshape(2000, 3000).T.sum()))
"""

COLLECTORS = ["-XX:+UseSerialGC", "-XX:+UseParallelGC", "-XX:+UseG1GC"]


@expand
class RuntimesTest(SystemTest):
    def compare(self, variation, command, far_bytes, **options):
        """Equal output to the native run, and at least far_bytes were far at some time, in signal mode."""
        expected = self.once(tuple(map(str, command)), lambda: self.native(command))
        result = self.same(variation, command, expected, evictions=False, **options)
        if variation.fault == "signal":
            far = max(process["far_peak_bytes"] for process in result.stats["processes"])
            self.assertGreater(far, far_bytes, f"too little of {command[0]} was far")

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    @variations(RUNS)
    def test_node(self, variation):
        self.compare(variation, [require("node"), self.script("work.js", NODE)], 20 * MIB)

    @variations(RUNS)
    def test_php_with_extensions(self, variation):
        self.compare(variation, [require("php"), "-d", "memory_limit=1G", "-r", PHP], 20 * MIB)

    @variations(RUNS)
    def test_ruby(self, variation):
        self.compare(variation, [require("ruby"), "-e", RUBY], 4 * MIB)

    @variations(RUNS)
    def test_numpy(self, variation):
        self.compare(variation, [self.python_with_numpy(), "-c", NUMPY], 40 * MIB)

    def python_with_numpy(self):
        if self.once("numpy", lambda: __import__("support").run([PYTHON, "-c", "import numpy"])).status != 0:
            self.skipTest("NumPy is not installed")
        return PYTHON

    @variations(RUNS)
    def test_java(self, variation):
        for collector in COLLECTORS:
            self.java(variation, collector, "-Xms48m", "-Xmx512m")

    @variations(SMALL[:1])
    def test_java_reserves_more_than_there_is(self, variation):
        """The heap's reservation is larger than far space."""
        self.java(variation, "-XX:+UseSerialGC", "-Xms48m", "-Xmx300g")

    def java(self, variation, *options):
        folder = self.once("java", lambda: self.compiled(require("java")))
        self.compare(variation, [require("java"), *options, "-cp", folder, "Work"], 20 * MIB)

    def compiled(self, java):
        """The class file, made by the compiler in the runtime: there may be no javac."""
        source = self.script("Work.java", JAVA)
        self.native([java, "-m", "jdk.compiler/com.sun.tools.javac.Main", "-d", self.folder, source])
        return self.folder


if __name__ == "__main__":
    main()
