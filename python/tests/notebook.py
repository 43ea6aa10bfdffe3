"""The magics of notebooks, in IPython with and without Farside."""
import re
import sys
import unittest

import farside
import numpy as np
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

MIB = 1 << 20
MEMORY = r"near [\d.]+ MiB of 48.0 MiB, far [\d.]+ MiB"
CELL = re.compile(r"^ *\[(\d+)\] █*░* +([\d.]+) MiB +([\d.]+) MiB +(\d+)%$", re.MULTILINE)


class NotebookTest(unittest.TestCase):
    def setUp(self):
        InteractiveShell.clear_instance()
        self.shell = InteractiveShell.instance(colors="nocolor", history_manager=None)
        self.addCleanup(InteractiveShell.clear_instance)
        self.loaded = self.run_cell("%load_ext farside")

    def run_cell(self, text):
        """What a cell prints."""
        with capture_output() as captured:
            self.result = self.shell.run_cell(text, store_history=True)
        return captured.stdout + captured.stderr

    def in_far_memory(self):
        if not farside.is_active():
            self.skipTest("without Farside")
        self.shell.user_ns["array"] = farside.from_numpy(np.arange(96 * MIB // 8))

    def test_without_farside_the_kernel_is_named(self):
        if farside.is_active():
            self.skipTest("under Farside")
        self.assertIn("python -m farside.kernel install", self.loaded)
        for text in ("%far", "%%far\nexecuted = 1"):
            self.assertRegex(self.run_cell(text), "UsageError: this notebook does not run under Farside; .* python -m farside.kernel install")
            self.assertNotIn("executed", self.shell.user_ns)

    def test_mistakes_are_refused(self):
        self.assertIn("UsageError: %far takes no arguments", self.run_cell("%far x"))
        self.assertIn("UsageError: %%far takes no argument or 'lines', not 'x'", self.run_cell("%%far x\n1"))

    def test_a_line_shows_memory_and_a_chart_of_the_cells(self):
        self.in_far_memory()
        self.assertEqual(self.loaded, "")
        self.run_cell("total = array.sum()")
        self.run_cell("1 + 1")
        first, *lines = self.run_cell("%far").splitlines()
        self.assertRegex(first, f"^{MEMORY}; pressure \\d+%$")
        self.assertRegex(lines[0], "cell █ near  ░ far +near +far +pressure")
        cells = CELL.findall("\n".join(lines))
        self.assertEqual([int(number) for number, *_ in cells], [2, 3])
        self.assertEqual(len(lines), 3)
        for _, near, far, pressure in cells:
            self.assertLessEqual(float(near), 48)
            self.assertGreater(float(far), 40)
            self.assertLessEqual(int(pressure), 100)

    def test_the_chart_has_the_last_cells(self):
        self.in_far_memory()
        for _ in range(25):
            self.run_cell("1")
        numbers = [int(number) for number, *_ in CELL.findall(self.run_cell("%far"))]
        self.assertEqual(numbers, list(range(7, 27)))

    def test_a_cell_is_measured(self):
        self.in_far_memory()
        printed = self.run_cell("%%far\nprint('printed')\ntotal = int(array.sum())\ntotal")
        lines = printed.splitlines()
        self.assertEqual(lines[0], "printed")
        pattern = rf"^[\d.]+ s, pressure (\d+)%: ([\d.]+) s in (\d+) faults; (\d+) pages fetched, (\d+) pages written; {MEMORY}$"
        share, _, faults, fetched, _ = map(float, re.match(pattern, lines[-1]).groups())
        self.assertTrue(share <= 100 and faults > 0)
        self.assertGreater(fetched, 40 * MIB // 4096)
        size = 96 * MIB // 8
        self.assertEqual(self.shell.user_ns["total"], size * (size - 1) // 2)
        self.assertEqual([int(number) for number, *_ in CELL.findall(self.run_cell("%far"))], [2])  # once

    def lines_of(self, cell):
        """Line number, pages and text of the lines that a measured cell names."""
        printed = self.run_cell("%%far lines\n" + cell)
        found = re.findall(r"^  [\d.]+ s, (\d+) pages fetched by line (\d+): (.*)$", printed, re.MULTILINE)
        self.assertTrue(0 < len(found) <= 5, printed)
        return [(int(number), int(pages), text) for pages, number, text in found]

    def test_the_lines_of_a_cell_are_measured(self):
        self.in_far_memory()
        self.run_cell("import numpy as np\ndef total_of(a): return int(a.sum())")
        cell = ["a = 1", "def double(x):", "    return 2 * x.sum()", "for i in range(2):", "    b = total_of(array)",
                "c = [double(array)", "     for _ in range(2)]", "d = a + 1"]
        pages = {number: count for number, count, _ in self.lines_of("\n".join(cell))}
        self.assertGreater(pages[3] + pages[5], 0.9 * sum(pages.values()))
        self.assertGreater(min(pages[3], pages[5]), 2 * 40 * MIB // 4096)
        self.assertIsNone(sys.gettrace())

    def test_an_error_ends_the_measurement_of_lines(self):
        self.in_far_memory()
        self.assertEqual(self.lines_of("array.sum()\n1 / 0")[0][0::2], (1, "array.sum()"))
        self.assertIsNone(sys.gettrace())

    def test_an_error_in_a_measured_cell_is_shown(self):
        self.in_far_memory()
        printed = self.run_cell("%%far\n1 / 0")
        self.assertIn("ZeroDivisionError", printed)
        self.assertIn("pages fetched", printed)


if __name__ == "__main__":
    unittest.main()
