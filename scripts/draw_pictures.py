#!/usr/bin/env python3
"""Draws the pictures of README.md and docs/architecture.md into docs/pictures.

draw_pictures.py           writes the SVG files
draw_pictures.py --check   writes nothing; exits 1 if a file is out of date or a step names a function that is not there

The boxes of the four flow pictures name a file and a function. Both are read from the numbered steps below the picture
in docs/architecture.md, lines of the form

    3. `src/pager/fault/fault_path.cc` `fault`: text

so a renamed function is changed in the document alone, and this script is run again. The rows of the folders are the
layers of check_layers.py.
"""
import html
import re
import sys
from pathlib import Path

from check_layers import AT_ROOT, LAYERS

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "architecture.md"
PICTURES = ROOT / "docs" / "pictures"

STEP = re.compile(r"^(\d+)\. `([^`]+)` `([^`]+)`")
PICTURE = re.compile(r"^!\[[^\]]*\]\(pictures/(\w+)\.svg\)")

# One colour for each group of folders, the same in all pictures: fill and border.
COLOURS = {
    "tools": ("#fbe3e6", "#a8505e"),
    "preload": ("#dfeaf8", "#44699c"),
    "objects": ("#ebe1f5", "#73519c"),
    "pager": ("#fdebd0", "#a8701c"),
    "fiber": ("#d7f0ec", "#2f7f74"),
    "remote": ("#e2f1da", "#4f8340"),
    "common": ("#eceff2", "#66707a"),
    "kernel": ("#ffffff", "#66707a"),
}
TEXT, FAINT, LINE = "#1a1a1a", "#4a4a4a", "#333333"
SANS = "font-family='Helvetica, Arial, sans-serif'"
MONO = "font-family='DejaVu Sans Mono, Menlo, Consolas, monospace'"
# Widths of a character, by font size: upper bounds for the fonts above.
SANS_WIDTH, BOLD_WIDTH, MONO_WIDTH = 0.54, 0.58, 0.61


def steps_of(document):
    """{picture: {number: (file, function)}} from the numbered lists of the document."""
    steps, picture = {}, None
    for line in document.splitlines():
        if match := PICTURE.match(line):
            picture = match.group(1)
        elif match := STEP.match(line):
            steps.setdefault(picture, {})[int(match.group(1))] = match.groups()[1:]
        elif line.startswith("#"):
            picture = None
    return steps


