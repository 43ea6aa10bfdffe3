#!/usr/bin/env python3
"""Checks which folder includes which.

check_layers.py [ROOT]   prints one line for each violation and exits 1 if there are any.

- A file may include its own folder and folders of lower layers (LAYERS).
- Within a layer that has sub-folders, SUBFOLDERS lists what each of them may include.
- A public header belongs to the layers that implement it (OWNERS). Files of those layers and above may include it.
- Public headers include public headers only.
- Folders include each other without a cycle, and so do files: x.h, x.cc and what is between them count as one file.
- No folder has more than MAX_FILES files.
"""
import re
import sys
from collections import defaultdict
from pathlib import Path, PurePosixPath

AT_ROOT = ("bench", "tools")  # programs beside the product

# Highest first. Folders in one row may not include each other. Those of AT_ROOT are at the root, `containers` and
# `frame` stand for the folders of these names in include/farside, all others are in src/. `cli` and `measure` are in one
# row: the program farside links nothing of what only analyses and benchmarks use.
LAYERS = [
    ["tools", "bench"],
    ["cli", "measure"],
    ["launch"],
    ["report", "command", "process", "compute"],
    ["frame"],
    ["preload", "libfarside", "containers"],
    ["objects"],
    ["pager"],
    ["remote", "server"],
    ["tls", "sandbox", "ucx"],
    ["transport", "offload"],
    ["wire", "fiber", "packed"],
    ["abi"],
    ["base"],
]
HEIGHT = {folder: -row for row, folders in enumerate(LAYERS) for folder in folders}

# For each folder of a layer that has sub-folders: the other folders of the same layer that it may include.
SUBFOLDERS = {
    "bench": {"bench/all", "bench/objects", "bench/papers", "bench/runner", "bench/scale", "bench/scaling"},
    "bench/all": {"bench/runner"},
    "bench/apps": set(),
    "bench/objects": {"bench/runner"},
    "bench/papers": {"bench/runner"},
    "bench/runner": set(),
    "bench/scale": {"bench/runner", "bench/scaling"},
    "bench/scaling": {"bench/runner"},
    "bench/tiers": set(),
    "cli": {"cli/statistics"},
    "cli/doctor": {"cli"},
    "cli/statistics": set(),
    "pager": {"pager/evict", "pager/fault", "pager/huge", "pager/pages", "pager/policy", "pager/range", "pager/shared",
              "pager/size", "pager/space", "pager/thread"},
    "pager/range": {"pager/evict", "pager/fault", "pager/huge", "pager/pages", "pager/policy", "pager/shared",
                    "pager/space", "pager/thread"},
    "pager/fault": {"pager/evict", "pager/huge", "pager/pages", "pager/policy", "pager/shared", "pager/space",
                    "pager/thread"},
    "pager/evict": {"pager/huge", "pager/pages", "pager/policy", "pager/shared", "pager/size", "pager/space",
                    "pager/thread"},
    "pager/size": {"pager/pages", "pager/shared", "pager/thread"},
    "pager/thread": {"pager/huge", "pager/pages", "pager/shared"},
    "pager/huge": {"pager/pages", "pager/policy", "pager/space"},
    "pager/shared": set(),
    "pager/pages": set(),
    "pager/policy": {"pager/pages"},
    "pager/space": set(),
    "preload": {"preload/guard/calls", "preload/guard/process", "preload/guard/signals", "preload/guard/thread",
                "preload/guard/traps", "preload/heap", "preload/trace"},
    "server": {"server/access", "server/memory", "server/regions"},
    "server/access": {"server/regions"},
    "server/regions": {"server/memory"},
    "server/memory": set(),
    "preload/static_program": {"preload/guard/process", "preload/guard/thread"},
    "preload/guard/libc": {"preload/guard/calls", "preload/guard/process", "preload/guard/signals", "preload/guard/thread",
                           "preload/guard/traps", "preload/heap"},
    "preload/guard/traps": {"preload/guard/calls", "preload/guard/process", "preload/guard/signals", "preload/guard/thread"},
    "preload/guard/calls": {"preload/guard/process", "preload/guard/signals", "preload/guard/thread", "preload/heap"},
    "preload/guard/signals": {"preload/guard/process", "preload/guard/thread", "preload/heap", "preload/trace"},
    "preload/guard/process": {"preload/guard/thread", "preload/heap"},
    "preload/guard/thread": {"preload/heap"},
    "preload/heap": {"preload/trace"},
    "preload/trace": set(),
    "transport": set(),
    "transport/file": {"transport"},
    "tools/plan": {"tools/plan/reuse"},
    "tools/plan/reuse": set(),
    "tools/top": set(),
    "tools/trace": set(),
    "tools/track": set(),
}

