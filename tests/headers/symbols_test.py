#!/usr/bin/env python3
"""libfarside.so exports what the C headers declare and nothing else, under one version; each function has a man page.

symbols_test.py SOURCE LIBRARY VERSION"""
import re
import subprocess
import sys
import unittest
from pathlib import Path

SOURCE, LIBRARY, VERSION = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
NODE = "FARSIDE_" + ".".join(VERSION.split(".")[:2])
sys.path.insert(0, str(SOURCE / "scripts"))
from make_api_manual import pages_of  # noqa: E402
from public_api import read_headers  # noqa: E402

HEADERS = read_headers(SOURCE / "include")


def declared():
    return sorted(name for header in HEADERS for name in header.exported())


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class SymbolsTest(unittest.TestCase):
    def test_the_map_lists_what_the_headers_declare(self):
        text = (SOURCE / "src/libfarside/libfarside.map").read_text(encoding="utf-8")
        self.assertEqual(re.findall(r"^(\w+\S*) \{", text, re.MULTILINE), [NODE])
        self.assertEqual(sorted(re.findall(r"^ +(farside_\w+);", text, re.MULTILINE)), declared())

    def test_the_library_exports_what_the_headers_declare(self):
        symbols = [line.split()[-1] for line in output("nm", "--dynamic", "--defined-only", LIBRARY).splitlines()]
        self.assertEqual(sorted(set(symbols) - {f"{NODE}@@{NODE}", NODE}), [f"{name}@@{NODE}" for name in declared()])

    def test_the_name_of_the_library_is_that_of_the_minor_version(self):
        name = re.search(r"SONAME.*\[(.*)\]", output("readelf", "--dynamic", "--wide", LIBRARY))[1]
        self.assertEqual(name, "libfarside.so." + ".".join(VERSION.split(".")[:2]))

    def test_the_header_has_the_version_of_the_project(self):
        text = (SOURCE / "include/farside/version.h").read_text(encoding="utf-8")
        parts = [re.search(rf"FARSIDE_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(".".join(parts), VERSION)

    def test_each_documented_function_has_a_man_page(self):
        for header in HEADERS:
            functions = {f.name for group in header.groups if not group.is_internal for f in group.functions}
            self.assertLessEqual(functions, pages_of(header, VERSION).keys())
            for group in header.groups:
                for function in group.functions:
                    self.assertEqual(function.name.endswith("_") and not group.is_internal, False, function.name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
