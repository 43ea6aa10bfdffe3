#!/usr/bin/env python3
"""Tests of check_docs.py on small trees made up here."""
import contextlib
import io
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import check_docs


def is_running(pid):
    try:
        return not Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split(") ")[-1].startswith("Z")
    except FileNotFoundError:
        return False


class CheckDocsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def problems(self, check):
        return list(check(self.root))


class LinksTest(CheckDocsTest):
    def test_links_that_resolve_are_fine(self):
        self.write("README.md", "# A title\n[b](docs/b.md) [c](docs/b.md#the-second-one) [here](#a-title)\n"
                                "![picture](docs/a.svg) [web](https://example.org/x) [mail](mailto:a@b.c)\n[ref]\n\n"
                                "[ref]: docs/b.md#b\n")
        self.write("docs/b.md", "# B\n## The `second` one!\n[up](../README.md)\n")
        self.write("docs/a.svg", "<svg/>")
        self.assertEqual(self.problems(check_docs.check_links), [])

    def test_a_missing_file_is_reported_with_its_line(self):
        self.write("docs/a.md", "\n\n[b](b.md) and [c](gone.md)\n")
        self.write("docs/b.md", "")
        self.assertEqual(self.problems(check_docs.check_links), ["docs/a.md:3: link to gone.md: no such file"])

    def test_missing_pictures_and_references_are_found(self):
        self.write("a.md", "![p](p.svg)\n[x]: gone.md\n")
        self.assertEqual(len(self.problems(check_docs.check_links)), 2)

    def test_a_missing_anchor_is_found(self):
        self.write("a.md", "[b](b.md#two) [c](#none)\n# One\n")
        self.write("b.md", "# One\n```\n# Two\n```\n")
        found = self.problems(check_docs.check_links)
        self.assertEqual(len(found), 2)
        self.assertIn("no heading gives that anchor", found[0])

    def test_links_out_of_the_repository_are_found(self):
        self.write("a.md", "[x](../shared/x.md) [y](/etc/passwd)\n")
        self.assertEqual(len(self.problems(check_docs.check_links)), 2)

    def test_code_has_no_links(self):
        self.write("a.md", "`[x](gone.md)`\n```\n[x](gone.md)\n```\n~~~\n[x](gone.md)\n~~~\n")
        self.assertEqual(self.problems(check_docs.check_links), [])

    def test_anchors_are_made_as_on_github(self):
        for heading, anchor in [("A page fault (signal mode)", "a-page-fault-signal-mode"), ("`x_y`: what?", "x_y-what"),
                                ("[Link](x.md) & more", "link--more"), ("*Bold* text", "bold-text")]:
            self.assertEqual(check_docs.anchor_of(heading), anchor)

    def test_equal_headings_are_numbered(self):
        self.write("a.md", "# One\n# One\n[x](#one-1)\n[y](#one-2)\n")
        self.assertEqual(self.problems(check_docs.check_links), ["a.md:4: link to #one-2: no heading gives that anchor"])


class StepsTest(CheckDocsTest):
    def setUp(self):
        super().setUp()
        self.write("src/pager/fault.cc", "int fault_in() { return 0; }\n")

    def test_a_function_that_is_there_is_fine(self):
        self.write("docs/architecture.md", "1. `src/pager/fault.cc` `fault_in`: claims a page.\n")
        self.assertEqual(self.problems(check_docs.check_steps), [])

    def test_a_renamed_function_is_found(self):
        self.write("docs/architecture.md", "\n1. `src/pager/fault.cc` `fault`: claims a page.\n")
        self.assertEqual(self.problems(check_docs.check_steps),
                         ["docs/architecture.md:2: src/pager/fault.cc does not define fault"])

    def test_a_call_is_not_enough(self):
        self.write("src/pager/other.cc", "int run() {\n  if (far) fault_in();\n  return fault_in();\n}\n")
        self.write("docs/architecture.md", "1. `src/pager/other.cc` `fault_in`: claims a page.\n")
        self.assertEqual(self.problems(check_docs.check_steps),
                         ["docs/architecture.md:1: src/pager/other.cc does not define fault_in"])

    def test_a_moved_file_is_found_and_lines_may_break_between_the_two(self):
        self.write("docs/architecture.md", "1. `src/heap/fault.cc`\n   `fault_in`: claims a page.\n")
        self.assertEqual(self.problems(check_docs.check_steps), ["docs/architecture.md:1: src/heap/fault.cc: no such file"])

    def test_members_are_found_by_their_own_name(self):
        self.write("docs/architecture.md", "1. `src/pager/fault.cc` `Pager::fault_in()`: claims a page.\n")
        self.assertEqual(self.problems(check_docs.check_steps), [])


class BenchmarksTest(CheckDocsTest):
    def test_what_is_shown_names_a_benchmark_that_exists(self):
        self.write("bench/benchmarks.cc", '{.name = "paging",\n')
        page = "# Benchmarks\n\n## {}\n\n{}\n\n| a |\n|---|\n"
        self.write("docs/benchmarks.md", page.format("One", "`farside bench paging --quick`"))
        self.assertEqual(self.problems(check_docs.check_benchmarks), [])
        self.write("docs/benchmarks.md", page.format("One", "`farside bench swap`"))
        self.assertEqual(self.problems(check_docs.check_benchmarks), ["docs/benchmarks.md:3: no benchmark has the name swap"])
        self.write("docs/benchmarks.md", page.format("One", "Text"))
        self.assertEqual(self.problems(check_docs.check_benchmarks), ["docs/benchmarks.md:3: no command makes what is shown"])

    def test_the_page_is_short(self):
        self.write("docs/benchmarks.md", "a\n" * 201)
        self.assertEqual(self.problems(check_docs.check_benchmarks), ["docs/benchmarks.md:201: more than 200 lines"])