class Picture:
    def __init__(self, title, width, height):
        self.title, self.width, self.height = title, width, height
        self.boxes, self.shapes, self.labels = {}, [], []

    def text(self, x, y, words, size=12, colour=TEXT, bold=False, mono=False, anchor="start", room=None):
        per_character = MONO_WIDTH if mono else BOLD_WIDTH if bold else SANS_WIDTH
        if room and len(words) * size * per_character > room:
            raise ValueError(f"{self.title}: {words!r} does not fit into {room} px")
        weight = " font-weight='bold'" if bold else ""
        self.shapes.append(f"<text x='{x:g}' y='{y:g}' font-size='{size}' fill='{colour}' text-anchor='{anchor}'{weight} "
                           f"{MONO if mono else SANS}>{html.escape(words, quote=False)}</text>")

    def rectangle(self, x, y, w, h, group, dashed=False, radius=6, opacity=1):
        fill, border = COLOURS[group]
        dashes = " stroke-dasharray='5 4'" if dashed else ""
        self.shapes.append(f"<rect x='{x:g}' y='{y:g}' width='{w:g}' height='{h:g}' rx='{radius}' fill='{fill}' "
                           f"fill-opacity='{opacity}' stroke='{border}' stroke-width='1.4'{dashes}/>")

    def box(self, key, x, y, w, lines, group, h=None, dashed=False):
        """A box with a bold first line; lines that begin with '`' are set as code."""
        h = h or 16 + 18 * len(lines)
        self.boxes[key] = (x, y, w, h)
        self.rectangle(x, y, w, h, group, dashed)
        for i, line in enumerate(lines):
            mono = line.startswith("`")
            self.text(x + 10, y + 21 + 18 * i, line.strip("`"), size=13 if i == 0 else 12, bold=i == 0, mono=mono,
                      colour=TEXT if i == 0 else FAINT, room=w - 14)

    def step(self, number, x, y, w, title, group, place):
        """The box of a numbered step: title, file, function."""
        file, function = place
        h = 68
        self.boxes[number] = (x, y, w, h)
        self.rectangle(x, y, w, h, group)
        border = COLOURS[group][1]
        self.shapes.append(f"<circle cx='{x + 18:g}' cy='{y + 18:g}' r='11' fill='{border}'/>")
        self.text(x + 18, y + 22.5, str(number), bold=True, colour="#ffffff", anchor="middle")
        self.text(x + 36, y + 22, title, size=13, bold=True, room=w - 40)
        self.text(x + 12, y + 42, file.removeprefix("src/"), mono=True, colour=FAINT, room=w - 16)
        self.text(x + 12, y + 59, function, mono=True, bold=True, room=w - 16)

    def anchor(self, key, side, shift=0):
        x, y, w, h = self.boxes[key]
        return {"l": (x, y + h / 2 + shift), "r": (x + w, y + h / 2 + shift),
                "t": (x + w / 2 + shift, y), "b": (x + w / 2 + shift, y + h)}[side]

    def arrow(self, *points, label=None, at=None, anchor="middle", both=False, dashed=False):
        path = " ".join(f"{'M' if i == 0 else 'L'}{x:g} {y:g}" for i, (x, y) in enumerate(points))
        start = " marker-start='url(#tip)'" if both else ""
        dashes = " stroke-dasharray='5 4'" if dashed else ""
        self.shapes.append(f"<path d='{path}' fill='none' stroke='{LINE}' stroke-width='1.5'{dashes}{start} "
                           "marker-end='url(#tip)'/>")
        for i, line in enumerate([label] if isinstance(label, str) else label or []):
            self.text(at[0], at[1] + 15 * i, line, anchor=anchor, colour=FAINT)

    def join(self, a, b, label=None, at=None, sides=None, anchor="middle", shift=0, **options):
        """A straight arrow between two boxes, from the sides that face each other."""
        (ax, ay, aw, ah), (bx, by, bw, bh) = self.boxes[a], self.boxes[b]
        if not sides:
            sides = "rl" if bx >= ax + aw else "lr" if bx + bw <= ax else "bt" if by >= ay + ah else "tb"
        self.arrow(self.anchor(a, sides[0], shift), self.anchor(b, sides[1], shift), label=label, at=at, anchor=anchor,
                   **options)

    def svg(self):
        return "\n".join([
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{self.width}' height='{self.height}' "
            f"viewBox='0 0 {self.width} {self.height}'>",
            f"<title>{html.escape(self.title)}</title>",
            "<defs><marker id='tip' viewBox='0 0 10 10' refX='9' refY='5' markerWidth='8' markerHeight='8' "
            f"orient='auto-start-reverse'><path d='M0 0 L10 5 L0 10 z' fill='{LINE}'/></marker></defs>",
            f"<rect width='{self.width}' height='{self.height}' fill='#ffffff'/>",
            *self.shapes, "</svg>", ""])


