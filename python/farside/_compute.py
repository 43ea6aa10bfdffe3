"""The C functions of src/compute/compute.cc and their structures, by ctypes."""
import ctypes
import os
import weakref
from collections.abc import Iterable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_uint64, c_void_p
from typing import Any, NamedTuple

from ._installation import prefix

_ARROW_BYTES = 128  # more than either structure of Arrow's C data interface has


class Node(NamedTuple):
    """A part of an expression in postfix order: an operation, a column, a text, or the bits of a number."""
    op: str
    text: str = ""
    bits: int = 0


Nodes = tuple[Node, ...]


class _CNode(ctypes.Structure):
    _fields_ = [("op", c_char_p), ("text", c_char_p), ("text_bytes", c_uint64), ("bits", c_uint64)]


class _CExpression(ctypes.Structure):
    _fields_ = [("nodes", POINTER(_CNode)), ("count", c_uint64)]


class _CItem(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("op", c_char_p), ("of", _CExpression)]


class _CItems(ctypes.Structure):
    _fields_ = [("first", POINTER(_CItem)), ("count", c_uint64)]


class _CRequest(ctypes.Structure):
    _fields_ = [("operation", c_char_p), ("table", c_void_p), ("other", c_void_p), ("keys", _CItems), ("aggregates", _CItems),
                ("condition", _CExpression), ("k", c_uint64), ("is_descending", c_int), ("place", c_int)]


class _CFailure(ctypes.Structure):
    _fields_ = [("kind", c_int), ("code", c_int), ("text", ctypes.c_char * 504)]


_ERRORS = {1: ValueError, 2: IndexError, 3: OverflowError, 4: MemoryError}  # 0: none, others: OSError
_library = ctypes.CDLL(os.fspath(prefix / "lib/farside/libfarside_compute.so"))
_library.farside_compute_new.restype = _library.farside_compute_run.restype = c_void_p
_library.farside_compute_free.argtypes = [c_void_p]
_library.farside_compute_add.argtypes = [c_void_p, c_char_p, c_void_p, c_void_p, POINTER(_CFailure)]
_library.farside_compute_export.argtypes = [c_void_p, c_void_p, c_void_p, POINTER(_CFailure)]
_library.farside_compute_run.argtypes = [POINTER(_CRequest), POINTER(_CFailure)]


def _call(name: str, *arguments: Any) -> Any:
    failure = _CFailure()
    result = getattr(_library, f"farside_compute_{name}")(*arguments, byref(failure))
    if failure.kind == 0:
        return result
    text = failure.text.decode(errors="replace")
    raise _ERRORS[failure.kind](text) if failure.kind in _ERRORS else OSError(failure.code, text)


def _expression(nodes: Nodes) -> _CExpression:
    texts = [node.text.encode() for node in nodes]
    made = (_CNode(node.op.encode(), text, len(text), node.bits) for node, text in zip(nodes, texts))
    return _CExpression((_CNode * len(nodes))(*made), len(nodes))


class Item(NamedTuple):
    """A key, or an aggregate and its operation."""
    name: str
    of: Nodes = ()
    op: str = ""


def _items(items: Sequence[Item]) -> _CItems:
    made = (_CItem(item.name.encode(), item.op.encode(), _expression(item.of)) for item in items)
    return _CItems((_CItem * len(items))(*made), len(items))


class Frame:
    """A data frame in far memory, which is freed with this object and all that was exported."""

    def __init__(self, handle: int | None) -> None:
        if handle is None:
            raise MemoryError("no memory for a table")
        self.handle = handle
        # Not at the exit of the interpreter, where other code may still use the columns.
        weakref.finalize(self, _library.farside_compute_free, handle).atexit = False

    @classmethod
    def of(cls, columns: Iterable[tuple[str, Any]]) -> "Frame":
        """Copies of Arrow arrays with names."""
        made = cls(_library.farside_compute_new())
        for name, array in columns:
            schema_to, array_to = (ctypes.create_string_buffer(_ARROW_BYTES) for _ in range(2))
            array._export_to_c(ctypes.addressof(array_to), ctypes.addressof(schema_to))
            _call("add", made.handle, name.encode(), schema_to, array_to)
        return made

    def to_batch(self, record_batch: Any) -> Any:
        """A pyarrow.RecordBatch, the class that is given, whose buffers are the columns'."""
        schema, array = (ctypes.create_string_buffer(_ARROW_BYTES) for _ in range(2))
        _call("export", self.handle, schema, array)
        return record_batch._import_from_c(ctypes.addressof(array), ctypes.addressof(schema))

    def run(self, operation: str, place: int, *, keys: Sequence[Item] = (), aggregates: Sequence[Item] = (), condition: Nodes = (),
            other: "Frame | None" = None, k: int = 0, is_descending: bool = False) -> "Frame":
        request = _CRequest(operation.encode(), self.handle, other.handle if other else None, _items(keys), _items(aggregates),
                            _expression(condition), k, is_descending, place)
        return Frame(_call("run", byref(request)))
