#!/usr/bin/env python3
"""Exchanges record batches with pyarrow through the C data interface, and compares every operator with DuckDB on the same
data. duckdb_test.py EXCHANGE FOLDER: the shared object of exchange.cc, and where a virtual environment is made.

pyarrow and duckdb come from PyPI; where that cannot be reached, the test is skipped (status 77)."""
import ctypes
import os
import random
import subprocess
import sys
from pathlib import Path

SKIPPED = 77
PACKAGES = ["pyarrow", "duckdb"]

# What run() of exchange.cc computes.
SQL = {
    "copy": "select * from t",
    "filter": "select * from t where (i32 > 100 and f64 <= 0.5) or text = 'bb' or b",
    "nulls": "select * from t where f64 is null or not (i64 <> 7)",
    "with": "select *, sqrt(u16) / 2 - f64 * i8 x, hour(ts) h, month(date) m from t",
    "aggregate": "select count(*) n, count(text) c, sum(i64) s, sum(u64) su, fsum(f64) sf, min(f32) lo, max(ts) hi, "
                 "avg(i32) m from t where i8 < 60",
    "group": "select text, b, count(*) n, sum(i16) s, avg(f64) m, max(date) hi from t group by text, b order by min(id)",
    "hours": "select hour(ts) h, count(*) n, min(u32) lo from t where i32 > 0 group by h order by min(id)",
    "join": "select a.id, a.text, a.i8, b.id other from t a join (select * from t where id < 40) b using (text, i8) "
            "order by a.id, b.id",
    "top": "select * from t where u8 > 20 and f64 is not null order by f64 desc, id limit 50",
}


def enter_environment(folder):
    """Executes this script again with the packages."""
    python = Path(folder) / "bin/python3"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True, timeout=60)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True, capture_output=True, timeout=240)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"skipped: {' and '.join(PACKAGES)} cannot be installed from PyPI ({error})")
        sys.exit(SKIPPED)
    os.execve(python, [str(python), "-B", *sys.argv], dict(os.environ, FARSIDE_IN_VENV="1"))


def make_table(pa, rows, seed, has_nulls):
    r = random.Random(seed)

    def values(make):
        return [None if has_nulls and r.random() < 0.15 else make() for _ in range(rows)]

    def integers(bits, signed=True):
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return values(lambda: r.randint(low, high) if r.random() < 0.5 else r.randint(0, 120))

    columns = {"id": pa.array(range(rows), pa.int32())}
    for bits in 8, 16, 32:
        columns[f"i{bits}"] = pa.array(integers(bits), getattr(pa, f"int{bits}")())
        columns[f"u{bits}"] = pa.array(integers(bits, False), getattr(pa, f"uint{bits}")())
    columns["i64"] = pa.array(values(lambda: r.randint(0, 9) if r.random() < 0.5 else r.randint(-1 << 45, 1 << 45)), pa.int64())
    columns["u64"] = pa.array(values(lambda: r.randint(0, 1 << 45)), pa.uint64())
    columns["f32"] = pa.array(values(lambda: r.randint(-1000, 1000) / 8), pa.float32())
    columns["f64"] = pa.array(values(lambda: r.gauss(0, 1)), pa.float64())
    columns["b"] = pa.array(values(lambda: r.random() < 0.3), pa.bool_())
    columns["text"] = pa.array(values(lambda: r.choice(["", "a", "bb", "ünï", "long " * r.randint(1, 9)])), pa.utf8())
    columns["date"] = pa.array(values(lambda: r.randint(-100000, 100000)), pa.date32())
    columns["ts"] = pa.array(values(lambda: r.randint(-1 << 50, 1 << 51)), pa.timestamp("us"))
    return pa.record_batch(columns)


class Exchange:
    def __init__(self, library, pa):
        self.function, self.pa = ctypes.CDLL(library).farside_exchange, pa

    def run(self, query, batch):
        """Room for the structures, which have 72 and 80 bytes."""
        schema, array, result_schema, result = (ctypes.create_string_buffer(128) for _ in range(4))
        message = ctypes.create_string_buffer(500)
        batch._export_to_c(ctypes.addressof(array), ctypes.addressof(schema))
        code = self.function(query.encode(), schema, array, result_schema, result, message, ctypes.c_size_t(500))
        if code != 0:
            raise ValueError(message.value.decode())
        made = self.pa.RecordBatch._import_from_c(ctypes.addressof(result), ctypes.addressof(result_schema))
        made.validate(full=True)
        return made


def is_same(a, b):
    if isinstance(a, float) and isinstance(b, (int, float)):
        return a == b or abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    return a == b


def compare(query, ours, theirs):
    assert ours.schema.names == theirs.schema.names, f"{query}: {ours.schema.names} and {theirs.schema.names}"
    assert ours.num_rows == theirs.num_rows, f"{query}: {ours.num_rows} and {theirs.num_rows} rows"
    for name in ours.schema.names:
        for row, (a, b) in enumerate(zip(ours.column(name).to_pylist(), theirs.column(name).to_pylist())):
            assert is_same(a, b), f"{query}: column {name}, row {row}: {a} and {b}"


def main():
    library, folder = sys.argv[1:]
    if "FARSIDE_IN_VENV" not in os.environ:
        enter_environment(folder)
    import duckdb
    import pyarrow as pa
    exchange = Exchange(library, pa)
    for rows, has_nulls in (0, False), (1, True), (100, False), (3000, True), (20000, True):
        t = make_table(pa, rows, rows, has_nulls)
        table = pa.Table.from_batches([t])
        for query, sql in SQL.items():
            connection = duckdb.connect(config={"threads": 1})
            connection.register("t", table)
            theirs = connection.sql(sql).to_arrow_table()
            compare(f"{query} of {rows} rows", exchange.run(query, t), theirs)
        if rows == 3000:  # slices, whose offsets are not multiples of 8
            compare("a slice", exchange.run("copy", t.slice(13, 1001)), t.slice(13, 1001))
    for odd in pa.array([[1], [2]]), pa.array(["a", "b"]).dictionary_encode(), pa.array(["a"], pa.large_utf8()):
        try:
            exchange.run("copy", pa.record_batch({"c": odd}))
            raise AssertionError(f"{odd.type} was accepted")
        except ValueError as error:
            assert "farside" in str(error), error
    print(f"{len(SQL)} queries agree with DuckDB {duckdb.__version__}, pyarrow {pa.__version__}")


main()