def draw_processes(_):
    p = Picture("Processes of a run", 980, 560)

    p.rectangle(16, 16, 236, 234, "tools", radius=10)
    p.text(30, 40, "farside run", size=14, bold=True)
    for i, line in enumerate(["the launcher: checks program and", "server, hands over the options,",
                              "sets LD_PRELOAD, starts the", "program, waits, prints a summary"]):
        p.text(30, 60 + 18 * i, line, colour=FAINT)
    p.box("embedded", 30, 150, 208, ["embedded memory server", "the same server; used where", "no --far is given"],
          "remote", dashed=True, h=84)
    p.box("ctl", 16, 290, 236, ["farside ctl", "reads counters of a process that", "runs, changes its budget"], "tools")

    p.rectangle(318, 16, 340, 528, "kernel", radius=10)
    p.text(334, 40, "the program's process", size=14, bold=True)
    p.box("threads", 334, 56, 308, ["program threads, fibers on them", "malloc and large mappings: far space;",
                                    "each thread serves its own faults"], "kernel")
    p.box("lib", 334, 144, 308, ["libfarside_preload.so", "guard: system calls and signals",
                                 "heap: malloc, mmap, fork", "pager: page states, faults, frame budget",
                                 "objects and fibers, where used"], "preload")
    p.box("control", 334, 268, 308, ["control page", "4 KiB of shared memory, a sealed memfd"], "preload")
    p.box("evictors", 334, 338, 308, ["evictor threads: farside-evict, 1 to 8", "unmap pages, write dirty ones back"],
          "pager")
    p.box("evacuator", 334, 408, 308, ["evacuator thread: far-evacuate", "only with far objects: moves them"], "objects")
    p.box("handler", 334, 478, 308, ["handler thread: farside-fault", "only in handler mode: serves faults"], "pager",
          dashed=True)

    p.rectangle(772, 16, 192, 528, "remote", radius=10)
    p.text(786, 40, "farside serve", size=14, bold=True)
    p.text(786, 60, "the memory server, on this", colour=FAINT)
    p.text(786, 76, "machine or another one", colour=FAINT)
    p.box("region", 786, 92, 164, ["regions", "one for each process:", "a memory file in which", "each page has a fixed",
                                   "offset"], "common", h=112)
    p.box("worker", 786, 304, 164, ["worker thread", "one by default; serves", "requests over TCP and", "Unix sockets"],
          "common", h=98)
    for i, line in enumerate(["shm: the region is", "mapped into the", "program; reads and", "writes need no", "server thread"]):
        p.text(786, 434 + 17 * i, line, colour=FAINT)

    p.arrow((252, 70), (318, 70), label="starts", at=(285, 62))
    p.arrow((252, 310), (334, 294))
    p.arrow((642, 91), (772, 91), both=True, label=["fetch: a channel", "for each thread"], at=(715, 110))
    p.arrow((642, 364), (772, 364), label=["write-back:", "a channel for", "each evictor"], at=(715, 383))
    p.arrow((868, 304), (868, 204), both=True)
    return p


def draw_how_it_works(_):
    p = Picture("How Farside fetches and evicts pages", 980, 352)
    p.rectangle(16, 16, 640, 320, "preload", radius=10, opacity=0.4)
    p.text(32, 42, "the program's process", size=15, bold=True)
    p.rectangle(764, 16, 200, 320, "remote", radius=10, opacity=0.5)
    p.text(780, 42, "memory server", size=15, bold=True)
    p.box("thread", 40, 60, 216, ["thread of the program", "accesses a page that is far"], "kernel")
    p.box("handler", 376, 60, 256, ["fault handler", "in the same thread"], "preload")
    p.box("evictors", 376, 266, 256, ["evictor threads", "select, hold, unmap, write, release"], "pager")
    p.box("region", 788, 60, 152, ["region", "each page has a", "fixed offset"], "remote", h=258)

    p.text(40, 160, "far space: pages that are near, or far (dashed)", colour=FAINT)
    for i, near in enumerate("100110100101"):
        p.rectangle(40 + 49 * i, 170, 45, 38, "preload" if near == "1" else "kernel", dashed=near == "0", radius=2)

    p.join("thread", "handler", label="SIGBUS", at=(316, 78))
    p.arrow((632, 86), (788, 86), both=True, label="fetch", at=(710, 78))
    p.arrow((504, 112), (504, 166), label="map", at=(512, 142), anchor="start")
    p.arrow((504, 212), (504, 266), label="batches of up to 256 pages", at=(496, 242), anchor="end")
    p.arrow((632, 292), (788, 292), label="dirty pages", at=(710, 284))
    return p


