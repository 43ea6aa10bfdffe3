"""farside.compute against pyarrow.compute and DuckDB, on random tables with nulls: compute.py [PLACE...]"""
import gc
import math
import sys
import unittest

import duckdb
import farside
import farside.compute as fc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from farside.compute import col

PLACES = sys.argv[1:] or ["automatic", "near"]
SIZES = (0, 1, 100, 6000)
I32, F64, TEXT = pc.field("i32"), pc.field("f64"), pc.field("text")

# The same as operators and in SQL. DuckDB's fsum is compensated, as ours.
QUERIES = {
    "select * from t where (i32 > 100 and f64 <= 0.5) or text = 'bb' or b":
        lambda t: t.filter((col("i32") > 100) & (col("f64") <= 0.5) | (col("text") == "bb") | col("b")),
    "select * from t where f64 is null or not (i64 <> 7)": lambda t: t.filter(col("f64").is_null() | ~(col("i64") != 7)),
    "select *, sqrt(u16) / 2 - f64 * i8 x, hour(ts) h, month(date) m from t":
        lambda t: t.with_column("x", col("u16").sqrt() / 2 - col("f64") * col("i8")).with_column("h", col("ts").hour())
        .with_column("m", col("date").month()),
    "select count(*) n, count(text) c, sum(i64) s, sum(u64) su, fsum(f64) sf, min(f32) lo, max(ts) hi, avg(i32) m from t where i8 < 60":
        lambda t: t.aggregate({"n": "count", "c": ("count", "text"), "s": ("sum", "i64"), "su": ("sum", "u64"), "sf": ("sum", "f64"),
                               "lo": ("min", "f32"), "hi": ("max", "ts"), "m": ("mean", "i32")}, where=col("i8") < 60),
    "select hour(ts) h, count(*) n, min(u32) lo from t where i32 > 0 group by h order by min(id)":
        lambda t: t.group_by({"h": col("ts").hour()}, {"n": "count", "lo": ("min", "u32")}, where=col("i32") > 0),
    "select * from t where u8 > 20 and f64 is not null order by f64 desc, id limit 50":
        lambda t: t.top_k(50, "f64", where=col("u8") > 20),
}


def make_table(rows, has_nulls=True):
    random = np.random.default_rng(rows)

    def array(values, kind):
        return pa.array(values, kind, mask=random.random(rows) < 0.15 if has_nulls else None)

    columns = {"id": pa.array(np.arange(rows, dtype=np.int32))}
    for kind in (np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32):
        limits, small = np.iinfo(kind), random.random(rows) < 0.5
        values = np.where(small, random.integers(0, 120, rows), random.integers(limits.min, limits.max, rows, endpoint=True))
        columns[f"{limits.kind}{limits.bits}"] = array(values.astype(kind), pa.from_numpy_dtype(kind))
    columns["i64"] = array(np.where(random.random(rows) < 0.5, random.integers(0, 9, rows), random.integers(-1 << 45, 1 << 45, rows)), pa.int64())
    columns["u64"] = array(random.integers(0, 1 << 45, rows).astype(np.uint64), pa.uint64())
    columns["f32"] = array((random.integers(-1000, 1000, rows) / 8).astype(np.float32), pa.float32())
    columns["f64"] = array(random.normal(size=rows), pa.float64())
    columns["b"] = array(random.random(rows) < 0.3, pa.bool_())
    columns["text"] = array(random.choice(["", "a", "bb", "ünï", "long " * 7], rows).astype(object), pa.string())
    columns["date"] = array(random.integers(-100_000, 100_000, rows).astype(np.int32), pa.date32())
    columns["ts"] = array(random.integers(-1 << 50, 1 << 51, rows), pa.timestamp("us"))
    return pa.table(columns)


def in_chunks(table):
    return pa.concat_tables([table.slice(0, 7), table.slice(7)])


