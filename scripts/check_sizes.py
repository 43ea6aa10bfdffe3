#!/usr/bin/env python3
"""Checks that files and functions are short.

check_sizes.py [ROOT]   prints one line for each violation and exits 1 if there are any.

- No file has more than MAX_FILE lines, except TABLES.
- No function has more than MAX_FUNCTION lines, from its opening brace to the closing one (Python: from `def`), except
  TABLE_FUNCTIONS.
"""
import ast
import re
import sys
from pathlib import Path

MAX_FILE = 500
MAX_FUNCTION = 60
TOPS = ("src", "include", "tools", "bench", "tests")
C_FILES = {".h", ".hpp", ".c", ".cc", ".inc"}

TABLES = set()  # files that are one table
TABLE_FUNCTIONS = {("bench/benchmarks.cc", "make_benchmarks"),  # functions that return one
                   *((f"bench/papers/{paper}.cc", paper) for paper in ("aifm", "atlas", "eden", "kona", "mage"))}

COMMENT_OR_TEXT = re.compile(
    r'R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.S)
SCOPE = re.compile(r'(?:template\s*<.*>\s*)?(?:inline\s+)?(?:namespace|class|struct|union|enum|extern\s*"")(?!.*\)\s*'
                   r'(?:const\s*|noexcept\s*|override\s*)*$)', re.S)
NAME = re.compile(r"(operator\s*\S+?|[\w:~]+)\s*\(")


def blanked(text):
    """The text without comments, and with empty literals. Lines stay where they are."""
    def blank(match):
        lines = "\n" * match.group().count("\n")
        return ('""' if '"' in match.group()[:3] else "0" if match.group()[0] == "'" else "") + lines
    text = re.sub(r"(?<=\d)'(?=\d)", "", text)  # digit separators
    text = COMMENT_OR_TEXT.sub(blank, text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group().count("\n"), text, flags=re.M)


def c_functions(text):
    """(name, first line, last line) of each function that is in no other one."""
    opened = []  # of each open brace: whether it is a namespace's or class's, its line, what precedes it
    since, line = 0, 1
    text = blanked(text)
    for at, char in enumerate(text):
        if char == "\n":
            line += 1
        elif char == ";" and text.count("(", since, at) == text.count(")", since, at):
            since = at + 1
        elif char == "{":
            before = text[since:at].strip()
            opened.append((bool(SCOPE.match(before)), line, before))
            since = at + 1
        elif char == "}" and opened:
            is_scope, first, before = opened.pop()
            since = at + 1
            in_scopes = all(scope for scope, _, _ in opened)
            if in_scopes and not is_scope and "(" in before and not before.endswith(("=", ",", "(")):
                yield NAME.search(before).group(1) if NAME.search(before) else "?", first, line


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            yield node.name, node.lineno, node.end_lineno


def check_file(path, name):
    text = path.read_text(encoding="utf-8")
    count = text.count("\n")
    if count > MAX_FILE and name not in TABLES:
        yield f"{name}: {count} lines; at most {MAX_FILE}. Split it by subject"
    functions = python_functions(text) if path.suffix == ".py" else c_functions(text)
    for function, first, last in functions:
        if last - first + 1 > MAX_FUNCTION and (name, function) not in TABLE_FUNCTIONS:
            yield f"{name}:{first}: {function} has {last - first + 1} lines; at most {MAX_FUNCTION}"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = []
    for top in TOPS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix in C_FILES | {".py"}:
                problems += check_file(path, str(path.relative_to(root)))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
