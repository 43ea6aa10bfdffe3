#!/usr/bin/env python3
"""farside bench papers at a small size: every figure that has a command is measured. repeat_test.py BUILD"""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BUILD = Path(sys.argv[1])
PROGRAMS = {"redis-server": ("kona-T2", "kona-2", "kona-3", "kona-9", "kona-10"), "valgrind": ("kona-8",),
            "memcached": ("mage-13",)}
FRONT_END = ("aifm-6", "eden-T1", "eden-6", "atlas-4", "atlas-5", "atlas-9")  # it needs libraries to be built


def figures_left_out():
    without = [figure for program, figures in PROGRAMS.items() if not shutil.which(program) for figure in figures]
    return {*without, *(FRONT_END if not (BUILD / "libexec/farside/apps/web_frontend").exists() else ())}


class PapersTest(unittest.TestCase):
    def test_every_figure_with_a_command_is_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "papers.json"
            words = [BUILD / "bin/farside", "bench", "papers", "--quick", "--json", file, "--plots", folder]
            result = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
            self.assertEqual(result.returncode, 0)
            self.assertIn("as the paper and here", result.stdout)
            self.check(json.loads(file.read_text()))
            charts = [path.name for path in Path(folder).glob("papers_*.svg") if path.read_text().endswith("</svg>\n")]
            expected = {f"papers_{name}.svg" for name in ("aifm", "eden_percent", "mage_percent", "atlas", "kona")}
            self.assertLessEqual(expected, set(charts))

    def check(self, document):
        commands = {row["figure"]: row["commands"] for row in document["rows"] if "commands" in row}
        self.assertEqual(len(commands), 55)
        left_out = figures_left_out()
        self.assertEqual({}, {name: why for name, why in document["skipped"].items() if name not in left_out})
        measured = {row["figure"] for row in document["rows"] if row.get("of") == "Farside"}
        self.assertEqual(set(), {name for name in commands if commands[name]} - left_out - measured)


if __name__ == "__main__":
    if not (BUILD / "libexec/farside/farside-bench").exists():
        raise SystemExit("farside-bench is not built")
    unittest.main(argv=sys.argv[:1] + ["-v"])
