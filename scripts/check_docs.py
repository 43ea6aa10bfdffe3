#!/usr/bin/env python3
"""Checks the documents against the tree.

check_docs.py [--root ROOT]                the checks below, without --run; prints file:line: message, exits 1 on any
check_docs.py [--root ROOT] --run BUILD    executes the documented commands with the programs of a build folder

- Every relative link and every anchor in a Markdown file resolves.
- `src/FOLDER/FILE` `FUNCTION` names a function that the file declares or defines.
- docs/decisions/README.md links every page of its folder.
- docs/benchmarks.md has at most BENCHMARK_LINES lines, and each of its sections with a table or a plot names the benchmark that makes it.
- No retired name (RETIRED) and no reference to a document outside the repository occurs in the tree.
- --run: every fenced block with the info string "sh run" in README.md and docs/guide succeeds. Each block runs under
  `bash -e` in an empty folder, with BUILD/bin first in PATH, for at most SECONDS.
"""
import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import unquote

SECONDS = 60
BENCHMARK_LINES = 200

# Names that were replaced, as regular expressions, each with what replaced it and, where the word has other meanings
# elsewhere, the folders that it is retired in. Words that have other meanings everywhere (end, help, bring, part, line,
# left, card) are not listed.
RETIRED = [
    (r"\bFixups\b", "OwnerOverrides"),
    (r"\bbring_in\b", "map_and_publish"),
    (r"\bbear\(", "mark_live"),
    (r"\blicences?\b", "access bits", ("src/", "include/")),
    (r"\b[Tt]old\b", "reported, returned, printed"),
    (r"\b[Mm]end(s|ed|ing)?\b", "fix"),
    (r"\bPiece\b", "SubpageRead"),
    (r"\bkMost[A-Z]\w*", "kMax..."),
    (r"\bkLeast[A-Z]\w*", "kMin..."),
    (r"\bmay_pass\b", "is_transient"),
    (r"\bdial_patiently\b", "dial_with_retry"),
    (r"\bSteadyChannel\b|transport/steady", "ReconnectingChannel"),
    (r"\bPatience\b|transport/patience", "RetryPolicy"),
    (r"\bfarewell\b", "error reply"),
    (r"\bcarry_out\b", "execute"),
    (r"\bbreak_off\b", "close_with_error"),
    (r"\bkeep_hold\b", "keep_region_alive"),
    (r"\btold_few_\b", "warned_few_"),
    (r"\bfall_idle\b", "deactivate_all"),
    (r"\bkDeafNs\b", "kAcceptBackoffNs"),
    (r"\bSeat\b", "EvictorSlot"),
    (r"\bbell_\b", "wakeup_"),
    (r"\bstructure_left\b", "structure_take_evicted"),
    (r"\bis_licensed\b", "is_accessible"),
    (r"\bExtent(Path|Table|Queue|Index|Evictor|Density|Streams)\b", "Huge..."),
    (r"--ways\b|--parts\b", "--configurations, --suites"),
    (r"\bslow door\b", "slow path"),
    (r"\bby and by\b", "gradually"),
    (r"does not take reports; trying on", "rejected a report; retrying"),
    (r"\bfiber::Fiber\b|\bfiber::Hold\b|\bfiber::run\b", "farside::fiber, fiber_hold, run_fibers"),
    (r"\bDESIGN(\.md|\s+\d)|\bHOUSE(\.md|\s+\d)", "name a text in the repository"),
]
TEXT_SUFFIXES = {".md", ".h", ".hpp", ".c", ".cc", ".py", ".txt", ".cmake", ".in", ".json", ".supp", ".service", ".conf",
                 ""}
EXEMPT = ("scripts/check_docs.py", "scripts/check_docs_test.py")  # the list itself
HISTORY = ("CHANGELOG.md", "docs/decisions/", "docs/history/")  # may name what was replaced

FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*(.*?)\s*$")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^()\s>]*(?:\([^()]*\)[^()\s>]*)*)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?(\S+?)>?(?:\s|$)")
STEP = re.compile(r"`((?:src|bench|tools|include|tests)/[\w./-]+\.(?:h|hpp|c|cc|py))`\s+`([A-Za-z_]\w*(?:::\w+)*)(?:\(\))?`")