# Each folder of LAYERS: colour and purpose.
FOLDERS = {
    "tools": ("tools", "plan, trace, track"),
    "bench": ("tools", "the program farside-bench"),
    "cli": ("tools", "the program farside"),
    "measure": ("tools", "workloads, prices of faults, charts"),
    "launch": ("tools", "child processes, embedded server"),
    "report": ("tools", "tables, files"),
    "command": ("tools", "command lines"),
    "process": ("tools", "another's memory"),
    "compute": ("objects", "for Python"),
    "frame": ("objects", "headers: data frames"),
    "preload": ("preload", "in the program"),
    "libfarside": ("preload", "what programs link"),
    "containers": ("objects", "headers: vector, maps"),
    "objects": ("objects", "far objects, evacuator"),
    "pager": ("pager", "faults, eviction, page states, policies"),
    "remote": ("remote", "a client's region, pools"),
    "server": ("remote", "lends memory"),
    "tls": ("remote", "encryption, relay"),
    "sandbox": ("remote", "runs functions"),
    "ucx": ("remote", "one-sided access"),
    "transport": ("remote", "channels: shm, tcp"),
    "offload": ("remote", "calls of functions on servers"),
    "wire": ("remote", "frames of the protocol"),
    "packed": ("remote", "compressed pages"),
    "fiber": ("fiber", "cooperative fibers"),
    "abi": ("common", "options, control page, trace file"),
    "base": ("common", "system calls, near memory, locks, errors"),
}
# First and last folder of a bracket, colour, text.
BRACKETS = [
    ("tools", "report", "tools", ["farside, its tools", "and benchmarks:", "ordinary code; the", "command-line and",
                                  "JSON libraries are", "used here only"]),
    ("frame", "pager", "pager", ["in the program's", "process; code that", "serves a fault is", "async-signal-safe and",
                                 "uses near memory", "only"]),
    ("remote", "wire", "remote", ["the way to far", "memory; transport is", "async-signal-safe;", "server is ordinary",
                                  "code"]),
    ("abi", "base", "common", ["what both sides of a", "process boundary", "share, and what all", "stand on"]),
]


def draw_rooms(_):
    """The folders of src/, tools/ and bench/, each row above those that it may include."""
    pitch, height, top, width = 61, 46, 50, 700
    p = Picture("The folders and their order", 980, top + pitch * len(LAYERS))
    p.text(20, 30, "A folder may include folders of lower rows, not its neighbours. Plain names are folders of src/.", size=13)
    for row, folders in enumerate(LAYERS):
        y = top + row * pitch
        each = (width - 16 * (len(folders) - 1)) / len(folders)
        for i, name in enumerate(folders):
            group, purpose = FOLDERS[name]
            x = 20 + i * (each + 16)
            p.rectangle(x, y, each, height, group)
            p.text(x + each / 2, y + 19, f"{name}/" if name in AT_ROOT else name, size=14, bold=True, anchor="middle")
            p.text(x + each / 2, y + 36, purpose, colour=FAINT, anchor="middle", room=each - 10)
        if row + 1 < len(LAYERS):
            p.arrow((20 + width / 2, y + height), (20 + width / 2, y + pitch - 2))
    row_of = {name: row for row, folders in enumerate(LAYERS) for name in folders}
    for first, last, group, lines in BRACKETS:
        y, end = top + row_of[first] * pitch, top + row_of[last] * pitch + height
        p.shapes.append(f"<path d='M738 {y} L748 {y} L748 {end} L738 {end}' fill='none' "
                        f"stroke='{COLOURS[group][1]}' stroke-width='2'/>")
        middle = (y + end) / 2 - 8 * len(lines) + 12
        for i, line in enumerate(lines):
            p.text(762, middle + 17 * i, line, size=13)
    return p