class ComputeTest(unittest.TestCase):
    def each(self):
        """Random tables, each with the same far."""
        for place in PLACES:
            for rows in SIZES:
                table = make_table(rows, has_nulls=rows != 100)
                yield table, fc.Table.from_arrow(in_chunks(table), place=place)

    def check(self, ours, theirs, *, same_types=True):
        """Equal up to the rounding of float sums and, where asked for, with the same types."""
        ours = ours.to_arrow()
        ours.validate(full=True)
        self.assertEqual(ours.column_names, theirs.column_names)
        if same_types:
            self.assertEqual([field.type for field in ours.schema], [field.type for field in theirs.schema])
        for name in ours.column_names:
            a, b = ours[name].to_pylist(), theirs[name].to_pylist()
            if a == b:
                continue
            self.assertEqual(len(a), len(b), name)
            for x, y in zip(a, b):
                is_close = isinstance(x, float) and y is not None and math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9)
                self.assertTrue(x == y or is_close, f"{name}: {x} and {y}")

    def test_tables_are_copied_and_returned_as_they_are(self):
        for table, far in self.each():
            self.assertTrue(far.to_arrow().equals(table))
            self.assertEqual((far.num_rows, len(far), far.column_names), (len(table), len(table), table.column_names))
            self.check(far.select(["text", "id"]), table.select(["text", "id"]))
            self.check(fc.Table.from_arrow(table.slice(13, 1001)), table.slice(13, 1001))
        zoned = pa.table({"t": pa.array([1, None], pa.timestamp("ms", "Europe/Berlin"))})
        self.assertTrue(fc.Table.from_arrow(zoned.to_batches()[0]).to_arrow().equals(zoned))
        self.assertEqual(fc.Table.from_arrow(pa.table({})).column_names, [])

    def test_filters(self):
        for table, far in self.each():
            for ours, theirs in (((col("i32") > 100) & (col("f64") <= 0.5) | (col("text") == "bb") | col("b"),
                                  (I32 > 100) & (F64 <= 0.5) | (TEXT == "bb") | pc.field("b")),
                                 (~(col("f64") < 0) & ~col("i32").is_null(), ~(F64 < 0) & ~I32.is_null()),
                                 (col("u64") >= (1 << 63), pc.field("u64") >= pa.scalar(1 << 63, pa.uint64())),
                                 (col("text") >= "b", TEXT >= "b"), (3 > col("i32"), 3 > I32)):
                self.check(far.filter(ours), table.filter(theirs))

    def test_computed_columns(self):
        for table, far in self.each():
            doubles = {name: table[name].cast("float64") for name in ("i32", "u8", "f64")}
            value = pc.divide(pc.subtract(pc.multiply(doubles["i32"], 2.0), doubles["f64"]), pc.add(doubles["u8"], 1.0))
            self.check(far.with_column("x", (col("i32") * 2 - col("f64")) / (1 + col("u8"))), table.append_column("x", value))
            years = far.with_column("y", col("date").year()).with_column("h", col("ts").hour())
            self.check(years, table.append_column("y", pc.year(table["date"])).append_column("h", pc.hour(table["ts"])))
            self.check(far.with_column("is", col("i8") == col("u8")), table.append_column("is", pc.equal(table["i8"], table["u8"])))

    def test_aggregates(self):
        for table, far in self.each():
            for name in ("i8", "i64", "u32", "u64", "f32", "f64"):
                wanted = {"sum": pc.sum(table[name]), "min": pc.min(table[name]), "max": pc.max(table[name]), "mean": pc.mean(table[name]),
                          "count": pc.count(table[name])}
                found = far.aggregate({op: (op, name) for op in wanted})
                self.check(found, pa.table({op: pa.array([value.as_py()], value.type) for op, value in wanted.items()}))
            self.assertEqual(far.aggregate({"n": "count"}, where=col("i32") > 0).to_arrow()["n"].to_pylist(),
                             [len(table.filter(I32 > 0))])

    def test_groups(self):
        aggregates = [("i16", "sum"), ("f64", "mean"), ("date", "max"), ("f32", "min"), ("text", "count")]
        for table, far in self.each():
            for keys in (["text"], ["text", "b"], ["u8", "text"]):
                theirs = pa.TableGroupBy(table, keys, use_threads=False).aggregate([*aggregates, ([], "count_all")])
                names = [*keys, *(f"{name}_{op}" for name, op in aggregates), "count_all"]
                ours = far.group_by(keys, {**{f"{name}_{op}": (op, name) for name, op in aggregates}, "count_all": "count"})
                order = [(key, "ascending") for key in keys]
                self.check(ours.sort_by(order), theirs.select(names).sort_by(order))

    def test_joins(self):
        for table, far in self.each():
            small = table.slice(0, 40).select(["text", "i8", "id"]).rename_columns(["text", "small", "other"])
            ours = far.select(["id", "text", "i8"]).join(fc.Table.from_arrow(small), ["text", "i8"], ["text", "small"])
            theirs = table.select(["id", "text", "i8"]).join(small, ["text", "i8"], ["text", "small"], join_type="inner")
            self.check(ours, theirs.sort_by([("id", "ascending"), ("other", "ascending")]))

    def test_orders(self):
        for table, far in self.each():
            for keys in ("f64", [("text", "descending"), ("i8", "ascending")], [("b", "ascending")]):
                self.check(far.sort_by(keys), table.sort_by(keys))
            for order in ("ascending", "descending"):
                theirs = table.filter(pc.field("i64").is_valid()).sort_by([("i64", order), ("id", "ascending")]).slice(0, 30)
                self.check(far.top_k(30, "i64", order), theirs)
            picks = np.random.default_rng(1).integers(0, max(len(table), 1), 500 if len(table) else 0)
            self.check(far.take(picks), table.take(pa.array(picks)))

    def test_queries_of_duckdb(self):
        connection = duckdb.connect(config={"threads": 1})
        for table, far in self.each():
            connection.register("t", table)
            for sql, query in QUERIES.items():
                self.check(query(far), connection.sql(sql).to_arrow_table(), same_types=False)

    def test_results_outlive_their_tables(self):
        far = fc.Table.from_arrow(make_table(20_000)).filter(col("id") < 1000)
        ids = far.to_arrow()["id"]
        del far
        gc.collect()
        self.assertEqual(pc.sum(ids).as_py(), 499_500)

    def test_mistakes_are_refused(self):
        table = make_table(100)
        far = fc.Table.from_arrow(table)
        for error, text, call in (
                (ValueError, "no column 'nothing'; it has 'id', ", lambda: far.filter(col("nothing") > 1)),
                (ValueError, "no column 'nothing'", lambda: far.select(["id", "nothing"])),
                (ValueError, "no column 'nothing'", lambda: far.join(far, "id", "nothing")),
                (ValueError, "no column 'nothing'", lambda: far.sort_by("nothing")),
                (ValueError, "not a boolean expression", lambda: far.filter(col("id"))),
                (ValueError, "texts are compared with constants", lambda: far.filter(col("text") == col("text"))),
                (ValueError, "can be counted only", lambda: far.aggregate({"x": ("sum", "text")})),
                (ValueError, "no aggregate median", lambda: far.aggregate({"x": ("median", "id")})),
                (ValueError, "another type", lambda: far.join(far.select(["i8"]), "id", "i8")),
                (ValueError, "already has a column", lambda: far.join(far, "id")),
                (ValueError, "differ in number", lambda: far.join(far, ["id", "i8"], "id")),
                (ValueError, "no order", lambda: far.top_k(1, "id", "upwards")),
                (ValueError, "no place", lambda: fc.Table.from_arrow(table, place="there")),
                (IndexError, "row to take", lambda: far.take([100])),
                (OverflowError, "64 bits", lambda: far.filter(col("id") < 1 << 64)),
                (OverflowError, "64 bits", lambda: fc.Table.from_arrow(pa.table({"x": [1 << 62] * 3})).aggregate({"s": ("sum", "x")})),
                (TypeError, "no constant of an expression", lambda: far.filter(col("id") < None)),
                (TypeError, "no truth value", lambda: col("id") > 1 and col("id") < 3),
                (TypeError, "no table of Arrow", lambda: fc.Table.from_arrow([1])),
                (TypeError, "'c' has the type list", lambda: fc.Table.from_arrow(pa.table({"c": [[1], [2]]}))),
                (TypeError, "'c' has the type dictionary", lambda: fc.Table.from_arrow(pa.table({"c": pa.array(["a"]).dictionary_encode()}))),
                (TypeError, "'c' has the type large_string", lambda: fc.Table.from_arrow(pa.table({"c": pa.array(["a"], pa.large_string())})))):
            with self.assertRaisesRegex(error, text):
                call()
        is_served = "server" in PLACES
        server = fc.Table.from_arrow(make_table(20_000), place="server")
        with self.assertRaisesRegex(OSError, "larger than 1 MiB" if is_served else "no memory server offers calls"):
            server.group_by("id", {"sum": ("sum", "f64")})

    def test_columns_are_far(self):
        if not farside.is_active():
            self.skipTest("without Farside")
        size = 12 << 20
        far = fc.Table.from_arrow(pa.table({"i": np.arange(size)}), place=PLACES[0])
        self.assertGreater(farside.stats().far_bytes, 8 * size - farside.limit())
        self.assertEqual(far.aggregate({"s": ("sum", "i")}).to_arrow()["s"][0].as_py(), size * (size - 1) // 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