class DecisionsTest(CheckDocsTest):
    def test_a_page_that_the_index_lacks_is_found(self):
        self.write("docs/decisions/README.md", "[one](0001-one.md)\n")
        self.write("docs/decisions/0001-one.md", "# 1. One\n")
        self.assertEqual(self.problems(check_docs.check_decisions), [])
        self.write("docs/decisions/0002-two.md", "# 2. Two\n")
        self.assertEqual(self.problems(check_docs.check_decisions),
                         ["docs/decisions/README.md:1: 0002-two.md is not listed"])

    def test_a_missing_index_lists_nothing(self):
        self.write("docs/decisions/0001-one.md", "# 1. One\n")
        self.assertEqual(len(self.problems(check_docs.check_decisions)), 1)


class NamesTest(CheckDocsTest):
    def assert_retired(self, path, text):
        self.write(path, text)
        self.assertTrue(self.problems(check_docs.check_names), text)
        (self.root / path).unlink()

    def test_retired_names_are_found_in_code_documents_and_tests(self):
        self.write("src/pager/x.h", "\nstruct Fixups;\n")
        self.assertEqual(self.problems(check_docs.check_names), ['src/pager/x.h:2: "Fixups" is retired: OwnerOverrides'])
        self.assert_retired("docs/a.md", "The `SteadyChannel` dials again.\n")
        self.assert_retired("tests/system/test_x.py", "# see DESIGN 3.4\n")
        self.assert_retired("src/base/x.h", "constexpr int kMostBytes = 1;\n")
        self.assert_retired("docs/guide/a.md", "farside bench paging --ways shm\n")

    def test_every_pattern_of_the_list_compiles_and_names_a_replacement(self):
        for pattern, replacement, *folders in check_docs.RETIRED:
            check_docs.re.compile(pattern)
            self.assertTrue(replacement)
            self.assertTrue(all(isinstance(row, tuple) for row in folders))

    def test_some_names_are_retired_in_some_folders_only(self):
        self.assert_retired("src/objects/x.h", "// a licence to read\n")
        self.write("README.md", "the licence of this program\n")
        self.assertEqual(self.problems(check_docs.check_names), [])

    def test_ordinary_words_and_new_names_are_fine(self):
        self.write("src/a.cc", "int end; // at the end of the list, other parts help\nkMaxBytes; almost kmost; RetryPolicy\n")
        self.write("docs/a.md", "`--patience` in seconds; designs 3 and 4; the page word\n")
        self.assertEqual(self.problems(check_docs.check_names), [])

    def test_history_may_use_old_names_and_no_foreign_document(self):
        self.write("docs/decisions/0001-x.md", "`Fixups` was renamed.\n")
        self.assertEqual(self.problems(check_docs.check_names), [])
        self.assert_retired("docs/decisions/0002-x.md", "See DESIGN 4.\n")

    def test_binary_files_are_left_out(self):
        (self.root / "a.bin").write_bytes(b"Fixups\xff")
        self.assertEqual(self.problems(check_docs.check_names), [])


class BlocksTest(CheckDocsTest):
    def setUp(self):
        super().setUp()
        self.write("build/bin/farside", "#!/bin/sh\necho built\n")
        (self.root / "build/bin/farside").chmod(0o755)

    def failures(self, text, path="README.md", seconds=10):
        self.write(path, text)
        with contextlib.redirect_stdout(io.StringIO()):
            return list(check_docs.run_blocks(self.root, self.root / "build", seconds))

    def test_marked_blocks_run_with_the_built_programs_first(self):
        self.assertEqual(self.failures('```sh run\n[ "$(farside)" = built ]\n[ -z "$(ls -A)" ]\n```\n'), [])

    def test_a_command_that_fails_is_reported_with_its_output(self):
        found = self.failures("\n```sh run\necho before\nfalse\necho after\n```\n")
        self.assertEqual(len(found), 1)
        self.assertTrue(found[0].startswith("README.md:2: exit status 1"))
        self.assertIn("before\n", found[0].rsplit("```", 1)[-1])
        self.assertFalse(found[0].endswith("after\n"))

    def test_a_failure_inside_a_pipe_counts(self):
        self.assertEqual(len(self.failures("```sh run\nfalse | cat\n```\n")), 1)

    def test_other_blocks_and_other_folders_do_not_run(self):
        self.assertEqual(self.failures("```sh\nfalse\n```\n```\nfalse\n```\n"), [])
        self.assertEqual(self.failures("```sh run\nfalse\n```\n", path="docs/internals/x.md"), [])
        self.assertEqual(len(self.failures("```sh run\nfalse\n```\n", path="docs/guide/x.md")), 1)

    def test_a_block_that_does_not_end_is_killed_with_what_it_started(self):
        found = self.failures("```sh run\nsleep 1000 &\necho $! >&2\nwait\n```\n", seconds=1)
        self.assertIn("no end within 1 s", found[0])
        child = int(found[0].strip().splitlines()[-1])
        deadline = time.monotonic() + 10
        while is_running(child):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_blocks_in_lists_may_be_indented(self):
        self.assertEqual(len(self.failures("- x\n\n  ```sh run\n  false\n  ```\n")), 1)


class ProgramTest(CheckDocsTest):
    def test_it_exits_1_and_prints_every_problem(self):
        self.write("a.md", "[x](gone.md)\n[y](gone_too.md)\n")
        command = [sys.executable, "-B", check_docs.__file__, "--root", str(self.root)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stderr.splitlines()), 2)
        self.write("a.md", "")
        self.assertEqual(subprocess.run(command, capture_output=True, check=False).returncode, 0)


if __name__ == "__main__":
    unittest.main()
