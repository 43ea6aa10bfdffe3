"""Far arrays of files, natively and under Farside."""
import tempfile
import unittest
from pathlib import Path

import farside
import numpy as np

MIB = 1 << 20


class FilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.path = self.folder / "file"

    def test_an_array_has_the_content_of_the_file(self):
        content = np.random.default_rng(1).bytes(5 * MIB + 24)
        self.path.write_bytes(content)
        self.assertEqual(farside.mmap_file(self.path).tobytes(), content)
        self.assertEqual(farside.mmap_file(str(self.path), np.int64).tolist(), np.frombuffer(content, np.int64).tolist())
        for dtype, shape, offset, order in (("f4", (1000, 31), 0, "C"), ("f4", (31, 1000), 3, "F"), ("c16", 7, MIB + 1, "C"),
                                            ([("a", "u1"), ("b", "i4")], (2, MIB // 2), 24, "C"), ("S5", (), 5 * MIB, "C"),
                                            ("M8[s]", (3, 2, 5), 8, "F"), ("i2", (0, 3), len(content), "C")):
            array = farside.mmap_file(self.path, dtype, shape, offset=offset, order=order, policy="lru")
            expected = np.ndarray(shape, dtype, content, offset, order=order)
            self.assertEqual((array.dtype, array.shape, array.flags.fnc), (expected.dtype, expected.shape, expected.flags.fnc))
            self.assertEqual(array.tobytes("A"), expected.tobytes("A"))

    def test_writes_reach_the_file_on_request_only(self):
        numbers = np.arange(MIB // 2)
        numbers.tofile(self.path)
        array = farside.mmap_file(self.path, np.int64, (MIB // 4,), offset=8 * 1000)
        array += 1
        self.assertEqual(np.fromfile(self.path, np.int64).tolist(), numbers.tolist())
        farside.write_file(array, self.path, offset=8 * 1000)
        numbers[1000:1000 + MIB // 4] += 1
        self.assertEqual(np.fromfile(self.path, np.int64).tolist(), numbers.tolist())
        self.path.unlink()
        self.assertEqual(array[0], 1001)

    def test_arrays_of_all_kinds_are_written(self):
        for array in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array(3), np.zeros(0),
                      np.array(["2020-01-01"], "M8[D]"), np.zeros(2, [("a", "u1"), ("b", "i4")]), farside.full(MIB, 3.5)):
            self.path.unlink(missing_ok=True)
            farside.write_file(array, self.path)
            self.assertEqual(self.path.read_bytes(), array.tobytes("A"))
            order = "C" if array.flags.c_contiguous else "F"
            np.testing.assert_array_equal(farside.mmap_file(self.path, array.dtype, array.shape, order=order), array)

    def test_mistakes_are_refused(self):
        self.path.write_bytes(b"0123456789")
        for error, message, call in (
                (FileNotFoundError, "nothing", lambda: farside.mmap_file(self.folder / "nothing")),
                (IsADirectoryError, str(self.folder), lambda: farside.mmap_file(self.folder)),
                (ValueError, "10 bytes are no multiple of the dtype's 8", lambda: farside.mmap_file(self.path, float)),
                (ValueError, "0 bytes from the offset on", lambda: farside.mmap_file(self.path, "u1", 1, offset=11)),
                (ValueError, r"file: 8 bytes from the offset on, but the shape \(2, 5\) needs 10",
                 lambda: farside.mmap_file(self.path, "u1", (2, 5), offset=2)),
                (ValueError, "negative: -1", lambda: farside.mmap_file(self.path, offset=-1)),
                (ValueError, "negative dimensions", lambda: farside.mmap_file(self.path, shape=-1)),
                (ValueError, "no policy", lambda: farside.mmap_file(self.path, policy="best")),
                (TypeError, "Python objects", lambda: farside.mmap_file(self.path, object, 1)),
                (TypeError, "not understood|data type", lambda: farside.mmap_file(self.path, "nothing")),
                (ValueError, "no multiple of the dtype's 0", lambda: farside.mmap_file(self.path, "V0")),
                (FileNotFoundError, "nothing", lambda: farside.write_file(np.zeros(3), self.folder / "nothing/file")),
                (ValueError, "not contiguous", lambda: farside.write_file(np.zeros(9)[::2], self.path)),
                (ValueError, "negative: -3", lambda: farside.write_file(np.zeros(9), self.path, offset=-3)),
                (TypeError, "Python objects", lambda: farside.write_file(np.zeros(3, object), self.path))):
            with self.assertRaisesRegex(error, message):
                call()
        self.assertEqual(self.path.read_bytes(), b"0123456789")

    def test_a_file_may_be_larger_than_near_memory(self):
        with open(self.path, "wb") as file:
            for number in range(96):
                np.full(MIB // 8, number).tofile(file)
        before = farside.stats() if farside.is_active() else None
        array = farside.mmap_file(self.path, np.int64)
        if before:
            after = farside.stats()
            self.assertLessEqual(after.near_bytes, after.near_limit_bytes)
            self.assertGreater(after.heap_bytes - before.heap_bytes, 90 * MIB)
            self.assertGreater(after.bytes_written - before.bytes_written, 32 * MIB)
        self.assertEqual(int(array.sum()), MIB // 8 * 95 * 96 // 2)
        farside.write_file(array, self.folder / "copy")
        self.assertEqual((self.folder / "copy").read_bytes(), self.path.read_bytes())


if __name__ == "__main__":
    unittest.main()
