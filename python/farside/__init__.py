"""Farside for Python: programs with most of their memory on another machine.

`farside run -- python job.py` runs a program far without any change. This module is for programs that want to know and
steer more; without Farside, its arrays are ordinary memory and its hints go to the kernel.

    import farside
    a = farside.zeros((100_000, 1_000))     # a NumPy array in a far region of its own
    farside.prefetch(a, slice(0, 1_000))    # fetches the rows in the background
    print(farside.stats())                  # near and far memory, faults

`farside.prefix` is the folder of the installation that the wheel holds, as `make install` makes it: bin, include, lib
with pkgconfig and cmake.

All functions are thread-safe and release the GIL while they wait. A forked child has its own copies, as of all memory."""
from typing import Any

from ._allocator import allocator
from ._arrays import empty, from_numpy, full, hint, prefetch, zeros
from ._arrow import from_arrow
from ._files import mmap_file, write_file
from ._init import init
from ._installation import prefix
from ._process import Stats, is_active, limit, pressure, stats


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext farside` calls: adds the magics %far and %%far to the notebook."""
    from ._notebook import load
    load(shell)


__all__ = ["Stats", "allocator", "empty", "from_arrow", "from_numpy", "full", "hint", "init", "is_active", "limit", "mmap_file", "prefetch",
           "prefix", "pressure", "stats", "write_file", "zeros"]
