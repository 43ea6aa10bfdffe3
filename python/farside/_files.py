"""Far arrays that begin with the content of a file."""
import math
import os
from typing import TYPE_CHECKING, Any, Literal

from ._arrays import Policy, empty

if TYPE_CHECKING:
    import numpy
    from numpy.typing import DTypeLike, NDArray

_BLOCK = 1 << 20  # bytes of one read or write, which are near meanwhile


def _bytes_of(array: "numpy.ndarray[Any, Any]") -> memoryview:
    """The memory of a contiguous array, in its order in memory."""
    import numpy as np
    flat = array.reshape(-1, order="A") if array.nbytes > 0 else np.empty(0, np.uint8)
    return flat.view(np.uint8).data


def _shape_for(path: str, available: int, itemsize: int, shape: int | tuple[int, ...] | None) -> tuple[int, ...]:
    """The shape, where `available` bytes suffice for it; None: as many elements as there are."""
    if shape is None:
        if itemsize == 0 or available % itemsize != 0:
            raise ValueError(f"{path}: {available} bytes are no multiple of the dtype's {itemsize}; give the shape or another dtype")
        return (available // itemsize,)
    dimensions = (shape,) if isinstance(shape, int) else tuple(shape)
    needed = math.prod(dimensions) * itemsize
    if needed > available:
        raise ValueError(f"{path}: {available} bytes from the offset on, but the shape {dimensions} needs {needed}")
    return dimensions


def _fill(view: memoryview, file: Any, path: str) -> None:
    at = 0
    while at < len(view):
        done = file.readinto(view[at:at + _BLOCK])
        if not done:
            raise ValueError(f"{path}: ended after {at} of {len(view)} bytes; it was shortened meanwhile")
        at += done


def mmap_file(path: str | os.PathLike[str], dtype: "DTypeLike" = "u1", shape: int | tuple[int, ...] | None = None, *,
              offset: int = 0, order: Literal["C", "F"] = "C", policy: Policy | None = None) -> "NDArray[Any]":
    """A far array that begins with the content of a file, as numpy.memmap with mode "c": writes do not reach the file;
    `write_file` writes an array to a file.

    dtype, shape, order: how the file's bytes are understood; shape None: one dimension, to the end of the file. offset: of
    the first byte in the file, of any alignment. policy: as of `empty`.

    The file is read here, a MiB at a time into far memory, and not needed afterwards. Other than a mapped file's, the
    array's pages count as far memory, with its limit and policy, and not as the kernel's cache.

    Raises OSError where the file cannot be opened or read, ValueError where it is too short, or no multiple of the dtype
    and no shape is given, or for a negative offset; further errors as of `empty`. Thread-safe. Releases the GIL while it
    reads."""
    import numpy as np
    name = os.fspath(path)
    if offset < 0:
        raise ValueError(f"the offset cannot be negative: {offset}")
    with open(name, "rb", buffering=0) as file:
        available = max(file.seek(0, os.SEEK_END) - offset, 0)
        array = empty(_shape_for(name, available, np.dtype(dtype).itemsize, shape), dtype, order=order, policy=policy)
        file.seek(offset)
        _fill(_bytes_of(array), file, name)
    return array


def write_file(array: "numpy.ndarray[Any, Any]", path: str | os.PathLike[str], *, offset: int = 0) -> None:
    """Writes the elements of an array to a file, in their order in memory, from byte `offset` on. The file is created where
    it is missing, and keeps its other bytes: after `mmap_file`, the same offset writes the changes back.

    Raises OSError where the file cannot be written, ValueError for a negative offset or an array that is not contiguous,
    TypeError for one of Python objects. Not atomic, and not synced to the disk. Thread-safe; others must not write to the
    array meanwhile. Releases the GIL while it writes."""
    if array.dtype.hasobject:
        raise TypeError("an array of Python objects cannot be written to a file")
    if not array.flags.forc:
        raise ValueError("the array is not contiguous; write a copy of it")
    if offset < 0:
        raise ValueError(f"the offset cannot be negative: {offset}")
    view = _bytes_of(array)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666), "wb", buffering=0) as file:
        file.seek(offset)
        at = 0
        while at < len(view):
            at += file.write(view[at:at + _BLOCK])
