"""Far copies of Arrow data."""
import importlib
from typing import Any, TypeVar

from ._arrays import Policy, empty

Data = TypeVar("Data")  # pyarrow.Table, RecordBatch, ChunkedArray or Array; pyarrow has no types


def _pyarrow() -> Any:
    return importlib.import_module("pyarrow")


def _batches_of(data: Any) -> tuple[Any, list[Any]]:
    """The schema and the record batches of the data; columns of arrays have no name."""
    pa = _pyarrow()
    if isinstance(data, pa.Table):
        return data.schema, data.to_batches()
    if isinstance(data, pa.RecordBatch):
        return data.schema, [data]
    if not isinstance(data, (pa.Array, pa.ChunkedArray)):
        raise TypeError(f"{type(data).__name__} is no Arrow data; use a Table, RecordBatch, ChunkedArray or Array")
    schema = pa.schema([("", data.type)])
    chunks = [data] if isinstance(data, pa.Array) else data.chunks
    return schema, [pa.RecordBatch.from_arrays([chunk], schema=schema) for chunk in chunks]


def _restored(like: Any, schema: Any, batches: list[Any]) -> Any:
    """An object of the class of `like` that has the batches."""
    pa = _pyarrow()
    if isinstance(like, pa.Table):
        return pa.Table.from_batches(batches, schema)
    if isinstance(like, pa.ChunkedArray):
        return pa.chunked_array([batch.column(0) for batch in batches], like.type)
    return batches[0] if isinstance(like, pa.RecordBatch) else batches[0].column(0)


def _write(schema: Any, batches: list[Any], stream: Any) -> Any:
    ipc = _pyarrow().ipc
    with ipc.new_stream(stream, schema, options=ipc.IpcWriteOptions(allow_64bit=True)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return stream


def from_arrow(data: Data, *, policy: Policy | None = None) -> Data:
    """A copy of a pyarrow Table, RecordBatch, ChunkedArray or Array whose buffers are in one far region, of the same class,
    schema and values. Slices are copied without the rest of their buffers; columns of a table get the same chunks.

    policy: as of `empty`. The region is freed with the last object that uses one of its buffers. Libraries that take Arrow
    data without a copy use the far buffers in place: DuckDB, and Polars for numbers.

    What pyarrow computes from it gets memory from pyarrow's own pool: pools other than those that it has can only be
    written in C++. Under `farside run` these are far, too. `pyarrow.array(far_array)` uses a NumPy array of this module
    without a copy.

    Raises TypeError for other objects, ImportError without pyarrow, errors as of `empty`. Thread-safe. Releases the GIL
    while it copies."""
    pa = _pyarrow()
    schema, batches = _batches_of(data)
    memory = empty(_write(schema, batches, pa.MockOutputStream()).size(), "u1", policy=policy)
    _write(schema, batches, pa.FixedSizeBufferWriter(pa.py_buffer(memory)))
    copy: Data = _restored(data, schema, list(pa.ipc.open_stream(pa.py_buffer(memory))))
    return copy
