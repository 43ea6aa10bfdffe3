"""The process: its memory and its limit."""
import re
from typing import NamedTuple

from . import _library as library

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", re.IGNORECASE)
_MIN_LIMIT = 8 << 20


class Stats(NamedTuple):
    """Statistics of this process. Sizes are in bytes; the others are counts since its start."""
    near_bytes: int
    """Near memory in use now."""
    near_limit_bytes: int
    """The limit of near memory."""
    heap_bytes: int
    """All memory that was touched and not freed, near or far."""
    faults: int
    """Accesses that found their page absent or write-protected."""
    hints: int
    """Hints that found something to do; fetches ahead count as several."""
    hints_fetched: int
    """Pages of 4 KiB that hints fetched."""
    hints_wild: int
    """Hints on far addresses that belong to no allocation."""

    @property
    def far_bytes(self) -> int:
        """Memory that is not near, in bytes."""
        return max(self.heap_bytes - self.near_bytes, 0)


def _read() -> tuple[bool, library.CStats]:
    stats = library.CStats()
    return library.get_stats(library.byref(stats)) == 0, stats


def _not_active() -> RuntimeError:
    return RuntimeError("this process does not run under Farside; start it by: farside run -- python PROGRAM")


def is_active() -> bool:
    """Whether this process runs under `farside run`. Thread-safe."""
    return _read()[0]


def stats() -> Stats:
    """The statistics of this process.

    Raises RuntimeError where the process does not run under Farside. Thread-safe. Sums over all threads: not for inner
    loops."""
    active, values = _read()
    if not active:
        raise _not_active()
    return Stats(*(getattr(values, name) for name in Stats._fields))


def parse_size(size: int | str) -> int:
    """Bytes: a number, or as on the command line a text as "256M" or "1.5G", in powers of 1024."""
    if isinstance(size, str):
        match = _SIZE.fullmatch(size.strip())
        if not match:
            raise ValueError(f"{size!r} is no size; use a number and K, M, G or T, as in '1.5G'")
        return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))
    return size


def limit(near: int | str | None = None) -> int:
    """The limit of near memory in bytes, after it was set to `near` where that is given: bytes, or a text as "2G".

    Returns at once. A higher limit has effect at once; a lower one as pages are evicted, which goes on in the background.
    A share of the heap (`farside run --local 25%`) is replaced by the fixed limit.

    Raises ValueError for less than 8 MiB, RuntimeError where the process does not run under Farside. Thread-safe."""
    if near is not None:
        size = parse_size(near)
        if not _MIN_LIMIT <= size < 1 << 63:
            raise ValueError(f"the limit of near memory has to be at least 8 MiB, not {near!r}")
        if not is_active():
            raise _not_active()
        library.check(library.set_limit(size), "farside_set_limit")
    return stats().near_limit_bytes