def draw_fault(steps):
    p = Picture("A page fault in signal mode", 980, 1000)
    w, x0, x1, x2 = 296, 24, 342, 660
    row = lambda r: 24 + 98 * r
    place = lambda n, x, r, title, group="pager": p.step(n, x, row(r), w, title, group, steps[n])

    p.box("access", x0, row(0), w, ["a thread touches an absent page", "the kernel sends SIGBUS to this thread;",
                                    "no other thread is involved"], "kernel", h=68)
    place(1, x0, 1, "is the address far?", "preload")
    p.box("own", x1, row(1), w, ["no: the program's own SIGBUS", "its handler runs, or the process ends"], "kernel", h=68)
    place(2, x0, 2, "signals are deferred", "preload")
    place(3, x0, 3, "enter the fork gate, count")
    place(4, x0, 4, "read the page word, decide")
    place(5, x1, 3, "near, first write: upgrade")
    place(6, x1, 4, "owned by another: wait")
    p.box("segv", x2, row(4), w, ["not allocated", "the page is made inaccessible; the access", "then ends in SIGSEGV"],
          "kernel", h=68)
    place(7, x0, 5, "untouched or far: claim")
    place(8, x1, 5, "take a frame, or wait")
    place(9, x2, 5, "claim the stream's window")
    place(10, x0, 6, "untouched: zeros")
    place(11, x1, 6, "far: read the pages")
    place(12, x2, 6, "start a read")
    p.box("server", x2, row(7), w, ["memory server", "the reply is in a buffer of the thread,", "or in mapped shared memory"],
          "remote", h=68)
    place(13, x1, 7, "wait for the own read")
    place(14, x0, 8, "map and publish")
    place(15, x1, 8, "UFFDIO_COPY")
    place(16, x2, 8, "word: near; enqueue")
    p.box("again", x0, row(9), w, ["the handler returns", "the access is repeated and succeeds"], "kernel", h=68)

    for a, b in (("access", 1), (1, "own"), (1, 2), (2, 3), (3, 4), (4, 5), (4, 6), (4, 7), (7, 8), (8, 9), (11, 12),
                 (12, "server"), ("server", 13), (10, 14), (14, 15), (15, 16), (14, "again")):
        if (a, b) == (4, 5):
            p.arrow((x0 + w, row(4) + 16), (x1 - 12, row(4) + 16), (x1 - 12, row(3) + 34), (x1, row(3) + 34))
        else:
            p.join(a, b, both=(a, b) == (4, 6))
    p.arrow((x1 + w, row(3) + 34), (x2, row(3) + 34))
    p.text(x2 + 8, row(3) + 38, "the handler returns", colour=FAINT)
    p.join(7, 10)
    p.arrow((x0 + w, row(5) + 54), (x1 - 11, row(5) + 54), (x1 - 11, row(6) + 34), (x1, row(6) + 34))
    p.arrow((x1, row(7) + 34), (x0 + w * 0.8, row(7) + 34), (x0 + w * 0.8, row(8)))
    p.text(x0 + w * 0.8 + 6, row(7) + 28, "arrived", colour=FAINT)
    p.arrow((x1 + 40, row(6) + 68), (x1 + 40, row(6) + 83), (x0 + w * 0.65, row(6) + 83), (x0 + w * 0.65, row(8)))
    p.text(x1 + 48, row(6) + 88, "mapped shared memory: at once", colour=FAINT)
    p.arrow((x0 + w, row(4) + 54), (x1 - 12, row(4) + 54), (x1 - 12, row(4) + 83), (x2 + w / 2, row(4) + 83),
            (x2 + w / 2, row(4) + 68))
    return p


