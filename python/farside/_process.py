"""The process: its memory, its limit, and what far memory costs it."""
import os
import re
import time
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
    fault_ns: int
    """Nanoseconds in page faults, of all threads together; without the kernel's delivery of a fault and without hints."""
    fetches: int
    """Faults that fetched their page."""
    busiest_thread_fetches: int
    """Of these, those of the thread that has most of them."""
    bytes_fetched: int
    """Read from memory servers, in bytes; fetches ahead and hints included."""
    bytes_written: int
    """Written to memory servers, in bytes."""
    time_ns: int
    """When these statistics were read, on the clock of time.monotonic_ns."""

    @property
    def far_bytes(self) -> int:
        """Memory that is not near, in bytes."""
        return max(self.heap_bytes - self.near_bytes, 0)


def _read() -> Stats | None:
    stats, costs = library.CStats(), library.CCosts()
    if library.get_stats(library.byref(stats)) != 0 or library.get_costs(library.byref(costs)) != 0:
        return None
    values: dict[str, int] = {name: getattr(part, name) for part in (stats, costs) for name in part.names}
    return Stats(**values, time_ns=time.monotonic_ns())


def _not_active() -> RuntimeError:
    return RuntimeError("this process does not run under Farside; start it by: farside run -- python PROGRAM")


def is_active() -> bool:
    """Whether this process runs under `farside run`. Thread-safe."""
    return _read() is not None


def stats() -> Stats:
    """The statistics of this process.

    Raises RuntimeError where the process does not run under Farside. Thread-safe. Sums over all threads: not for inner
    loops."""
    values = _read()
    if values is None:
        raise _not_active()
    return values


_begin = _read()


def _begin_in_child() -> None:
    global _begin
    _begin = _read()


os.register_at_fork(after_in_child=_begin_in_child)


def share_lost(before: Stats, after: Stats) -> float:
    """The pressure between two statistics of one process."""
    faults, fetches, busiest, passed = (
        max(getattr(after, name) - getattr(before, name), 0)
        for name in ("fault_ns", "fetches", "busiest_thread_fetches", "time_ns"))
    part = min(busiest / fetches, 1) if busiest > 0 else 1
    return min(faults * part / passed, 1.0) if passed > 0 else 0.0


def pressure(since: Stats | None = None) -> float:
    """The share of time that the process lost to far memory, from 0 to 1. From about 0.05 on it is worth to do something.

    since: earlier `stats()` of this process, at which the interval begins; None: the import of this module, or the fork
    that made this process.

    It is the time that the thread with most fetches spent in page faults, divided by the time that passed. The time in
    faults is measured of all threads together; the thread's part of it is that of its fetches (all of it, where no thread
    with more fetches than before is known). It counts waiting for pages and for room, and first touches; not the kernel's
    delivery of faults, nor waiting in `prefetch` and `hint`. `farside top` shows the same of the last 10 s.

    Raises RuntimeError where the process does not run under Farside. Thread-safe. Costs as `stats`."""
    now = stats()
    return share_lost(since or _begin or now, now)


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
