#!/usr/bin/env python3
"""Tests of make_manual.py on a small program's description."""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import make_manual

FARSIDE = {
    "name": "farside", "version": "1.2.3", "help": "Runs programs.", "footer": "Examples:\n  farside ctl\n",
    "environment": [{"variable": "FARSIDE_LOCAL", "flag": "--local", "help": "near memory"},
                    {"variable": "FARSIDE_LOG", "flag": "--log", "help": "messages"}],
    "keys": [{"option": "--tune", "key": "order", "value": "ORDER", "help": "what is first"},
             {"option": "--tune", "key": "strict", "value": "", "help": "no exceptions"}],
    "options": [{"names": ["-h", "--help"], "help": "Print this help message and exit"}],
    "commands": [
        {"name": "run", "help": "Run a program: farside run [OPTIONS] -- PROGRAM ARGS...",
         "footer": "Sizes: a number and K.\n.A line with a dot.\n\nExit status: the program's.\n\n"
                   "Examples:\n  farside run -- sort 'a b'\nAnd quietly:\n  farside run --quiet -- make",
         "options": [{"names": ["--local"], "value": "VALUE", "help": "near memory [256M]  [FARSIDE_LOCAL]"},
                     {"names": ["--policy"], "value": "VALUE", "help": "order", "choices": ["fifo", "lru", "second"]},
                     {"names": ["--tune"], "value": "KEY=VALUE,...", "help": "settings"},
                     {"names": ["--stats"], "value": "FILE", "help": "it's a file"},
                     {"names": ["--out"], "value": "DIR", "help": "results"},
                     {"names": ["--quiet"], "help": "print nothing"}]},
        {"name": "ctl", "help": "Look at programs", "footer": "Example: farside ctl 4711",
         "options": [{"names": ["pid"], "value": "PID", "help": "a process", "positional": True},
                     {"names": ["--wait"], "value": "S", "help": "seconds", "default": "60", "range": "a number from 0"}]},
        {"name": "pool", "help": "Look at a pool",
         "commands": [{"name": "status", "help": "The servers",
                       "options": [{"names": ["--controller"], "value": "HOST:PORT", "help": "c", "required": True}]}]},
        {"name": "bench", "help": "Measure"}],
}
BENCH = {
    "name": "farside bench", "version": "1.2.3", "help": "Measures.",
    "commands": [{"name": "objects", "help": "Objects",
                  "options": [{"names": ["--suites"], "value": "LIST", "help": "suites", "choices": ["map", "near"],
                               "list": True}]}],
}


def described():
    main = make_manual.command_from(FARSIDE)
    make_manual.merge(main, make_manual.command_from(BENCH))
    return main


class ManTest(unittest.TestCase):
    def setUp(self):
        self.pages = make_manual.man_pages(described(), "1.2.3")

    def test_each_command_has_a_page(self):
        names = {"farside", "farside-run", "farside-ctl", "farside-pool", "farside-bench"}
        self.assertEqual(set(self.pages), names)

    def test_a_page_has_its_sections_in_the_usual_order(self):
        lines = self.pages["farside-run"].splitlines()
        headings = [line[4:] for line in lines if line.startswith(".SH ")]
        self.assertEqual(headings, ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS",
                                    "ENVIRONMENT", "SEE ALSO"])

    def test_special_characters_are_escaped(self):
        page = self.pages["farside-run"]
        self.assertIn("\\fB\\-\\-local\\fR \\fIVALUE\\fR\nNear memory [256M]. [FARSIDE_LOCAL]\n", page)
        self.assertNotIn("\n.A line", page)

    def test_examples_and_exit_status_leave_the_description(self):
        description = self.pages["farside-run"].split(".SH OPTIONS")[0]
        self.assertIn("Sizes: a number and K.", description)
        self.assertNotIn("Examples:", description)
        self.assertNotIn("Exit status:", description)
        self.assertIn(".SH EXIT STATUS\nThe program's.\n", self.pages["farside-run"])
        self.assertIn("A mistake on the command line.", self.pages["farside-ctl"])
        examples = self.pages["farside-run"].split(".SH EXAMPLES")[1].split(".SH")[0]
        self.assertIn("farside run \\-\\- sort 'a b'\n", examples)
        self.assertIn(".PP\nAnd quietly:\n", examples)
        self.assertIn("farside ctl 4711", self.pages["farside-ctl"].split(".SH EXAMPLES")[1])

    def test_programs_follow_two_dashes(self):
        self.assertIn("\\fB\\-\\-\\fR \\fIPROGRAM\\fR", self.pages["farside-run"].split(".SH DESCRIPTION")[0])
        self.assertNotIn("PROGRAM", self.pages["farside-ctl"])

    def test_choices_defaults_and_required_values_are_named(self):
        self.assertIn("One of \\fBfifo\\fR, \\fBlru\\fR, \\fBsecond\\fR.", self.pages["farside-run"])
        self.assertIn("Seconds. A number from 0. Default: 60.", self.pages["farside-ctl"])
        self.assertIn("Required.", self.pages["farside-pool"])
        self.assertIn("[\\fIPID\\fR]", self.pages["farside-ctl"])

    def test_keys_are_listed_below_their_option(self):
        self.assertIn("Settings.\n.RS\n.TP\n\\fBorder\\fR=\\fIORDER\\fR\nWhat is first.\n.TP\n\\fBstrict\\fR\nNo exceptions.\n.RE\n",
                      self.pages["farside-run"])
        self.assertNotIn("ORDER", self.pages["farside-ctl"])

    def test_help_becomes_sentences(self):
        self.assertEqual(make_manual.sentence("print nothing"), "Print nothing.")
        self.assertEqual(make_manual.sentence("json:FILE writes there"), "json:FILE writes there.")
        self.assertEqual(make_manual.sentence("seconds"), "Seconds.")
        self.assertEqual(make_manual.sentence(""), "")

    def test_nested_commands_are_on_the_page_of_their_parent(self):
        self.assertIn(".SS \\fBfarside pool status\\fR", self.pages["farside-pool"])
        self.assertIn(".SS \\fBfarside bench objects\\fR", self.pages["farside-bench"])

    def test_variables_are_those_of_the_command_s_options(self):
        self.assertIn("FARSIDE_LOCAL", self.pages["farside-run"])
        self.assertNotIn("FARSIDE_LOG", self.pages["farside-run"])
        self.assertNotIn(".SH ENVIRONMENT", self.pages["farside-ctl"])

    def test_man_formats_every_page_without_a_warning(self):
        if not shutil.which("man"):
            self.skipTest("man is not installed")
        with tempfile.TemporaryDirectory() as folder:
            for name, text in self.pages.items():
                page = Path(folder) / f"{name}.1"
                page.write_text(text, encoding="utf-8")
                command = ["man", "--warnings=all", "--encoding=UTF-8", "--local-file", str(page)]
                result = subprocess.run(command, capture_output=True, text=True, check=False)
                self.assertEqual((result.returncode, result.stderr), (0, ""), name)
                self.assertIn("SEE ALSO", result.stdout)


