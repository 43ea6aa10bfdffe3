"""Far copies of Arrow data, natively and under Farside."""
import decimal
import gc
import unittest

import farside
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COLUMNS = {
    "int": pa.array([1, None, 3, 4], pa.int16()),
    "bool": pa.array([True, None, False, True]),
    "float": pa.array([1.5, float("inf"), None, -0.0]),
    "text": pa.array(["a", None, "", "long " * 50]),
    "view": pa.array(["a", None, "", "long " * 50], pa.string_view()),
    "large": pa.array(["a", None, "", "b"], pa.large_string()),
    "binary": pa.array([b"12", b"34", None, b"56"], pa.binary(2)),
    "time": pa.array([0, 1, None, 3], pa.timestamp("us", "Europe/Berlin")),
    "decimal": pa.array([decimal.Decimal("1.25"), None, None, decimal.Decimal("-3.50")]),
    "list": pa.array([[1, 2], [], None, [3]]),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 4, "b": None}]),
    "map": pa.array([[("k", 1)], [], None, [("l", 2)]], pa.map_(pa.string(), pa.int8())),
    "dictionary": pa.array(["x", "y", None, "x"]).dictionary_encode(),
    "nested dictionary": pa.ListArray.from_arrays([0, 1, 1, 3, 4], pa.array(["x", "y", "x", "z"]).dictionary_encode()),
    "null": pa.nulls(4),
    "union": pa.UnionArray.from_sparse(pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, 3, 4]), pa.array(list("abcd"))]),
    "runs": pc.run_end_encode(pa.array([7, 7, 7, 8])),
}


def addresses(array):
    """Those of all buffers that are not empty."""
    inner = [array.dictionary] if isinstance(array, pa.DictionaryArray) else []
    return [buffer.address for buffer in array.buffers() if buffer and buffer.size] + [a for part in inner for a in addresses(part)]


class ArrowTest(unittest.TestCase):
    def check(self, data):
        copy = farside.from_arrow(data)
        self.assertIs(type(copy), type(data))
        copy.validate(full=True)
        self.assertTrue(copy.equals(data), data)
        if isinstance(data, (pa.Table, pa.RecordBatch)):
            self.assertTrue(copy.schema.equals(data.schema, check_metadata=True))
        return copy

    def test_copies_of_all_types_and_slices_are_equal(self):
        for name, array in COLUMNS.items():
            with self.subTest(name):
                for part in (array, array.slice(1, 2), array.slice(4), array.slice(0, 0)):
                    self.check(part)
                    self.check(pa.chunked_array([part, part], part.type))
                    self.check(pa.RecordBatch.from_arrays([part], ["c"]))
                self.check(pa.chunked_array([], array.type))

    def test_copies_of_tables_are_equal(self):
        table = pa.table(COLUMNS).replace_schema_metadata({"k": "v"})
        dictionaries = [pa.array(words).dictionary_encode() for words in (["x", "y"], ["y", "x", "z"])]
        for data in (table, table.slice(2), table.slice(4), table.select([]), pa.table({}), table.slice(0, 0),
                     pa.table({"c": pa.chunked_array(dictionaries), "d": pa.chunked_array([[1, 2, 3, 4], [5]])})):
            self.check(data)

    def test_buffers_are_copied_and_share_one_region(self):
        table = pa.table({"i": range(100_000), "t": ["text"] * 100_000})
        copy = farside.from_arrow(table, policy="lru")
        found = [address for column in copy.columns for chunk in column.chunks for address in addresses(chunk)]
        self.assertEqual(len(found), 3)
        self.assertLess(max(found) - min(found), copy.nbytes)
        self.assertFalse(set(found) & {a for column in table.columns for chunk in column.chunks for a in addresses(chunk)})

    def test_a_part_keeps_the_region_and_the_last_one_frees_it(self):
        for _ in range(80):  # more than there may be with a policy at a time
            column = farside.from_arrow(pa.table({"i": np.arange(20_000)}), policy="lru")["i"].slice(10, 5)
            gc.collect()
            self.assertEqual(pc.sum(column).as_py(), 60)

    def test_pyarrow_uses_far_arrays_in_place(self):
        array = farside.from_numpy(np.arange(100_000))
        self.assertEqual(pa.array(array).buffers()[1].address, array.ctypes.data)

    def test_a_table_may_be_larger_than_near_memory(self):
        size = 12 << 20
        copy = farside.from_arrow(pa.table({"i": np.arange(size)}))
        if farside.is_active():
            self.assertGreater(farside.stats().far_bytes, copy.nbytes - farside.limit())
        self.assertEqual(pc.sum(copy["i"]).as_py(), size * (size - 1) // 2)

    def test_mistakes_are_refused(self):
        for error, call in ((TypeError, lambda: farside.from_arrow([1, 2])), (TypeError, lambda: farside.from_arrow(np.zeros(3))),
                            (ValueError, lambda: farside.from_arrow(pa.array([1]), policy="best"))):
            with self.assertRaises(error):
                call()


if __name__ == "__main__":
    unittest.main()