def tracked_files(root):
    """The files of the repository, or all files where there is none."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=False)
    if listed.returncode == 0:
        return sorted({root / name for name in listed.stdout.decode().split("\0") if name and (root / name).is_file()})
    return sorted(path for path in root.rglob("*") if path.is_file())


def markdown_files(root):
    return [path for path in tracked_files(root) if path.suffix == ".md"]


# ---- Fenced blocks ----

def split_fences(text):
    """Two results: (number, line) of all lines outside fenced blocks, and (number, info, lines) of every block."""
    outside, blocks, fence = [], [], None
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if fence is None and match:
            fence = match.group(2)
            blocks.append((number, match.group(3), []))
        elif fence and match and match.group(2).startswith(fence) and not match.group(3):
            fence = None
        elif fence:
            blocks[-1][2].append(line)
        else:
            outside.append((number, line))
    return outside, blocks


def without_code(line):
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", lambda match: " " * len(match[0]), line)


# ---- Links and anchors ----

def anchor_of(heading):
    """As GitHub makes anchors: markup removed, lower case, spaces to dashes, all other punctuation left out."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    text = re.sub(r"(?<!\w)[*_]+(\S.*?\S|\S)[*_]+(?!\w)", r"\1", text).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors_in(path):
    anchors, seen = set(), {}
    text = path.read_text(encoding="utf-8")
    for _, line in split_fences(text)[0]:
        anchors |= set(re.findall(r'<a\s+(?:id|name)="([^"]+)"', line))
        if match := re.match(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$", line):
            anchor = anchor_of(match.group(1))
            seen[anchor] = seen.get(anchor, -1) + 1
            anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
    return anchors


def links_of(path):
    """(number, target) of each link of a Markdown file."""
    for number, line in split_fences(path.read_text(encoding="utf-8"))[0]:
        text = without_code(line)
        for match in list(LINK.finditer(text)) + list(REFERENCE.finditer(text)):
            yield number, match.group(1)


def link_problem(root, path, target):
    if re.match(r"^[a-z][a-z0-9+.-]*:", target) or target.startswith("//"):
        return None
    file, _, anchor = target.partition("#")
    goal = path.parent / unquote(file) if file else path
    if file.startswith("/") or not goal.resolve().is_relative_to(root.resolve()):
        return f"link to {target}: outside of the repository"
    if not goal.exists():
        return f"link to {target}: no such file"
    if anchor and goal.suffix == ".md" and unquote(anchor) not in anchors_in(goal):
        return f"link to {target}: no heading gives that anchor"
    return None


def check_links(root):
    for path in markdown_files(root):
        for number, target in links_of(path):
            if problem := link_problem(root, path, target):
                yield f"{path.relative_to(root)}:{number}: {problem}"


# ---- Functions that the documents name ----

def step_problem(root, file, function):
    path = root / file
    if not path.is_file():
        return f"{file}: no such file"
    name = function.rsplit("::", 1)[-1]
    definition = rf"^\s{{0,4}}(?!(?:return|else|if|for|while|case|new|delete|throw)\b)(?:[\w:<>,*&\[\]()\"]+\s+)+[*&]*(?:\w+::)*{name}\b\s*[({{=;]"
    if re.search(definition, path.read_text(encoding="utf-8"), re.MULTILINE):
        return None
    return f"{file} does not define {function}"


def check_steps(root):
    for path in markdown_files(root):
        text = path.read_text(encoding="utf-8")
        for match in STEP.finditer(text):
            if problem := step_problem(root, *match.groups()):
                yield f"{path.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}: {problem}"


# ---- The index of decisions ----

def check_decisions(root):
    index = root / "docs/decisions/README.md"
    linked = {target for _, target in links_of(index)} if index.is_file() else set()
    for page in sorted(index.parent.glob("[0-9]*.md")):
        if page.name not in linked:
            yield f"docs/decisions/README.md:1: {page.name} is not listed"


# ---- Benchmarks ----

def names_of_benchmarks(root):
    """As `farside bench --list` prints them."""
    table = root / "bench/benchmarks.cc"
    return set(re.findall(r'\{\.name = "([\w-]+)"', table.read_text(encoding="utf-8"))) if table.is_file() else set()


def section_problem(text, known):
    if "\n|" not in text and "plots/" not in text:
        return None
    named = re.findall(r"`farside bench ([\w-]+)", text)
    if not named:
        return "no command makes what is shown"
    unknown = [name for name in named if name not in known]
    return f"no benchmark has the name {unknown[0]}" if unknown else None


def check_benchmarks(root):
    path = root / "docs/benchmarks.md"
    if not path.is_file():
        return
    text, known = path.read_text(encoding="utf-8"), names_of_benchmarks(root)
    if (lines := text.count("\n")) > BENCHMARK_LINES:
        yield f"docs/benchmarks.md:{lines}: more than {BENCHMARK_LINES} lines"
    for part in re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]:
        if problem := section_problem(part, known):
            yield f"docs/benchmarks.md:{text[:text.index(part)].count(chr(10)) + 1}: {problem}"


