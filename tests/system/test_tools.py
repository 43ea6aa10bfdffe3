"""farside plan, trace, track and bench: programs of their own, and what they say of mistakes."""
import subprocess
import unittest

from support import FARSIDE, environment, main, run

USAGE = 2


class ToolsTest(unittest.TestCase):
    def test_tools_are_programs_of_their_own(self):
        """What only analyses and measures is in no program that runs beside others."""
        symbols = subprocess.run(["nm", "--demangle", FARSIDE], capture_output=True, text=True, check=True).stdout
        self.assertIn("farside::cli::run_program", symbols)
        for laboratory in ("farside::plan::", "farside::trace::", "farside::track::", "farside::to_svg", "farside::ZramSwap"):
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
