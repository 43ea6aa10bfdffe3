#!/usr/bin/env python3
"""Tests of option_tables.py on a small table, and on the one of the repository."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import option_tables

SOURCE = r'''
constexpr OptionRow kRows[] = {
    {"--local", "FARSIDE_LOCAL", "SIZE", "50%", "8M or more", Scope::kProgram, set_size<&Options::local, 16 * kMiB>,
     "near memory, "
     "as in \"256M\""},
    {"--tune", "FARSIDE_TUNE", "KEY=VALUE,...", "", "", Scope::kBoth, nullptr, "settings"},
    {"--tune policy", "FARSIDE_TUNE policy", "ORDER", "2q", "lru or 2q", Scope::kProgram, set_word<&Options::policy>,
     "order"},
    {"--quiet", "FARSIDE_QUIET", "", "off", "on or off", Scope::kBoth, set_switch<&Options::quiet>, "errors only"},
    {"FARSIDE_TRACE", "FARSIDE_TRACE", "FILE", "", "", Scope::kInternal, set_text<&Options::trace>, "faults"},
};
'''
OPTIONS = '''| option | variable | values | default | meaning |
| --- | --- | --- | --- | --- |
| `--local` | `FARSIDE_LOCAL` | 8M or more | 50% | near memory, as in "256M" |
| `--tune` | `FARSIDE_TUNE` | `KEY=VALUE,...` | | settings |
| `--quiet` | `FARSIDE_QUIET` | | off | errors only |
'''
KEYS = '''| key | values | default | meaning |
| --- | --- | --- | --- |
| `policy` | lru or 2q | 2q | order |
'''


class TablesTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        for name in ("src/abi", "docs/guide"):
            (self.root / name).mkdir(parents=True)
        (self.root / option_tables.ROWS).write_text(SOURCE)
        self.readme, self.guide = self.root / "README.md", self.root / "docs/guide/running.md"
        self.readme.write_text("before\n<!-- table of options -->\nold\n<!-- end of table -->\nafter\n")
        self.guide.write_text("<!-- table of keys of --tune -->\n<!-- end of table -->\n")

    def run_script(self, *options):
        return subprocess.run([sys.executable, "-B", Path(option_tables.__file__), "--root", self.root, *options],
                              capture_output=True, text=True, check=False)

    def test_tables_are_written_between_their_marks(self):
        self.assertEqual(self.run_script().returncode, 0)
        self.assertEqual(self.readme.read_text(),
                         f"before\n<!-- table of options -->\n\n{OPTIONS}\n<!-- end of table -->\nafter\n")
        self.assertIn(KEYS, self.guide.read_text())

    def test_check_finds_what_differs_and_writes_nothing(self):
        before = self.readme.read_text()
        result = self.run_script("--check")
        self.assertEqual(result.returncode, 1)
        self.assertIn("README.md: a table of options differs", result.stderr)
        self.assertIn("docs/guide/running.md", result.stderr)
        self.assertEqual(self.readme.read_text(), before)
        self.run_script()
        self.assertEqual(self.run_script("--check").returncode, 0)

    def test_the_options_of_a_command_come_from_the_program(self):
        program, page = self.root / "program", self.root / "docs/guide/servers.md"
        options = [{"names": ["-h", "--help"], "help": "help"},
                   {"names": ["--workers"], "value": "N", "help": "threads", "default": "1", "range": "1 to 64"},
                   {"names": ["-u", "--unix"], "value": "PATH", "help": "socket"},
                   {"names": ["--method"], "help": "how", "choices": ["fast", "slow"]}]
        options = [{"value": "", "default": "", "range": "", "choices": [], **option} for option in options]
        description = {"name": "farside", "options": [], "commands": [{"name": "serve", "options": options}]}
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(description)}\nEND\n")
        program.chmod(0o755)
        page.write_text("<!-- table of farside serve -->\nold\n<!-- end of table -->\n")
        self.run_script()
        self.assertIn("old", page.read_text())  # without the program it stays
        self.assertEqual(self.run_script("--describe", program, "--check").returncode, 1)
        self.run_script("--describe", program)
        self.assertEqual(page.read_text(), "<!-- table of farside serve -->\n\n"
                         "| option | values | default | meaning |\n| --- | --- | --- | --- |\n"
                         "| `--workers` | 1 to 64 | 1 | threads |\n| `-u`, `--unix` | `PATH` | | socket |\n"
                         "| `--method` | fast, slow | | how |\n"
                         "\n<!-- end of table -->\n")

    def test_a_new_row_appears(self):
        self.run_script()
        row = '    {"--new", "FARSIDE_NEW", "N", "1", "1 to 9", Scope::kBoth, set_number<&Options::n>, "new"},\n};'
        (self.root / option_tables.ROWS).write_text(SOURCE.replace("};", row))
        self.assertEqual(self.run_script("--check").returncode, 1)
        self.run_script()
        self.assertIn("| `--new` | `FARSIDE_NEW` | 1 to 9 | 1 | new |", self.readme.read_text())

    def test_rows_that_are_not_understood_are_an_error(self):
        with self.assertRaises(ValueError):
            option_tables.read_rows(SOURCE.replace('"settings"},', "kSettings, 1},"))

    def test_the_tables_of_the_repository_are_as_the_source_says(self):
        self.root = Path(option_tables.__file__).resolve().parent.parent
        result = self.run_script("--check")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("| `--local` |", (self.root / "README.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