def draw_eviction(steps):
    p = Picture("An eviction", 980, 820)
    w, x0, x1, x2 = 296, 24, 342, 660
    row = lambda r: 24 + 98 * r
    place = lambda n, x, r, title, group="pager": p.step(n, x, row(r), w, title, group, steps[n])
    place(1, x0, 0, "frames are low: wake")
    place(2, x1, 0, "evictor thread: work wanted?")
    place(3, x2, 0, "a free batch: start it")
    place(4, x0, 1, "phase 1: select 32 to 256 pages")
    place(5, x1, 1, "candidates, by policy")
    place(6, x2, 1, "claim: near → evicting")
    place(7, x0, 2, "pages of objects: report")
    place(8, x1, 2, "choose page or object path", "objects")
    place(9, x0, 3, "phase 2: hold the dirty pages")
    p.box("pipe", x1, row(3), w, ["vmsplice into a pipe", "references to the frames: nothing is", "copied, stores still reach them"], "kernel",
          h=68)
    place(10, x0, 4, "phase 3: unmap the batch")
    place(11, x1, 4, "one TLB shootdown")
    p.box("final", x2, row(4), w, ["no store can follow", "what the pipe references is final"], "kernel", h=68)
    place(12, x0, 5, "clean pages: frames back")
    place(13, x0, 6, "phase 4: write dirty pages")
    place(14, x1, 6, "one request of many pages")
    p.box("server", x2, row(6), w, ["memory server", "stores the pages, acknowledges", "each request"], "remote", h=68)
    place(15, x1, 7, "poll acknowledgements")
    place(16, x0, 7, "phase 5: release, pages far")
    for a, b in ((1, 2), (2, 3), (4, 5), (5, 6), (4, 7), (7, 8), (7, 9), (9, "pipe"), (9, 10), (10, 11), (11, "final"),
                 (10, 12), (12, 13), (13, 14), (14, "server"), (15, 16)):
        p.join(a, b)
    p.arrow((x2 + w / 2, row(0) + 68), (x2 + w / 2, row(0) + 83), (x0 + w / 2, row(0) + 83), (x0 + w / 2, row(1)))
    p.arrow((x2 + w / 2, row(6) + 68), (x2 + w / 2, row(7) + 34), (x1 + w, row(7) + 34))
    return p


def draw_deref(steps):
    p = Picture("The deref of a far object", 980, 912)
    w, x0, x1, x2 = 296, 24, 342, 660
    row = lambda r: 24 + 98 * r
    place = lambda n, x, r, title, group="objects": p.step(n, x, row(r), w, title, group, steps[n])
    p.box("program", x0, row(0), w, ["p.deref(scope)", "the program has a pointer word (owner)", "and an open scope"],
          "preload", h=68)
    place(1, x0, 1, "is the access bit set?")
    p.box("near", x1, row(1), w, ["yes: near", "the address, after 10 instructions,", "without a call"], "kernel", h=68)
    place(2, x0, 2, "no: slow path, a C function")
    place(3, x0, 3, "read the segment's state")
    p.text(x0 + w / 2, row(4) + 32, "open, closing, closed, huge", size=13, bold=True, anchor="middle")
    p.text(x0 + w / 2, row(4) + 50, "the page is fetched as a whole", colour=FAINT, anchor="middle")
    p.text(x1 + w + 11, row(3) + 20, "emptying", size=13, bold=True, anchor="middle")
    p.text(x1 + w + 11, row(3) + 38, "only this object is fetched; the page stays far", colour=FAINT, anchor="middle")
    place(4, x0, 5, "fetch the page")
    place(5, x0, 6, "claim, read, wait for arrival", "pager")
    place(6, x0, 7, "open: set the access bits")
    place(7, x1, 4, "mark the owner's word")
    place(8, x1, 5, "read the object's bytes")
    place(9, x2, 5, "far: one request, page stays", "pager")
    place(10, x1, 6, "copy into the thread's log")
    place(11, x1, 7, "publish the new address")
    place(12, x2, 7, "live and access bits", "objects")
    p.box("server", x2, row(6), w, ["memory server", "sends the bytes of the object"], "remote", h=68)
    p.box("address", x0, row(8), w, ["the object's address", "valid until the outermost scope ends"], "kernel", h=68)
    for a, b in (("program", 1), (1, "near"), (1, 2), (2, 3), (4, 5), (5, 6), (6, "address"), (7, 8), (8, 9), (8, 10),
                 (10, 11), (11, 12), (9, "server")):
        p.join(a, b, both=b == "server")
    p.arrow((x0 + w / 2, row(3) + 68), (x0 + w / 2, row(4) + 16))
    p.arrow((x0 + w / 2, row(4) + 58), (x0 + w / 2, row(5)))
    p.arrow((x0 + w, row(3) + 34), (x1 + w / 2, row(3) + 34), (x1 + w / 2, row(4)))
    p.arrow((x1 + w / 2, row(7) + 68), (x1 + w / 2, row(8) + 34), (x1 - 11, row(8) + 34), (x1 - 11, row(3) + 54),
            (x0 + w, row(3) + 54))
    p.text(x1 + w / 2 + 10, row(8) + 38, "read the word again: it is in an open segment now", colour=FAINT)
    return p


