#!/usr/bin/env python3
"""Tests of check_layers.py on small trees made up here."""
import tempfile
import unittest
from pathlib import Path

import check_layers


class CheckLayersTest(unittest.TestCase):
    def problems(self, path, text):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(text, encoding="utf-8")
            return list(check_layers.check_tree(Path(folder)))

    def test_down_own_folder_and_system_headers_are_fine(self):
        text = '#include "base/os.h"\n#include "pager/uffd.h"\n#include "farside/farside.h"\n#include <heap/x.h>\n'
        self.assertEqual(self.problems("src/pager/fault.cc", text), [])

    def test_up_is_named_with_file_and_line(self):
        found = self.problems("src/base/os.cc", '\n  #  include "pager/pager.h"\n')
        self.assertEqual(found, ['src/base/os.cc:2: base may not include "pager/pager.h": that points up'])

    def test_neighbours_are_sideways(self):
        found = self.problems("src/remote/store.cc", '#include "server/server.h"\n')
        self.assertEqual(len(found), 1)
        self.assertIn("sideways", found[0])

    def test_includes_name_their_folder(self):
        self.assertIn("does not name its folder", self.problems("src/base/os.cc", '#include "os.h"\n')[0])
        self.assertIn("no layer", self.problems("src/base/os.cc", '#include "vendor/os.h"\n')[0])

    def test_a_new_folder_must_be_given_a_layer(self):
        self.assertIn("add it to LAYERS", self.problems("src/novel/x.cc", '#include "base/os.h"\n')[0])

    def test_installed_headers_stand_alone(self):
        self.assertIn("installed header", self.problems("include/farside/ptr.hpp", '#include "base/bits.h"\n')[0])
        self.assertEqual(self.problems("include/farside/ptr.hpp", '#include "farside/scope.hpp"\n'), [])

    def test_bench_is_a_top_layer_and_tests_are_free(self):
        self.assertEqual(self.problems("bench/micro/x.cc", '#include "heap/far_heap.h"\n#include "x.h"\n'), [])
        self.assertIn("sideways", self.problems("bench/micro/x.cc", '#include "cli/commands.h"\n')[0])
        self.assertEqual(self.problems("tests/stress/x.cc", '#include "cli/commands.h"\n'), [])


if __name__ == "__main__":
    unittest.main()