# ---- Retired names ----

def patterns_for(name):
    """The patterns that hold for a file, compiled: the last one only where it tells history."""
    rows = RETIRED[-1:] if name.startswith(HISTORY) else RETIRED
    return [(re.compile(pattern), replacement) for pattern, replacement, *folders in rows
            if not folders or name.startswith(folders[0])]


def retired_in(line, patterns):
    for pattern, replacement in patterns:
        if match := pattern.search(line):
            yield f'"{match.group(0)}" is retired: {replacement}'


def check_names(root):
    for path in tracked_files(root):
        name = str(path.relative_to(root))
        if path.suffix not in TEXT_SUFFIXES or name in EXEMPT:
            continue
        patterns = patterns_for(name)
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for problem in retired_in(line, patterns):
                yield f"{name}:{number}: {problem}"


# ---- Documented commands ----

def runnable_blocks(root):
    """(path, number, script) of every block that is marked to be run."""
    for path in [root / "README.md", *sorted((root / "docs/guide").glob("*.md"))]:
        if path.is_file():
            for number, info, lines in split_fences(path.read_text(encoding="utf-8"))[1]:
                if info.split() == ["sh", "run"]:
                    yield path, number, "\n".join(lines) + "\n"


def run_environment(build):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FARSIDE_")}
    return {**clean, "PATH": f"{build}/bin:{os.environ['PATH']}"}


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run_block(script, build, seconds):
    """What went wrong with a block, or None. Ends everything that the block left running."""
    with tempfile.TemporaryDirectory(prefix="farside-docs-") as folder:
        with open(f"{folder}.log", "w+b") as log:
            os.unlink(log.name)  # outside of the folder, which the block finds empty
            process = subprocess.Popen(["bash", "-e", "-o", "pipefail", "-c", script], cwd=folder, stdout=log,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                                       env=run_environment(build))
            try:
                status = process.wait(timeout=seconds)
                problem = f"exit status {status}" if status else None
            except subprocess.TimeoutExpired:
                problem = f"no end within {seconds} s"
            finally:
                end_group(process)
                process.wait()
            log.seek(0)
            output = log.read()[-2000:].decode(errors="replace")
    return f"{problem}\n{script}\n{output}" if problem else None


def run_blocks(root, build, seconds):
    for path, number, script in runnable_blocks(root):
        start = time.monotonic()
        problem = run_block(script, build, seconds)
        place = f"{path.relative_to(root)}:{number}"
        print(f"{place}: {'failed' if problem else 'ok'}, {time.monotonic() - start:.1f} s", flush=True)
        if problem:
            yield f"{place}: {problem}"


def main():
    parser = argparse.ArgumentParser(description="Checks the documents against the tree.")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--run", type=Path, metavar="BUILD", help="execute the documented commands instead")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time of one block")
    arguments = parser.parse_args()
    root = arguments.root
    if arguments.run:
        problems = list(run_blocks(root, arguments.run.resolve(), arguments.seconds))
    else:
        problems = [*check_links(root), *check_steps(root), *check_decisions(root), *check_benchmarks(root), *check_names(root)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
