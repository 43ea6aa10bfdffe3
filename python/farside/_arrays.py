"""NumPy arrays in far regions, and announcements of how arrays are used."""
import math
import mmap
import weakref
from typing import TYPE_CHECKING, Any, Literal

from . import _library as library

if TYPE_CHECKING:  # NumPy is needed by the functions below only
    import numpy
    from numpy.typing import ArrayLike, DTypeLike, NDArray

Policy = Literal["2q", "fifo", "lru", "priority"]
Advice = Literal["normal", "sequential", "random", "willneed", "dontneed"]

_MADV_COLD = 20  # other than MADV_DONTNEED it keeps the content
_ADVICE = {"normal": mmap.MADV_NORMAL, "sequential": mmap.MADV_SEQUENTIAL, "random": mmap.MADV_RANDOM,
           "willneed": mmap.MADV_WILLNEED, "dontneed": _MADV_COLD}
_POLICIES = ("2q", "fifo", "lru", "priority")
_MADV_POPULATE_READ = 22  # waits, other than MADV_WILLNEED


def check_policy(policy: Policy | None) -> None:
    if policy is not None and policy not in _POLICIES:
        raise ValueError(f"{policy!r} is no policy; use {', '.join(_POLICIES)}")


class Region:
    """A far region, which is freed with the last array that uses it. NumPy takes it as the owner of an array's memory."""

    def __init__(self, size: int, policy: Policy | None) -> None:
        check_policy(policy)
        region = library.c_void_p()
        size = max(size, 1)
        result = library.region_create(library.byref(region), size, size, policy.encode() if policy else None)
        library.check(result, f"no region of {size} bytes")
        # Not at the exit of the interpreter, where other code may still use the array.
        weakref.finalize(self, library.region_destroy, region).atexit = False
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,),
                                    "data": (library.region_data(region), False)}


def empty(shape: int | tuple[int, ...], dtype: "DTypeLike" = float, *, order: Literal["C", "F"] = "C",
          policy: Policy | None = None) -> "NDArray[Any]":
    """A new array of zeros in a far region of its own, as numpy.empty.

    shape: elements in each dimension. policy: the order of evictions of this array's pages, "2q", "fifo", "lru" or
    "priority"; None: that of the process.

    The array and its views are ordinary NumPy arrays; the memory is freed with the last of them. It takes whole pages of
    4 KiB, at least 64 KiB: for few large arrays, not for many small ones. Where the process does not run under Farside,
    it is ordinary memory.

    Raises TypeError for a dtype with Python objects, ValueError for an unknown policy or order, OSError with ENOMEM where
    far memory is used up, and with ENOSPC where 64 arrays with a policy exist. Thread-safe."""
    import numpy as np
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise TypeError(f"far arrays cannot hold Python objects, as those of dtype {kind}")
    dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(length < 0 for length in dimensions):
        raise ValueError(f"negative dimensions are not allowed: {dimensions}")
    size = math.prod(dimensions) * kind.itemsize
    return np.ndarray(dimensions, kind, np.asarray(Region(size, policy)), order=order)


def zeros(shape: int | tuple[int, ...], dtype: "DTypeLike" = float, *, order: Literal["C", "F"] = "C",
          policy: Policy | None = None) -> "NDArray[Any]":
    """As `empty`, whose arrays are zero."""
    return empty(shape, dtype, order=order, policy=policy)


def full(shape: int | tuple[int, ...], fill_value: "ArrayLike", dtype: "DTypeLike | None" = None, *,
         order: Literal["C", "F"] = "C", policy: Policy | None = None) -> "NDArray[Any]":
    """As `empty`, with all elements fill_value. dtype: None for that of fill_value."""
    import numpy as np
    array = empty(shape, np.asarray(fill_value).dtype if dtype is None else dtype, order=order, policy=policy)
    array[...] = fill_value
    return array


def from_numpy(array: "numpy.ndarray[Any, Any]", *, policy: Policy | None = None) -> "NDArray[Any]":
    """A copy of the array in a far region, of the same shape, dtype and order (F for arrays that are contiguous only so).
    Errors as of `empty`."""
    order: Literal["C", "F"] = "F" if array.flags.fnc else "C"
    copy = empty(array.shape, array.dtype, order=order, policy=policy)
    copy[...] = array
    return copy


def _pages_of(array: Any) -> tuple[int, int]:
    """Address and size of the whole pages that hold the elements of an array or another object with a buffer."""
    import numpy as np
    view = array if isinstance(array, np.ndarray) else np.asarray(memoryview(array))
    address = view.__array_interface__["data"][0]
    if view.size == 0:
        return address & -mmap.PAGESIZE, 0
    spans = [(length - 1) * stride for length, stride in zip(view.shape, view.strides)]
    begin = (address + sum(span for span in spans if span < 0)) & -mmap.PAGESIZE
    end = address + sum(span for span in spans if span > 0) + view.itemsize
    return begin, (end - begin + mmap.PAGESIZE - 1) & -mmap.PAGESIZE


def hint(array: Any, advice: Advice) -> None:
    """Announces how the next accesses use the array, as madvise does.

    array: a NumPy array, or an object with a buffer; of a strided view, all from its first to its last byte counts.
    advice: "sequential": in order, so 2 MiB are fetched at a time; "random": in no order; "normal": neither is known;
    "willneed": soon, so fetching begins now, and goes on in the background; "dontneed": not soon, so these pages leave near
    memory before others, when room is wanted. Their content stays.

    A hint never changes what a program computes. Under Farside "sequential" and "random" act on whole ranges of 2 MiB, and
    "willneed" fetches at most half of the near memory's limit. Otherwise the kernel gets the advice.

    Raises ValueError for unknown advice, TypeError for an object without a buffer. Thread-safe. Releases the GIL."""
    if advice not in _ADVICE:
        raise ValueError(f"{advice!r} is no advice; use {', '.join(_ADVICE)}")
    _advise(array, _ADVICE[advice])


def prefetch(array: Any, where: Any = ..., *, wait: bool = False) -> None:
    """Fetches array[where], a view, from far memory: prefetch(a, slice(0, 1000)) or prefetch(a, numpy.s_[:, :10]).

    wait: returns when the pages are near; otherwise they are fetched in the background. At most half of the limit of near
    memory is fetched. Array and errors as of `hint`; ValueError where array[where] would be a copy. Thread-safe. Releases the GIL."""
    import numpy as np
    whole = array if isinstance(array, np.ndarray) else np.asarray(memoryview(array))
    part = whole[where] if where is not ... else whole
    if not isinstance(part, np.ndarray) or not np.may_share_memory(part, whole) and part.size > 0:
        raise ValueError("prefetch takes a part of the array that is a view; use slices, not numbers or lists of them")
    _advise(part, _MADV_POPULATE_READ if wait else mmap.MADV_WILLNEED)


def _advise(array: Any, advice: int) -> None:
    address, size = _pages_of(array)
    if size > 0:
        library.madvise(address, size, advice)