PUBLIC = "farside"  # include/farside, what programs include
OWNERS = {
    "farside/version.h": {"abi"},
    "farside/farside.h": {"preload", "libfarside"},
    "farside/fiber.h": {"fiber"},
    "farside/fiber.hpp": {"fiber"},
    "farside/scope_state.h": {"fiber"},
    "farside/object.h": {"objects"},
    "farside/ptr.hpp": {"objects"},
    "farside/scope.hpp": {"objects"},
    "farside/structure.hpp": {"objects"},
    "farside/offload.h": {"offload"},
    "farside/offload.hpp": {"offload"},
    "farside/offload_codec.hpp": {"offload"},
    "farside/offload_algorithms.hpp": {"offload"},
    "farside/containers/": {"containers"},
    "farside/frame/": {"frame"},
}

MAX_FILES = 40
SOURCES = {".h", ".hpp", ".c", ".cc"}
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<(farside/[^>]+)>)')
APPS = "bench/apps"  # programs as a user writes them: own headers by name, public headers, nothing of src


def owners_of(header):
    """The layers that own a public header, or None for a header that OWNERS lacks."""
    return OWNERS.get(header) or next((OWNERS[key] for key in OWNERS if key.endswith("/") and header.startswith(key)),
                                      None)


def folder_of(path):
    """The folder of a checked file as LAYERS and SUBFOLDERS name it ("cli/doctor", "bench"), or None."""
    parts = path.parts[:-1]
    if parts[:1] == ("src",) and len(parts) > 1:
        return "/".join(parts[1:])
    if parts[:1] and parts[0] in AT_ROOT:
        return "/".join(parts)
    return "/".join(parts[1:]) if parts[:2] == ("include", PUBLIC) else None


def is_public(folder):
    return folder.split("/")[0] == PUBLIC


def layers_of(path):
    """The layers that a file belongs to: several for a public header with several owners."""
    folder = folder_of(path)
    if not is_public(folder):
        return {folder.split("/")[0]}
    return owners_of("/".join(path.parts[1:])) or set()


def direction(layer, other):
    """How an include of another layer is forbidden, or None."""
    if HEIGHT[other] < HEIGHT[layer]:
        return None
    return "points up" if HEIGHT[other] > HEIGHT[layer] else "points sideways"


def public_problem(layers, header):
    owners = owners_of(header)
    if owners is None:
        return f'"{header}" has no owner; add it to OWNERS in scripts/check_layers.py'
    if any(layer in owners or not direction(layer, owner) for layer in layers for owner in owners):
        return None
    return f'{" and ".join(sorted(layers))} may not include "{header}", which belongs to {" and ".join(sorted(owners))}'


def folder_problem(folder, included):
    other, slash, _ = included.rpartition("/")
    if folder == APPS:
        return None if not slash else f'{APPS} may include public headers only, not "{included}"'
    if not slash:
        return f'"{included}" does not name its folder'
    layer, other_layer = folder.split("/")[0], other.split("/")[0]
    if other_layer not in HEIGHT:
        return f'"{included}": {other_layer} is no layer'
    if layer not in HEIGHT:
        return f"{layer} is no layer; add it to LAYERS in scripts/check_layers.py"
    if layer != other_layer:
        wrong = direction(layer, other_layer)
        return f'{layer} may not include "{included}": that {wrong}' if wrong else None
    if folder == other or other in SUBFOLDERS.get(folder, ()):
        return None
    if folder not in SUBFOLDERS:
        return f"{folder} is unknown; add it to SUBFOLDERS in scripts/check_layers.py"
    return f'{folder} may not include "{included}"'


