"""The C interface of include/farside/farside.h, by ctypes, which releases the GIL during every call.

libfarside.so is loaded into the global scope. Under `farside run` the preload library comes before it there, so a look-up
in that scope finds the functions of the preload library, as the dynamic linker does for C programs."""
import ctypes
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from typing import Any

from ._installation import prefix


class CStats(ctypes.Structure):
    """struct farside_stats."""
    names = ("near_bytes", "near_limit_bytes", "heap_bytes", "faults", "hints", "hints_fetched", "hints_wild")
    _fields_ = [(name, c_uint64) for name in names]


class CCosts(ctypes.Structure):
    """struct farside_costs."""
    names = ("fault_ns", "fetches", "busiest_thread_fetches", "bytes_fetched", "bytes_written")
    _fields_ = [(name, c_uint64) for name in names]


ctypes.CDLL(os.fspath(prefix / "lib/libfarside.so"), mode=ctypes.RTLD_GLOBAL)
_global = ctypes.CDLL(None, use_errno=True)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_global, name)
    function.restype, function.argtypes = result, arguments
    return function


get_stats = _function("farside_get_stats", c_int, POINTER(CStats))
get_costs = _function("farside_get_costs", c_int, POINTER(CCosts))
set_limit = _function("farside_set_limit", c_int, c_uint64)
region_create = _function("farside_region_create", c_int, POINTER(c_void_p), c_size_t, c_size_t, c_char_p)
region_data = _function("farside_region_data", c_void_p, c_void_p)
region_destroy = _function("farside_region_destroy", None, c_void_p)
# Addresses of the functions that NumPy calls, in the order of its PyDataMemAllocator.
BLOCK_FUNCTIONS = {name: ctypes.cast(getattr(_global, f"farside_block_{name}"), c_void_p).value
                   for name in ("malloc", "calloc", "realloc", "free")}
_madvise = _function("madvise", c_int, c_void_p, c_size_t, c_int)

__all__ = ["BLOCK_FUNCTIONS", "CCosts", "CStats", "byref", "c_void_p", "check", "get_costs", "get_stats", "madvise", "region_create", "region_data", "region_destroy",
           "set_limit"]


def check(result: int, what: str) -> None:
    """Raises OSError for a negative errno value."""
    if result < 0:
        raise OSError(-result, f"{what}: {os.strerror(-result)}")


def madvise(address: int, size: int, advice: int) -> None:
    check(-ctypes.get_errno() if _madvise(address, size, advice) != 0 else 0, "madvise")
