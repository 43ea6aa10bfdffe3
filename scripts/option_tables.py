#!/usr/bin/env python3
"""Writes the tables of options in the documents from the rows of src/abi/option_table.cc, and from built programs.

option_tables.py [--root ROOT] [--describe PROGRAM...]            writes the tables
option_tables.py [--root ROOT] [--describe PROGRAM...] --check    prints file: message for each that differs, exits 1 on any

A table is between two lines of a Markdown file:

    <!-- table of options -->  or  <!-- table of keys of --tune -->  or  <!-- table of farside serve -->
    <!-- end of table -->

Those of commands, as the last one, come from what a program prints with --describe. Without such a program they stay.
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROWS = "src/abi/option_table.cc"
COLUMNS = ("name", "variable", "value", "default", "range", "scope", "set", "help")
# A string, a comma, or a name with template arguments.
TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|(,)|([\w:]+(?:<[^>]*>)?)')
ROW = re.compile(r'^    \{(".*?)\},\n(?=    \{|\};)', re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"(<!-- table of (options|keys of (--\w+)|(farside \w+)) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def read_rows(text):
    """The rows of the C++ table as dictionaries of COLUMNS. Adjacent strings are one."""
    body = re.search(r"kRows\[\] = \{\n(.*?^\};)", text, re.MULTILINE | re.DOTALL).group(1)
    rows = []
    for row in ROW.finditer(body):
        fields = [""]
        for string, comma, name in TOKEN.findall(row.group(1)):
            if comma:
                fields.append("")
            else:
                fields[-1] += re.sub(r"\\(.)", r"\1", string) or name
        if fields[len(COLUMNS):] == ["true"]:  # rare: see OptionRow
            fields.pop()
        if len(fields) != len(COLUMNS):
            raise ValueError(f"{ROWS}: a row of {len(fields)} columns: {row.group(1)}")
        rows.append(dict(zip(COLUMNS, fields)))
    if len(rows) != len(re.findall(r"^    \{", body, re.MULTILINE)):
        raise ValueError(f"{ROWS}: only {len(rows)} rows were understood")
    return rows


def code(text):
    return f"`{text}`" if text else ""


def values_of(row):
    return "" if not row["value"] else row["range"] or code(row["value"])


def table_of(rows, option):
    """The lines of a table: of the options, or of the keys of one."""
    if option:
        cells = [[code(row["name"].partition(" ")[2]), values_of(row), row["default"], row["help"]]
                 for row in rows if row["name"].startswith(option + " ")]
        heads = ["key", "values", "default", "meaning"]
    else:
        cells = [[code(row["name"]), code(row["variable"]), values_of(row), row["default"], row["help"]]
                 for row in rows if row["scope"] != "Scope::kInternal" and " " not in row["name"]]
        heads = ["option", "variable", "values", "default", "meaning"]
    return markdown(heads, cells)


def markdown(heads, cells):
    lines = [heads, ["---"] * len(heads), *cells]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines).replace("|  ", "| ")


def described(program):
    """{name: options} of a program and its commands, as it describes itself."""
    output = subprocess.run([program, "--describe"], capture_output=True, text=True, check=True).stdout
    description = json.loads(output)
    name = description["name"]
    return {name: description["options"],
            **{f"{name} {command['name']}": command["options"] for command in description["commands"]}}


def values_of_described(option):
    is_named = all(choice in option["help"] for choice in option["choices"])
    return option["range"] or (code(option["value"]) if is_named else ", ".join(option["choices"]))


def table_of_command(options):
    cells = [[", ".join(code(name) for name in option["names"]), values_of_described(option), option["default"], option["help"]]
             for option in options if "--help" not in option["names"]]
    return markdown(["option", "values", "default", "meaning"], cells)


def with_tables(text, rows, commands):
    def write(match):
        if match[4] and match[4] not in commands:
            return match[0]
        table = table_of_command(commands[match[4]]) if match[4] else table_of(rows, match[3])
        return match[1] + "\n" + table + "\n" + match[6]
    return TABLE.sub(write, text)


def documents(root):
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def main():
    parser = argparse.ArgumentParser(description="Writes the tables of options in the documents.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--check", action="store_true", help="compare them instead")
    parser.add_argument("--describe", nargs="+", default=[], metavar="PROGRAM", help="programs whose tables are written, too")
    arguments = parser.parse_args()
    commands = {name: options for program in arguments.describe for name, options in described(program).items()}
    rows = read_rows((arguments.root / ROWS).read_text(encoding="utf-8"))
    differ = False
    for path in documents(arguments.root):
        text = path.read_text(encoding="utf-8")
        wanted = with_tables(text, rows, commands)
        if wanted == text:
            continue
        if arguments.check:
            print(f"{path.relative_to(arguments.root)}: a table of options differs from the programs; run make option-tables",
                  file=sys.stderr)
            differ = True
        else:
            path.write_text(wanted, encoding="utf-8")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