def problem_with(path, included):
    """What is wrong with an include in a file, or None. The path is relative to the root."""
    folder = folder_of(path)
    if included.startswith(PUBLIC + "/"):
        return public_problem(layers_of(path), included)
    if is_public(folder):
        return f'a public header may include "{PUBLIC}/..." only, not "{included}"'
    return folder_problem(folder, included)


def includes_of(file):
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match.group(1) or match.group(2)


def check_file(root, path):
    relative = path.relative_to(root)
    if not layers_of(relative):
        yield f'{relative}:1: {public_problem(set(), "/".join(relative.parts[1:]))}'
        return
    for number, included in includes_of(path):
        if problem := problem_with(relative, included):
            yield f"{relative}:{number}: {problem}"


def checked_files(root):
    for top in ("src", "include", *AT_ROOT):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCES and folder_of(path.relative_to(root)):
                yield path


def folder_graph(root):
    """folder -> {included folder: "file:line" of one such include}. Public headers count as their own folder."""
    graph = defaultdict(dict)
    for path in checked_files(root):
        relative = path.relative_to(root)
        for number, included in includes_of(path):
            other = str(PurePosixPath(included).parent)
            if other not in (".", folder_of(relative)):
                graph[folder_of(relative)].setdefault(other, f"{relative}:{number}")
    return graph


def unit_of(path):
    """A header and its source as one name: "pager/evict/evictor" for both files."""
    return f"{folder_of(path)}/{path.stem}"


def file_graph(root):
    """unit -> {included unit: "file:line" of one such include}."""
    graph = defaultdict(dict)
    for path in checked_files(root):
        unit = unit_of(path.relative_to(root))
        for number, included in includes_of(path):
            other = str(PurePosixPath(included).with_suffix(""))
            if other != unit:
                graph[unit].setdefault(other, f"{path.relative_to(root)}:{number}")
    return graph


def reachable(graph, start):
    found, left = set(), [start]
    while left:
        for other in graph.get(left.pop(), ()):
            if other not in found:
                found.add(other)
                left.append(other)
    return found


def groups_in_cycles(graph):
    """Sets of names that all reach each other."""
    reached = {name: reachable(graph, name) for name in graph}
    return {frozenset(other for other in reached[name] if name in reached.get(other, ()))
            for name in graph if name in reached[name]}


def check_file_cycles(root):
    graph = file_graph(root)
    for group in groups_in_cycles(graph):
        places = sorted(graph[a][b] for a in group for b in group if b in graph[a])
        yield f'cycle of includes between {", ".join(sorted(group))} ({", ".join(places)})'


def find_cycle(graph):
    """Folders that include each other in a circle, the first one repeated at the end; [] if there are none."""
    finished, path = set(), []

    def visit(folder):
        if folder in path:
            return path[path.index(folder):] + [folder]
        if folder in finished:
            return []
        path.append(folder)
        for other in sorted(graph.get(folder, ())):
            if cycle := visit(other):
                return cycle
        finished.add(path.pop())
        return []

    for start in sorted(graph):
        if cycle := visit(start):
            return cycle
    return []


def check_cycles(root):
    graph = folder_graph(root)
    cycle = find_cycle(graph)
    if cycle:
        places = ", ".join(graph[a][b] for a, b in zip(cycle, cycle[1:]))
        yield f'cycle of includes: {" -> ".join(cycle)} ({places})'


def check_sizes(root):
    for top in ("src", "include", *AT_ROOT, "tests", "scripts"):
        for folder in sorted(path for path in (root / top).rglob("*") if path.is_dir() and path.name != "__pycache__"):
            count = sum(1 for path in folder.iterdir() if path.is_file())
            if count > MAX_FILES:
                yield f"{folder.relative_to(root)}: {count} files; at most {MAX_FILES} in a folder"


def check_tree(root):
    for path in checked_files(root):
        yield from check_file(root, path)
    yield from check_file_cycles(root)
    yield from check_cycles(root)
    yield from check_sizes(root)


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = list(check_tree(root))
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
