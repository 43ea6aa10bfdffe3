"""NumPy's allocation handler (NEP 49): arrays that other code makes, in far regions.

NumPy calls the handler's functions without the interpreter's lock, so they are functions of libfarside.so. It keeps the
handler with each array, so an array is freed by the functions that allocated it, whatever the handler is then."""
import contextlib
import ctypes
import importlib
from collections.abc import Iterator
from functools import cache
from typing import Any

from . import _library as library
from ._arrays import Policy, check_policy

_CAPSULE = ctypes.create_string_buffer(b"mem_handler")  # NumPy's name of such capsules, which keep its address
_SET_HANDLER = 304  # the index of PyDataMem_SetHandler in NumPy's C interface, which never changes


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of NumPy's ndarraytypes.h."""
    _fields_ = [("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("context", ctypes.c_char_p),
                *((name, ctypes.c_void_p) for name in library.BLOCK_FUNCTIONS)]


@cache
def _handler(policy: Policy | None) -> Any:
    """The capsule with the handler. Never freed: arrays may live longer than this module."""
    handler = _Handler(b"farside", 1, policy.encode() if policy else None, *library.BLOCK_FUNCTIONS.values())
    for kept in (handler, _CAPSULE):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
    new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi))
    return new_capsule(ctypes.addressof(handler), ctypes.addressof(_CAPSULE), None)


def _interface_of_numpy() -> Any:
    import numpy as np
    core = "numpy.core" if np.__version__.startswith("1.") else "numpy._core"
    return importlib.import_module(f"{core}._multiarray_umath")._ARRAY_API


@cache
def _set_handler() -> Any:
    """PyDataMem_SetHandler: sets the handler and returns the one before."""
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    table = ctypes.cast(pointer(_interface_of_numpy(), None), ctypes.POINTER(ctypes.c_void_p))
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])


@contextlib.contextmanager
def allocator(policy: Policy | None = None) -> Iterator[None]:
    """Within `with farside.allocator():`, NumPy makes arrays of 64 KiB or more in far regions of their own, also those
    that libraries make by NumPy's C interface, as pandas and scikit-learn do. Smaller ones come from malloc.

    policy: as of `empty`. At most 64 regions with a policy exist at a time; further arrays have that of the process.

    Arrays may be used, resized and freed after the context. It applies to this thread, and to asyncio tasks that begin in
    it; other threads have contexts of their own. Contexts nest. A large array costs 10 to 20 microseconds more than from
    malloc, and a fault at the first touch of each page, so code with many temporary arrays is better left outside.

    Where the process does not run under Farside, the arrays are ordinary memory. Raises ValueError for an unknown policy,
    ImportError without NumPy; NumPy raises MemoryError where far memory is used up. Thread-safe."""
    check_policy(policy)
    before = _set_handler()(_handler(policy))
    try:
        yield
    finally:
        _set_handler()(before)
