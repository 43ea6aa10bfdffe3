"""The magics %far and %%far of notebooks: `%load_ext farside`."""
import contextlib
from collections import deque
from typing import Any, NamedTuple

from IPython.core.error import UsageError

from ._lines import LineLoss, LineTracer
from ._process import Stats, is_active, share_lost, stats

_KEPT_CELLS = 20
_BAR = 24  # characters
_SHOWN_LINES = 5

_NOT_ACTIVE = ("this notebook does not run under Farside; make a kernel that does by: python -m farside.kernel install, and choose "
               "it for the notebook")


class Cell(NamedTuple):
    """A cell that was executed, and the statistics at its begin and end."""
    number: int
    before: Stats
    after: Stats

    @property
    def pressure(self) -> float:
        return share_lost(self.before, self.after)


def size_text(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def memory_text(now: Stats) -> str:
    return f"near {size_text(now.near_bytes)} of {size_text(now.near_limit_bytes)}, far {size_text(now.far_bytes)}"


def chart_line(cell: Cell, largest: int) -> str:
    """A bar of the cell's memory, near and far, as a part of the largest heap; and its pressure."""
    near, whole = (round(_BAR * size / max(largest, 1)) for size in (cell.after.near_bytes, cell.after.heap_bytes))
    bar = "█" * near + "░" * (whole - near)
    return (f"{f'[{cell.number}]':>6} {bar:{_BAR}} {size_text(cell.after.near_bytes):>12} {size_text(cell.after.far_bytes):>12}"
            f" {cell.pressure:>9.0%}")


def chart(cells: list[Cell]) -> str:
    largest = max((cell.after.heap_bytes for cell in cells), default=0)
    head = f"{'cell':>6} {'█ near  ░ far':{_BAR}} {'near':>12} {'far':>12} {'pressure':>9}"
    return "\n".join([head, *(chart_line(cell, largest) for cell in cells)])


def loss_text(before: Stats, after: Stats) -> str:
    """What was lost to far memory between two statistics."""
    seconds, faults = (after.time_ns - before.time_ns) / 1e9, (after.fault_ns - before.fault_ns) / 1e9
    fetched, written = (f"{(getattr(after, name) - getattr(before, name)) // 4096} pages"
                        for name in ("bytes_fetched", "bytes_written"))
    return (f"{seconds:.3f} s, pressure {share_lost(before, after):.0%}: {faults:.3f} s in {after.faults - before.faults} faults;"
            f" {fetched} fetched, {written} written; {memory_text(after)}")


def line_text(loss: LineLoss, lines: list[str]) -> str:
    """loss.number counts the lines of the cell from 1, without that of %%far."""
    text = lines[loss.number - 1].strip() if loss.number <= len(lines) else ""
    return f"  {loss.fault_ns / 1e9:.3f} s, {loss.bytes_fetched // 4096} pages fetched by line {loss.number}: {text}"


class Notebook:
    """The statistics of a notebook's cells. Used by the thread that executes cells only."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.cells: deque[Cell] = deque(maxlen=_KEPT_CELLS)
        self.shown = stats() if is_active() else None
        self.begins: list[Stats] = []  # of the cells that are executed now: %%far executes one within another

    def begin_cell(self, _: Any) -> None:
        if is_active():
            self.begins.append(stats())

    def end_cell(self, result: Any) -> None:
        if not self.begins:
            return  # the cell that loaded the extension
        begin = self.begins.pop()
        if not self.begins and result.execution_count is not None:
            self.cells.append(Cell(result.execution_count, begin, stats()))

    def show(self, line: str) -> None:
        """%far: near and far memory, the pressure since the last %far, and a chart of the last cells."""
        if line.strip():
            raise UsageError("%far takes no arguments; %%far, in the first line of a cell, measures the cell")
        require_far()
        now = stats()
        print(f"{memory_text(now)}; pressure {share_lost(self.shown or now, now):.0%}\n{chart(list(self.cells))}")
        self.shown = now

    def measure(self, line: str, cell: str) -> None:
        """%%far: executes the cell, and prints the time in faults and the pages that were fetched and written.

        %%far lines: also the five lines of the cell that lost most. Each execution of a line takes some microseconds longer."""
        if line.strip() not in ("", "lines"):
            raise UsageError(f"%%far takes no argument or 'lines', not {line.strip()!r}")
        require_far()
        tracer = LineTracer(self.shell.user_ns)
        before = stats()
        with tracer if line.strip() else contextlib.nullcontext():
            self.shell.run_cell(cell)
        print(loss_text(before, stats()))
        for loss in tracer.worst(_SHOWN_LINES):
            print(line_text(loss, cell.splitlines()))


def require_far() -> None:
    if not is_active():
        raise UsageError(_NOT_ACTIVE)


def load(shell: Any) -> None:
    notebook = Notebook(shell)
    shell.register_magic_function(notebook.show, "line", "far")
    shell.register_magic_function(notebook.measure, "cell", "far")
    shell.events.register("pre_run_cell", notebook.begin_cell)
    shell.events.register("post_run_cell", notebook.end_cell)
    if not is_active():
        print(f"farside: {_NOT_ACTIVE}")