COMPLETE = r"""
compopt() { :; }
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_farside
printf '%s\n' "${COMPREPLY[@]}"
"""


class BashTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.script = cls.folder / "completion"
        cls.script.write_text(make_manual.bash_completion(described()), encoding="utf-8")
        (cls.folder / "here").mkdir()
        (cls.folder / "here.txt").touch()

    def complete(self, *words):
        command = ["bash", "-c", COMPLETE, "bash", str(self.script), *words]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder)
        self.assertEqual(result.stderr, "")
        return set(result.stdout.split("\n")) - {""}

    def test_commands(self):
        self.assertEqual(self.complete("farside", ""), {"run", "ctl", "pool", "bench", "-h", "--help"})
        self.assertEqual(self.complete("farside", "p"), {"pool"})
        self.assertEqual(self.complete("farside", "pool", "s"), {"status"})
        self.assertEqual(self.complete("farside", "bench", ""), {"objects"})

    def test_options(self):
        self.assertEqual(self.complete("farside", "run", "--"),
                         {"--", "--local", "--policy", "--tune", "--stats", "--out", "--quiet"})
        self.assertEqual(self.complete("farside", "pool", "status", "--"), {"--controller"})

    def test_values(self):
        self.assertEqual(self.complete("farside", "run", "--policy", ""), {"fifo", "lru", "second"})
        self.assertEqual(self.complete("farside", "run", "--policy", "=", "l"), {"lru"})
        self.assertEqual(self.complete("farside", "run", "--policy", "="), {"fifo", "lru", "second"})
        self.assertEqual(self.complete("farside", "run", "--stats", "he"), {"here", "here.txt"})
        self.assertEqual(self.complete("farside", "run", "--out", "he"), {"here"})
        self.assertEqual(self.complete("farside", "run", "--local", ""), set())

    def test_lists_go_on_after_a_comma(self):
        self.assertEqual(self.complete("farside", "bench", "objects", "--suites", "map,n"), {"map,near"})

    def test_programs_after_two_dashes(self):
        self.assertIn("bash", self.complete("farside", "run", "--quiet", "--", "bas"))
        self.assertEqual(self.complete("farside", "run", "--", "cat", "he"), {"here", "here.txt"})


class ZshTest(unittest.TestCase):
    def setUp(self):
        self.text = make_manual.zsh_completion(described())

    def test_commands_options_and_values_are_there(self):
        for part in ("#compdef farside\n", "'pool:Look at a pool'", "_farside_pool_status() {",
                     "'--policy[order]:VALUE:(fifo lru second)'", "'--stats[it'\\''s a file]:FILE:_files'",
                     "'*::program:_normal'", "near memory \\[256M\\]"):
            self.assertIn(part, self.text)

    def test_zsh_parses_it(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        result = subprocess.run(["zsh", "-n"], input=self.text, capture_output=True, text=True, check=False)
        self.assertEqual((result.returncode, result.stderr), (0, ""))


class ProgramTest(unittest.TestCase):
    def test_it_writes_pages_and_completions(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "a.json").write_text(json.dumps(FARSIDE), encoding="utf-8")
            (folder / "b.json").write_text(json.dumps(BENCH), encoding="utf-8")
            command = [sys.executable, "-B", make_manual.__file__, folder / "out", folder / "a.json", folder / "b.json"]
            self.assertEqual(subprocess.run(command, check=False).returncode, 0)
            made = sorted(str(path.relative_to(folder / "out")) for path in (folder / "out").rglob("*") if path.is_file())
        self.assertEqual(made, ["bash/farside", "man1/farside-bench.1.gz", "man1/farside-ctl.1.gz",
                                "man1/farside-pool.1.gz", "man1/farside-run.1.gz", "man1/farside.1.gz", "zsh/_farside"])


if __name__ == "__main__":
    unittest.main()
