#!/usr/bin/env python3
"""Checks sources with clang: all its warnings are errors, those of the thread-safety analysis included
(docs/internals/locking.md). What differs from main also has to pass the quick checks of .clang-tidy, in src and tools.

check_with_clang.py          what differs from main: committed since the branch began, changed, or new
check_with_clang.py --all    everything

A changed header is checked in one source that includes it. Commands are those of the preset `tidy`, which is
configured in build/tidy first; no source is compiled. Checks of clang-tidy differ between releases: where clang-tidy-14
is missing, only the warnings are checked.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = "build/tidy/compile_commands.json"
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
TEST = re.compile(r"(_test\.cc|/test_\w+\.(cc|h))$")
TIDY = shutil.which("clang-tidy-14")


def git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True).stdout.split()


def changed_files():
    """Without a branch main, as in some clones of CI, what is not committed yet."""
    base = git("merge-base", "HEAD", "main") or git("merge-base", "HEAD", "origin/main") or ["HEAD"]
    return git("diff", "--name-only", "--diff-filter=d", base[0]) + git("ls-files", "--others", "--exclude-standard")


def including(header, texts):
    """The files of `texts` (contents by path) that include the header directly, by its path or by the end of it."""
    return [path for path, text in texts.items()
            if any(("/" + header).endswith("/" + name) for name in INCLUDE.findall(text))]


def source_for(header, sources, texts):
    """One of `sources` that includes the header, directly rather than through others; None if there is none."""
    seen, level = {header}, [header]
    while level:
        found = sorted(path for h in level for path in including(h, texts) if path not in seen)
        own = [path for path in found if Path(path).stem == Path(header).stem]
        direct = [path for path in own + found if path in sources]
        if direct:
            return direct[0]
        seen.update(found)
        level = found
    return None


def to_check(changed, sources, texts):
    wanted = {path for path in changed if path in sources}
    headers = (path for path in changed if path.endswith((".h", ".hpp")))
    return sorted(wanted | {source_for(header, sources, texts) for header in headers} - {None})


def read_commands():
    """The compiler's words by source. Configures first, in seconds, and makes the one header that is generated."""
    for command in (["cmake", "--preset", "tidy"], ["cmake", "--build", "build/tidy", "--target", "farside_commit"]):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    entries = json.loads((ROOT / COMMANDS).read_text(encoding="utf8"))
    return {os.path.relpath(e["file"], ROOT): (e["directory"], shlex.split(e["command"])) for e in entries}


def without_output(words):
    at = words.index("-o")
    return [w for w in words[:at] + words[at + 2:] if w != "-c" and not w.endswith("ccache")]


def check(source, directory, words, tidied=None):
    """What clang says of a source, or clang-tidy of it and of the headers in `tidied`; nothing if it is right."""
    if tidied is not None and TIDY and source.startswith(("src/", "tools/")) and not TEST.search(source):
        headers = "|".join(re.escape(path) for path in tidied if path.endswith((".h", ".hpp"))) or "-"
        command = [TIDY, "--quiet", "--warnings-as-errors=*", "--checks=-clang-analyzer-*", "-p", "build/tidy",
                   f"--header-filter=/({headers})$", source]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        said = done.stdout
    else:
        command = [*without_output(words), "-fsyntax-only", "-Werror"]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        said = done.stderr
    return said or done.stderr if done.returncode != 0 else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    changed = [] if options.all else [path for path in changed_files() if path.endswith((".h", ".hpp", ".c", ".cc"))]
    if not options.all and not changed:
        return 0
    commands = read_commands()
    tracked_and_new = git("ls-files", "--cached", "--others", "--exclude-standard", "*.h", "*.hpp", "*.cc", "*.c")
    texts = {path: (ROOT / path).read_text(encoding="utf8") for path in tracked_and_new if (ROOT / path).exists()}
    wanted = sorted(commands) if options.all else to_check(changed, commands, texts)

    def examine(source):
        return check(source, *commands[source], None if options.all else changed)

    with ThreadPoolExecutor(options.jobs) as pool:
        found = [said for said in pool.map(examine, wanted) if said]
    print(*found, sep="\n", end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
