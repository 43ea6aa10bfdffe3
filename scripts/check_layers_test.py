#!/usr/bin/env python3
"""Tests of check_layers.py on small trees made up here."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import check_layers


class CheckLayersTest(unittest.TestCase):
    def problems(self, path, text):
        return self.problems_of({path: text})

    def problems_of(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                file = Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return list(check_layers.check_tree(Path(folder)))

    def assert_forbidden(self, path, included, message=""):
        found = self.problems(path, f'#include "{included}"\n')
        self.assertTrue(found, f"{path} includes {included}")
        self.assertIn(message, found[0])

    def assert_allowed(self, path, included):
        self.assertEqual(self.problems(path, f'#include "{included}"\n'), [])

    def test_down_own_folder_and_system_headers_are_allowed(self):
        text = '#include "base/os.h"\n#include "pager/uffd.h"\n#include "farside/fiber.h"\n#include <heap/x.h>\n'
        self.assertEqual(self.problems("src/pager/fault.cc", text), [])

    def test_up_is_reported_with_file_and_line(self):
        found = self.problems("src/base/os.cc", '\n  #  include "pager/pager.h"\n')
        self.assertEqual(found, ['src/base/os.cc:2: base may not include "pager/pager.h": that points up'])

    def test_neighbours_are_sideways(self):
        self.assert_forbidden("src/remote/store.cc", "server/server.h", "sideways")

    def test_includes_name_their_folder(self):
        self.assert_forbidden("src/base/os.cc", "os.h", "does not name its folder")
        self.assert_forbidden("src/base/os.cc", "vendor/os.h", "no layer")

    def test_a_new_folder_needs_a_layer(self):
        self.assert_forbidden("src/novel/x.cc", "base/os.h", "add it to LAYERS")
        self.assert_forbidden("src/cli/novel/x.cc", "cli/run.h", "add it to SUBFOLDERS")

    def test_every_folder_of_the_repository_is_known(self):
        root = Path(check_layers.__file__).parents[1]
        folders = {check_layers.folder_of(path.relative_to(root)) for path in check_layers.checked_files(root)}
        for folder in folders:
            if not check_layers.is_public(folder):
                self.assertIn(folder.split("/")[0], check_layers.HEIGHT)
                self.assertTrue("/" not in folder or folder in check_layers.SUBFOLDERS, folder)

    def test_subfolders_include_what_their_list_names(self):
        self.assert_allowed("tools/plan/x.cc", "tools/plan/reuse/shards.h")
        self.assert_forbidden("tools/plan/reuse/x.cc", "tools/plan/plan.h", "tools/plan/reuse may not include")
        self.assert_forbidden("tools/trace/x.cc", "tools/track/tracker.h")
        self.assert_forbidden("tools/track/x.cc", "tools/trace/outputs.h")
        self.assert_allowed("src/cli/doctor/x.cc", "cli/commands.h")
        self.assert_forbidden("src/cli/x.cc", "cli/doctor/checks.h")
        self.assert_allowed("src/preload/guard/calls/x.cc", "preload/heap/far_heap.h")
        self.assert_forbidden("src/preload/heap/x.cc", "preload/guard/thread/pins.h")
        self.assert_forbidden("src/preload/trace/x.cc", "preload/heap/far_heap.h")
        self.assert_forbidden("src/pager/policy/x.cc", "pager/pager.h")
        self.assert_forbidden("bench/objects/x.cc", "bench/scaling/model.h")
        self.assert_forbidden("bench/objects/x.cc", "bench/paging.h")

    def test_subfolders_have_the_layer_of_their_folder(self):
        self.assert_forbidden("src/pager/policy/x.cc", "objects/segment.h", "pager may not include")
        self.assert_forbidden("src/pager/x.cc", "preload/heap/far_heap.h", "points up")
        self.assert_allowed("src/preload/heap/x.cc", "pager/policy/policy.h")

    def test_the_product_includes_nothing_of_the_laboratory(self):
        self.assert_forbidden("src/cli/x.cc", "measure/chart.h", "sideways")
        self.assert_forbidden("src/cli/x.cc", "tools/plan/lackey.h", "points up")
        self.assert_forbidden("tools/plan/x.cc", "bench/paging.h", "sideways")
        self.assert_allowed("tools/track/x.cc", "measure/chart.h")
        self.assert_allowed("tools/trace/x.cc", "cli/run.h")
        self.assert_allowed("src/cli/doctor/x.cc", "process/pagemap.h")

    def test_public_headers_include_public_headers_only(self):
        self.assert_forbidden("include/farside/ptr.hpp", "base/bits.h", "a public header")
        self.assert_allowed("include/farside/ptr.hpp", "farside/scope.hpp")

    def test_public_headers_belong_to_layers(self):
        self.assert_forbidden("src/fiber/worker.cc", "farside/object.h", 'fiber may not include "farside/object.h"')
        self.assert_forbidden("src/pager/pager.cc", "farside/ptr.hpp", "belongs to objects")
        self.assert_forbidden("src/objects/api.cc", "farside/farside.h", "belongs to libfarside and preload")
        self.assert_forbidden("src/preload/runtime.cc", "farside/containers/list.hpp", "belongs to containers")
        self.assert_allowed("src/fiber/worker.cc", "farside/scope_state.h")
        self.assert_allowed("src/objects/api.cc", "farside/object.h")
        self.assert_allowed("src/libfarside/region.cc", "farside/farside.h")
        self.assert_allowed("bench/objects/map.cc", "farside/containers/list.hpp")

    def test_public_headers_keep_the_order_among_themselves(self):
        found = self.problems("include/farside/fiber.h", "#include <farside/object.h>\n")
        self.assertIn("include/farside/fiber.h:1: fiber may not include", found[0])
        self.assert_forbidden("include/farside/object.h", "farside/farside.h")
        self.assert_allowed("include/farside/containers/list.hpp", "farside/structure.hpp")

    def test_a_new_public_header_needs_an_owner(self):
        self.assertIn("add it to OWNERS", self.problems("include/farside/novel.h", "")[0])
        self.assert_forbidden("src/pager/pager.cc", "farside/novel.h", "add it to OWNERS")

    def test_applications_include_public_headers_only(self):
        self.assert_allowed("bench/apps/gups.cc", "app.h")
        self.assert_allowed("bench/apps/gups.cc", "farside/containers/array.hpp")
        self.assert_forbidden("bench/apps/gups.cc", "base/os.h", "public headers only")

    def test_bench_is_a_top_layer_and_tests_are_free(self):
        self.assert_allowed("bench/paging.cc", "measure/swap.h")
        self.assert_forbidden("src/cli/x.cc", "bench/paging.h", "points up")
        self.assert_allowed("tests/stress/x.cc", "cli/commands.h")

    def test_cycles_are_found(self):
        files = {"src/base/a.cc": '#include "abi/b.h"\n', "src/abi/b.h": '#include "pager/c.h"\n',
                 "src/pager/c.h": '#include "base/a.h"\n'}
        found = self.problems_of(files)[-1]
        self.assertIn("cycle of includes: abi -> pager -> base -> abi", found)
        self.assertIn("src/pager/c.h:1", found)

    def test_cycles_through_subfolders_are_found(self):
        files = {"src/cli/a.cc": '#include "cli/doctor/b.h"\n', "src/cli/doctor/b.h": '#include "cli/a.h"\n'}
        self.assertIn("cycle of includes: cli -> cli/doctor -> cli", self.problems_of(files)[-1])

    def test_cycles_between_files_are_found(self):
        files = {"src/pager/evict/a.cc": '#include "pager/evict/a.h"\n#include "pager/evict/b.h"\n',
                 "src/pager/evict/a.h": "", "src/pager/evict/b.cc": '#include "pager/evict/a.h"\n',
                 "src/pager/evict/b.h": ""}
        found = self.problems_of(files)
        self.assertEqual(found, ["cycle of includes between pager/evict/a, pager/evict/b "
                                 "(src/pager/evict/a.cc:2, src/pager/evict/b.cc:1)"])

    def test_a_header_and_its_sources_are_no_cycle(self):
        files = {"src/base/a.h": '#include "base/b.h"\n', "src/base/b.h": "",
                 "src/base/a.cc": '#include "base/a.h"\n#include "base/b.h"\n', "src/base/b.cc": '#include "base/b.h"\n',
                 "src/base/a_test.cc": '#include "base/a.h"\n'}
        self.assertEqual(self.problems_of(files), [])

    def test_large_folders_are_found(self):
        files = {f"src/base/f{number}.h": "" for number in range(check_layers.MAX_FILES)}
        self.assertEqual(self.problems_of(files), [])
        files["src/base/one_more.h"] = ""
        self.assertEqual(self.problems_of(files), ["src/base: 41 files; at most 40 in a folder"])

    def test_the_program_exits_1_and_prints_the_problem(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "src/base/os.cc"
            file.parent.mkdir(parents=True)
            file.write_text('#include "pager/pager.h"\n', encoding="utf-8")
            command = [sys.executable, "-B", check_layers.__file__, folder]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("src/base/os.cc:1: base may not include", result.stderr)


if __name__ == "__main__":
    unittest.main()
