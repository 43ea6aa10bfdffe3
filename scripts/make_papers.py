#!/usr/bin/env python3
"""Makes docs/papers.md and its charts: runs `farside bench papers`, then shows its JSON.

make_papers.py BUILD [--json FILE] [OPTION...]    runs what FILE (BUILD/papers.json) lacks: hours; OPTIONs are those of the benchmark

A run that was stopped goes on where it was. A complete FILE is shown without measuring.
"""
import argparse
import json
import subprocess
import sys
from pathlib import Path

from make_benchmarks import ROOT, cell, conditions, distinct, figure, markdown, wrapped

PAPERS = {"aifm": "AIFM", "eden": "Eden", "mage": "MAGE", "atlas": "Atlas", "kona": "Kona"}
CHARTS = {"x": "", "%": "_percent"}  # the ending of the file with the ratios of a unit

HEAD = """# The papers' figures, repeated

AIFM, Eden, MAGE, Atlas and Kona ([references](references.md)) have 55 figures and tables that report results. Here is each of
them: what was measured there, the command that measures the same here, the paper's ratio beside ours, and what differs; or why
it cannot be done here. This page and its charts are made by one command, as root:

    make papers

{conditions}

{how}
"""
HOW = """`farside bench papers --figure aifm-6` repeats one of them. In the commands SIZE is {size}; TCP is the address of a memory server on
this machine, OUT a folder; `{{a,b}}` stands for a command with each. **Ratios only**: the papers' machines have 10 to 56 cores and
links of 25 to 200 Gbit/s to a second machine. A dash stands where the paper's text has no number, or where ours is of a stand-in or of
something else. On a busy machine a ratio of one repetition may be off by several times, as who gets a processor decides; with
so little data the least near memory, 8 MiB, is a large share. [Benchmarks](benchmarks.md) has Farside's figures on a quieter machine."""


def value(rows, ratio, of):
    found = [row for row in rows if row.get("ratio") == ratio and row["of"] == of]
    return figure(found[0], "value") if found else None


def digits(number):
    return 2 if number is None or abs(number) < 10 else 1 if abs(number) < 100 else 0


def table(rows):
    lines = []
    for ratio in distinct(row["ratio"] for row in rows if "ratio" in row):
        unit = next(row["unit"] for row in rows if row.get("ratio") == ratio).strip()
        numbers = [value(rows, ratio, of) for of in ("paper", "Farside")]
        lines.append([f"{ratio}, {unit}" if unit != "x" else ratio, *(cell(number, digits(number)) for number in numbers)])
    return markdown(["ratio", "paper", "here"], lines) + "\n" if lines else ""


def rows_of(document, name, member):
    return [row for row in document["rows"] if row.get("figure") == name and member in row]


def section(document, name):
    text = rows_of(document, name, "measured")[0]
    parts = [f"**{name}**: {text['measured']}.", f"There: {text['stated']}."]
    parts += [f"Differs: {text['differs']}."] if text["differs"] else []
    parts += [f"Not measured: {text['reason']}."] if text["reason"] else []
    parts += [f"Not measured this time: {document['skipped'][name]}."] if name in document["skipped"] else []
    commands = "\n".join("    " + ("" if c.startswith("apps/") else "farside ") + c for c in text["commands"])
    return "\n\n".join(part for part in (wrapped(" ".join(parts)), commands, table(rows_of(document, name, "ratio"))) if part)


def size_of(settings):
    return settings["size"] + (", and `bench` commands get `--quick`" if settings["quick"] else "")


def page(document):
    how = HOW.format(size=size_of(document["settings"]))
    parts = [HEAD.format(conditions=wrapped(conditions([document])), how=wrapped(how))]
    for paper, title in PAPERS.items():
        parts.append(f"## {title}\n")
        parts += [f"![The paper's ratios and ours](plots/papers_{paper}{ending}.svg)\n" for unit, ending in CHARTS.items()
                  if any(row.get("paper") == paper and row.get("unit") == unit and row["compared"] for row in document["rows"])]
        names = distinct(row["figure"] for row in document["rows"] if row.get("paper") == paper)
        parts += [section(document, name).rstrip() + "\n" for name in names]
    return "\n".join(parts)


def measure(build, file, options):
    command = [build / "bin/farside", "bench", "papers", "--json", file, "--plots", ROOT / "docs/plots", *options]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description="Makes docs/papers.md and its charts.")
    parser.add_argument("build", type=Path, help="a release build")
    parser.add_argument("--json", type=Path, help="the results")
    arguments, options = parser.parse_known_args()
    file = arguments.json or arguments.build / "papers.json"
    if not file.exists() or not file.stat().st_size:
        measure(arguments.build, file, options)
    (ROOT / "docs/papers.md").write_text(page(json.loads(file.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
