"""Which lines of a notebook's cell are lost to far memory."""
import sys
from types import FrameType
from typing import Any, NamedTuple

from ._process import Stats, stats


class LineLoss(NamedTuple):
    number: int
    fault_ns: int
    bytes_fetched: int


class LineTracer:
    """While it is entered, gives each line of the first code that is called with these global variables what it loses, code
    of other files that it calls included. Reads the statistics at each line: some microseconds for each execution of one.

    Only the thread that enters it is traced. What faults in other threads goes to the line that is executed meanwhile."""

    def __init__(self, variables: dict[str, Any]) -> None:
        self.variables = variables
        self.file: str | None = None  # of the cell, once it is called
        self.line = 0                 # that is executed; 0: none of the cell
        self.last: Stats = stats()
        self.losses: dict[int, LineLoss] = {}

    def __enter__(self) -> "LineTracer":
        self.outer = sys.gettrace()
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self.outer)

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.file is None and frame.f_globals is self.variables:
            self.file = frame.f_code.co_filename
        if frame.f_code.co_filename != self.file:
            return None
        self.charge()
        self.line = self.line_of(frame.f_back if event == "return" else frame)
        return self.trace

    def line_of(self, frame: FrameType | None) -> int:
        in_cell = frame is not None and frame.f_code.co_filename == self.file
        return frame.f_lineno or 0 if frame is not None and in_cell else 0

    def charge(self) -> None:
        """Adds what was lost since the last event to the line that was executed."""
        now = stats()
        if self.line:
            _, faults, fetched = self.losses.get(self.line, LineLoss(self.line, 0, 0))
            self.losses[self.line] = LineLoss(self.line, faults + now.fault_ns - self.last.fault_ns,
                                              fetched + now.bytes_fetched - self.last.bytes_fetched)
        self.last = now

    def worst(self, count: int) -> list[LineLoss]:
        """The lines that lost most, the worst first; those without a loss are left out."""
        lossy = (loss for loss in self.losses.values() if loss.fault_ns > 0)
        return sorted(lossy, key=lambda loss: loss.fault_ns, reverse=True)[:count]
