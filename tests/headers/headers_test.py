#!/usr/bin/env python3
"""Every public header compiles alone and without warnings, in the languages that it supports: *.h as C11 and C++17,
*.hpp as C++17 and C++20, those of containers and data frames as C++20. The samples in the headers' first comments compile, too.

headers_test.py CC CXX INCLUDE

A sample is a run of comment lines that are indented by three spaces or more, one of which ends with a semicolon.
SURROUNDINGS holds what samples use without declaring it; FILE_SCOPE matches samples that do not belong into a function."""
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CC, CXX, INCLUDE = sys.argv[1:]
WARNINGS = ["-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Werror"]
SAMPLE_WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-unused"]

CXX20 = ("farside/containers/", "farside/frame/")

# Before the function, and parameters of the function, of all samples of a header.
SURROUNDINGS = {
    "farside/farside.h": ("struct item { int value; };", "struct item* item, uint64_t* column, size_t count"),
    "farside/fiber.hpp": ("#include <cstdio>\n#include <string>", ""),
    "farside/offload.hpp": ("#include <cstdio>\n#include <farside/structure.hpp>", ""),
    "farside/offload_algorithms.hpp": ("", "const int* ages, size_t n"),
    "farside/ptr.hpp": ("struct Point { int x, y; };", ""),
    "farside/scope.hpp": ("#include <farside/ptr.hpp>\nstruct Node { int value; };",
                          "const farside::unique_ptr<Node>& pointer"),
    "farside/structure.hpp": ("#include <cstdio>\nstruct Entry { int key, value; };", ""),
    "farside/containers/array.hpp": ("struct Pixel { int red; };\nstruct Record { int key[16]; };",
                                     "size_t width, size_t height"),
    "farside/containers/hash_map.hpp": ("struct Session { int user, last; Session(int u, int l) : user(u), last(l) {} };",
                                        "int user, int now"),
    "farside/frame/data_frame.hpp": ("#include <cstdio>", "std::vector<int32_t> metres, std::vector<double> fares"),
    "farside/frame/column.hpp": ("#include <vector>", ""),
    "farside/containers/offload_algorithms.hpp": ("", ""),
    "farside/containers/list.hpp": ("#include <cstdio>", ""),
    "farside/containers/positions.hpp": ("#include <farside/containers/vector.hpp>\n#include <algorithm>",
                                         "farside::vector<uint64_t>& v, uint64_t& sum"),
    "farside/containers/queue.hpp": ("struct Job { int number; };", "const Job& job"),
    "farside/containers/vector.hpp": ("struct Record { int key[16]; };", ""),
}
STATEMENT = re.compile(r";\s*(//.*)?$", re.M)
FILE_SCOPE = re.compile(r"^(static .*\) \{|struct Node|struct Scan)", re.M)


def languages(header):
    if header.endswith(".h"):
        return ["c11", "c++17"]
    return ["c++20"] if header.startswith(CXX20) else ["c++17", "c++20"]


def samples(path):
    """The samples of the header's first comment."""
    text = path.read_text().split("\n#ifndef", 1)[0]
    lines = [re.sub(r"^(//|/\*| \*)", "", line).removesuffix("*/") for line in text.split("\n")]
    code = [line if line.startswith("   ") else "" for line in lines]
    pieces = re.split(r"\n\n+", "\n".join(code))
    return [piece for piece in pieces if STATEMENT.search(piece)]


def program(header, sample):
    before, parameters = SURROUNDINGS.get(header, ("", ""))
    if FILE_SCOPE.search(sample.lstrip()):
        body = sample
    else:
        body = f"void sample({parameters}) {{\n{sample}\n}}"
    return f"#include <{header}>\n{before}\n{body}\n"


def compile_text(what, language, text, warnings):
    """An error message, or None."""
    compiler, kind = (CC, "c") if language.startswith("c1") else (CXX, "c++")
    command = [compiler, "-x", kind, f"-std={language}", "-I", INCLUDE, "-fsyntax-only", *warnings, "-"]
    run = subprocess.run(command, input=text, capture_output=True, text=True)
    return None if run.returncode == 0 else f"{what} as {language}:\n{run.stderr}{text}"


def jobs():
    root = Path(INCLUDE)
    headers = sorted(str(path.relative_to(root)) for pattern in ("*.h", "*.hpp") for path in root.rglob(pattern))
    assert len(headers) > 10, f"no headers in {INCLUDE}"
    for header in headers:
        for language in languages(header):
            yield header, language, f"#include <{header}>\n", WARNINGS
        for sample in samples(root / header):
            yield f"a sample in {header}", languages(header)[0], program(header, sample), SAMPLE_WARNINGS


def main():
    todo = list(jobs())
    compiled = sum(what.startswith("a sample") for what, *_ in todo)
    assert compiled > 10, f"only {compiled} samples found"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [error for error in pool.map(lambda job: compile_text(*job), todo) if error]
    print(f"{len(todo) - compiled} compilations of headers, {compiled} samples, {len(errors)} errors")
    print("\n".join(errors))
    return 1 if errors else 0


sys.exit(main())
