#!/usr/bin/env python3
"""Holds the order of layers: a file may include its own folder and folders of lower layers, nothing else.

check_layers.py [ROOT]   prints file:line: message for every include that points up or sideways, and exits 1.
"""
import re
import sys
from pathlib import Path

# Highest first; folders on one line are neighbours and may not include each other.
LAYERS = [
    ["cli", "bench"],
    ["measure"],
    ["launch"],
    ["report", "command"],
    ["preload", "libfarside"],
    ["objects"],
    ["pager"],
    ["remote", "server"],
    ["transport"],
    ["wire", "fiber"],
    ["abi"],
    ["base"],
]
HEIGHT = {folder: -row for row, folders in enumerate(LAYERS) for folder in folders}
SOURCES = {".h", ".hpp", ".c", ".cc"}
PUBLIC = "farside"  # include/farside: what programs see; every folder may include it
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def layer_of(path):
    """The layer that a path relative to the root belongs to, or None where none is checked."""
    parts = path.parts
    if parts[0] == "src" and len(parts) > 2:
        return parts[1]
    if parts[:2] == ("include", PUBLIC):
        return PUBLIC
    return parts[0] if parts[0] in ("python", "bench") else None


def problem_with(layer, included):
    """What is wrong with an include seen in a layer, or None."""
    folder, slash, _ = included.partition("/")
    if folder in (layer, PUBLIC):
        return None
    if layer == PUBLIC:
        return f'an installed header may include "{PUBLIC}/..." only, not "{included}"'
    if not slash:
        return f'"{included}" does not name its folder' if layer not in ("python", "bench") else None
    if folder not in HEIGHT:
        return f'"{included}": {folder} is no layer' if layer not in ("python", "bench") else None
    if layer not in HEIGHT:
        return f"src/{layer} is no layer; add it to LAYERS in scripts/check_layers.py"
    if HEIGHT[folder] < HEIGHT[layer]:
        return None
    way = "up" if HEIGHT[folder] > HEIGHT[layer] else "sideways"
    return f'{layer} may not include "{included}": that points {way}'


def check_file(root, path):
    relative = path.relative_to(root)
    layer = layer_of(relative)
    if layer is None:
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        problem = problem_with(layer, match.group(1)) if match else None
        if problem:
            yield f"{relative}:{number}: {problem}"


def check_tree(root):
    for top in ("src", "include", "python", "bench"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCES:
                yield from check_file(root, path)


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = list(check_tree(root))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
