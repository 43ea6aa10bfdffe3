#!/usr/bin/env python3
"""Tests of check_messages.py on small trees made up here."""
import tempfile
import unittest
from pathlib import Path

import check_messages

TABLE = """
inline constexpr std::string_view kFamily = "F001";
    {kFamily, "see --help"},
    {"F201", "has not responded"},
    {"F202", "is lost"},
"""
SOURCE = """
  log(LogLevel::kError, "wrong; see --help");
  die("server {} has not "
      "responded for {} s", name, f("x"));
  return Status::error(EIO, "server {} is lost", name);
  log(LogLevel::kDebug, "nothing");
  die("{}. The program ends", status.text());
"""
PAGE = "### F001: a\n### F201: b\n### F202: c\n"


class CheckMessagesTest(unittest.TestCase):
    def problems(self, table=TABLE, source=SOURCE, page=PAGE):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in ((check_messages.TABLE, table), ("src/pager/a.cc", source), (check_messages.PAGE, page)):
                file = Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return list(check_messages.check(Path(folder)))

    def test_agreement(self):
        self.assertEqual(self.problems(), [])

    def expect_one(self, words, **changes):
        problems = self.problems(**changes)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(words, problems[0])

    def test_a_message_without_identifier(self):
        self.expect_one("src/pager/a.cc:8:", source=SOURCE + 'die("the end");\n')

    def test_a_key_without_message(self):
        self.expect_one("no message contains", table=TABLE + '    {"F202", "is gone"},\n')

    def test_a_hidden_key(self):
        source = SOURCE + 'die("this is lost now");\n'
        self.expect_one("hidden behind F202", table=TABLE + '    {"F201", "is lost now"},\n', source=source)

    def test_the_page(self):
        self.expect_one("F202 is missing", page="### F001\n### F201\n")
        self.expect_one("no message has the identifier F999", page=PAGE + "### F999\n")
        self.expect_one("two headings", page=PAGE + "### F201\n")


if __name__ == "__main__":
    unittest.main()