def draw_fiber(steps):
    p = Picture("A fiber waits for a page", 980, 746)
    w, x0, x1, x2 = 284, 24, 324, 650
    row = lambda r: 60 + 98 * r
    place = lambda n, x, r, title, group="fiber": p.step(n, x, row(r), w, title, group, steps[n])
    for x, end, name in ((x0, x1 + w, "on the fiber's stack"), (x2, x2 + w + 18, "on the worker thread's own stack")):
        p.rectangle(x - 10, 14, end - x + 20, 718, "kernel", dashed=True, radius=10)
        p.text(x, 42, name, size=14, bold=True)
    p.box("access", x0, row(0), w, ["a fiber touches a far page", "SIGBUS; its signal frame is on the", "fiber's stack"],
          "kernel", h=68)
    place(1, x0, 1, "is this a fiber?", "preload")
    place(2, x1, 1, "may it be suspended?")
    place(3, x0, 2, "block other signals", "preload")
    place(4, x0, 3, "claim the page, read", "pager")
    place(5, x0, 4, "leave the fork gate", "pager")
    place(6, x1, 4, "save errno, signal mask")
    place(7, x1, 5, "switch stacks")
    place(8, x2, 5, "put it into waiting_; loop")
    place(9, x2, 4, "run other fibers")
    place(10, x2, 3, "poll when idle or every 20 us")
    place(11, x2, 2, "finish reads that arrived", "pager")
    place(12, x2, 6, "arrived: run the fiber again")
    p.box("resumed", x1, row(6), w, ["errno and mask are restored", "still on the same worker thread"], "fiber", h=68)
    p.box("done", x0, row(6), w, ["page word: near", "the handler returns through the signal", "frame; the access succeeds"],
          "kernel", h=68)
    for a, b in (("access", 1), (1, 2), (1, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9), (9, 10), (10, 11),
                 (12, "resumed"), ("resumed", "done")):
        p.join(a, b)
    right = x2 + w + 14
    p.arrow((x2 + w, row(2) + 34), (right, row(2) + 34), (right, row(6) + 34), (x2 + w, row(6) + 34))
    return p


DRAW = {"how_it_works": draw_how_it_works, "processes": draw_processes, "rooms": draw_rooms, "fault": draw_fault,
        "eviction": draw_eviction, "deref": draw_deref, "fiber": draw_fiber}


def missing_functions(steps):
    for picture, places in steps.items():
        for number, (file, function) in places.items():
            path = ROOT / file
            if not path.is_file() or not re.search(rf"\b{re.escape(function)}\b", path.read_text(encoding="utf-8")):
                yield f"{picture}, step {number}: no {function} in {file}"


def main():
    steps = steps_of(DOCUMENT.read_text(encoding="utf-8"))
    pictures = {PICTURES / f"{name}.svg": draw(steps.get(name)).svg() for name, draw in DRAW.items()}
    if sys.argv[1:] != ["--check"]:
        for file, svg in pictures.items():
            file.write_text(svg, encoding="utf-8")
        return 0
    problems = list(missing_functions(steps))
    problems += [f"{file.relative_to(ROOT)} is out of date: run make pictures" for file, svg in pictures.items()
                 if not file.is_file() or file.read_text(encoding="utf-8") != svg]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
