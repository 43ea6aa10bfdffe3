"""Which sources are checked for a change, and that clang's findings are errors."""
import shutil
import tempfile
import unittest
from pathlib import Path

import check_with_clang
from check_with_clang import check, source_for, to_check

TEXTS = {
    "src/base/a.h": "",
    "src/base/a.cc": '#include "base/a.h"\n',
    "src/base/only.h": '#include "base/a.h"\n',
    "src/wire/b.cc": '#include "base/only.h"\n',
    "include/farside/c.hpp": "",
    "src/wire/c_test.cc": "#include <farside/c.hpp>\n",
}
SOURCES = {path for path in TEXTS if path.endswith(".cc")}


class Selection(unittest.TestCase):
    def test_a_header_is_checked_in_its_own_source(self):
        self.assertEqual(source_for("src/base/a.h", SOURCES, TEXTS), "src/base/a.cc")

    def test_a_header_is_checked_where_it_is_included(self):
        self.assertEqual(source_for("src/base/only.h", SOURCES, TEXTS), "src/wire/b.cc")
        self.assertEqual(source_for("include/farside/c.hpp", SOURCES, TEXTS), "src/wire/c_test.cc")

    def test_a_header_that_only_a_header_includes(self):
        texts = {**TEXTS, "src/base/a.cc": ""}
        self.assertEqual(source_for("src/base/a.h", SOURCES, texts), "src/wire/b.cc")
        self.assertIsNone(source_for("src/base/none.h", SOURCES, texts))

    def test_changed_sources_and_headers(self):
        changed = ["src/wire/b.cc", "src/base/a.h", "bench/not_built.cc"]
        self.assertEqual(to_check(changed, SOURCES, TEXTS), ["src/base/a.cc", "src/wire/b.cc"])


@unittest.skipUnless(shutil.which("clang++"), "clang is not installed")
class Findings(unittest.TestCase):
    def said(self, body):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "x.cc"
            members = "farside::Mutex mutex;\n  int count GUARDED_BY(mutex) = 0;"
            source.write_text(f'#include "base/sync.h"\nstruct X {{\n  {members}\n  int get() {{ {body} }}\n}};\n',
                              encoding="utf8")
            root = check_with_clang.ROOT
            options = [f"-I{root}/src", "-std=c++20", "-Wall", "-Wthread-safety", "-o", "x.o", "-c"]
            return check(str(source), folder, ["clang++", *options, str(source)])

    def test_access_without_the_lock(self):
        self.assertIn("requires holding mutex 'mutex'", self.said("return count;"))

    def test_access_with_the_lock(self):
        self.assertEqual(self.said("farside::LockGuard hold(mutex); return count;"), "")

    def test_a_warning_is_an_error(self):
        self.assertIn("unused variable", self.said("int unused; return 0;"))


if __name__ == "__main__":
    unittest.main()
