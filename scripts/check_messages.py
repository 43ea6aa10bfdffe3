#!/usr/bin/env python3
"""Checks that messages, their identifiers and docs/troubleshooting.md agree.

check_messages.py [--root ROOT]    prints file:line: message, and exits 1 on any

- Every key of the table in src/base/messages.h occurs in a message of the sources, and identifiers and keys fit together:
  no key is hidden behind an earlier row with another identifier.
- Every error and warning that the preload library or a server can print has an identifier. Command-line errors need
  none: they are printed by one function, which adds the identifier of a family.
- docs/troubleshooting.md has exactly one heading for each identifier, as in "### F201", and no others.
"""
import argparse
import re
import sys
from pathlib import Path

TABLE = "src/base/messages.h"
PAGE = "docs/troubleshooting.md"
CALL = re.compile(r"\b(?:die|Status::error|log|log_with)\(")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"(?:\s*"((?:[^"\\]|\\.)*)")*')
PART = re.compile(r'"((?:[^"\\]|\\.)*)"')
ROW = re.compile(r'\{(?:"(F\d{3})"|(\w+)),\s*"((?:[^"\\]|\\.)*)"\}')
FAMILY = re.compile(r'(k\w+)\s*=\s*"(F\d{3})"')
HEADING = re.compile(r"^### (F\d{3})\b", re.MULTILINE)

# Where messages need identifiers: what the preload library and servers print by themselves.
IDENTIFIED = ("src/fiber/", "src/objects/", "src/pager/", "src/preload/", "src/remote/", "src/server/", "src/transport/",
              "src/base/")
# Printed by commands only (log_failure adds a family), or returned to the program as an error number.
WITHOUT = ("src/base/size.cc", "src/pager/policy/policy_set.cc", "src/server/server.cc",
           "src/preload/static_program/elf_image.cc")
WITHOUT_TEXTS = (
    "mprotect failed", "regions are in the far space only", "the reservation would be larger than the region",
    "jemalloc cannot create an arena", "jemalloc refuses extent hooks", "cannot read {}: {}", "cannot run {}: {}",
    "the controller {} accepts reports again",
)


def is_source(path):
    return path.suffix in (".cc", ".h") and not path.stem.endswith(("_test", "test_support", "fake_pager"))


def arguments_at(text, start):
    """The text of a call's arguments, which begin at `start`."""
    depth, quoted, at = 1, False, start
    while depth > 0 and at < len(text):
        char = text[at]
        if quoted:
            at += char == "\\"
            quoted = char != '"'
        elif char == '"':
            quoted = True
        else:
            depth += (char in "([{") - (char in ")]}")
        at += 1
    return text[start:at - 1]


def messages_in(text):
    """(line, format) of each error, warning or status with a literal format."""
    for call in CALL.finditer(text):
        arguments = arguments_at(text, call.end())
        if call.group(0) == "log_with(":
            arguments = re.sub(r"\{.*\}\s*,", "", arguments, count=1, flags=re.DOTALL)  # the fields
        if call.group(0).startswith("log") and not re.match(r"\s*LogLevel::k(Error|Warning)", arguments):
            continue
        literal = STRING.search(arguments)
        if literal:
            yield text.count("\n", 0, call.start()) + 1, "".join(PART.findall(literal.group(0)))


def table_rows(text):
    families = dict(FAMILY.findall(text))
    return [(identifier or families[family], key) for identifier, family, key in ROW.findall(text)], families


def message_id(rows, text):
    return next((identifier for identifier, key in rows if key in text), None)


def needs_identifier(name, text):
    if not name.startswith(IDENTIFIED) or name in WITHOUT or text in WITHOUT_TEXTS:
        return False
    return not text.startswith("{};") and not re.match(r"\{\}[.;:]?\s*($|\{|[A-Z\[])", text)  # a message within it has one


def source_problems(root, rows):
    found = set()
    for path in sorted((root / "src").rglob("*")):
        if not is_source(path) or path == root / TABLE:
            continue
        name = str(path.relative_to(root))
        for line, text in messages_in(path.read_text(encoding="utf-8")):
            found |= {key for _, key in rows if key in text}
            if not message_id(rows, text) and needs_identifier(name, text):
                yield f'{name}:{line}: "{text}" has no identifier: add a row to {TABLE}'
    for identifier, key in rows:
        if key not in found:
            yield f'{TABLE}: no message contains "{key}" ({identifier})'
    for at, (identifier, key) in enumerate(rows):
        if message_id(rows[:at], key) not in (None, identifier):
            yield f'{TABLE}: "{key}" ({identifier}) is hidden behind {message_id(rows[:at], key)}'


def page_problems(root, identifiers):
    headings = HEADING.findall((root / PAGE).read_text(encoding="utf-8"))
    for identifier in sorted(identifiers - set(headings)):
        yield f"{PAGE}: {identifier} is missing"
    for identifier in sorted(set(headings)):
        if identifier not in identifiers:
            yield f"{PAGE}: no message has the identifier {identifier}"
        if headings.count(identifier) > 1:
            yield f"{PAGE}: {identifier} has two headings"


def check(root):
    rows, families = table_rows((root / TABLE).read_text(encoding="utf-8"))
    yield from source_problems(root, rows)
    yield from page_problems(root, {identifier for identifier, _ in rows} | set(families.values()))


def main():
    parser = argparse.ArgumentParser(description="Checks the identifiers of messages.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    problems = list(check(parser.parse_args().root))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
