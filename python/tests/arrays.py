"""Far arrays and hints, which behave the same natively and under Farside."""
import errno
import gc
import os
import sys
import threading
import unittest

import farside
import numpy as np

MIB = 1 << 20


class ArraysTest(unittest.TestCase):
    def check_like(self, array, expected):
        self.assertEqual((array.dtype, array.shape, array.flags.c_contiguous, array.flags.f_contiguous),
                         (expected.dtype, expected.shape, expected.flags.c_contiguous, expected.flags.f_contiguous))
        np.testing.assert_array_equal(array, expected)
        self.assertTrue(array.flags.writeable and array.flags.aligned)

    def test_arrays_are_as_those_of_numpy(self):
        for shape in (0, 5, (), (3, 4), (2, 0, 3), (300, 1000), np.zeros(2).shape):
            for dtype in (float, np.int8, "c16", "S7", "M8[s]", [("a", "i4"), ("b", "f8")]):
                for order in ("C", "F"):
                    expected = np.zeros(shape, dtype, order)
                    self.check_like(farside.zeros(shape, dtype, order=order), expected)
                    self.check_like(farside.empty(shape, dtype, order=order, policy="lru"), expected)
        self.check_like(farside.full((2, 3), 7), np.full((2, 3), 7))
        self.check_like(farside.full((2, 3), [1, 2, 3], np.float32), np.full((2, 3), [1, 2, 3], np.float32))
        for array in (np.arange(24).reshape(2, 3, 4), np.arange(24.0).reshape(4, 6).T, np.arange(100)[::-7], np.array(3)):
            copy = farside.from_numpy(array)
            self.check_like(copy, np.array(array, order="K" if array.flags.fnc else "C"))
            self.assertFalse(np.shares_memory(copy, array))

    def test_a_view_keeps_the_memory_and_the_last_one_frees_it(self):
        for _ in range(80):  # more than there may be with a policy at a time
            array = farside.full(20_000, 3.0, policy="fifo")
            view = array[100:].reshape(-1, 2)[::2]
            del array
            gc.collect()
            self.assertEqual(view.sum(), 3.0 * view.size)

    def test_too_many_policies_and_too_much_memory_are_errors(self):
        with self.assertRaises(OSError) as error:
            farside.empty(1 << 50, np.int8)
        self.assertEqual(error.exception.errno, errno.ENOMEM)
        if farside.is_active():
            arrays = []
            with self.assertRaises(OSError) as error:
                while len(arrays) < 1000:
                    arrays.append(farside.empty(10, policy="lru"))
            self.assertEqual(error.exception.errno, errno.ENOSPC)

    def test_mistakes_are_refused(self):
        for error, call in ((TypeError, lambda: farside.empty(3, object)), (TypeError, lambda: farside.empty("3")),
                            (TypeError, lambda: farside.empty(3, [("a", "O")])), (ValueError, lambda: farside.empty(-1)),
                            (ValueError, lambda: farside.empty((2, -1))), (TypeError, lambda: farside.empty(2.5)),
                            (ValueError, lambda: farside.empty(3, policy="best")), (ValueError, lambda: farside.empty(3, order="X")),
                            (ValueError, lambda: farside.hint(np.zeros(3), "soon")), (TypeError, lambda: farside.hint([1, 2], "random")),
                            (TypeError, lambda: farside.hint(3, "random")), (TypeError, lambda: farside.prefetch([1, 2])),
                            (ValueError, lambda: farside.prefetch(np.zeros(9), [1, 3])), (ValueError, lambda: farside.prefetch(np.zeros(9), 3)),
                            (IndexError, lambda: farside.prefetch(np.zeros(9), (1, 2))), (ValueError, lambda: farside.limit("much")),
                            (ValueError, lambda: farside.limit(1)), (ValueError, lambda: farside.limit("1M")),
                            (ValueError, lambda: farside.limit(1 << 64)), (ValueError, lambda: farside.limit(-1))):
            with self.assertRaises(error):
                call()

    def test_hints_change_nothing(self):
        arrays = [farside.from_numpy(np.arange(MIB)), np.arange(MIB), np.arange(3), bytearray(b"abc" * MIB), 
                  np.arange(MIB).reshape(1024, 1024)[5:-5:3, ::-2], np.zeros(0), np.array(5)]
        for array in arrays:
            before = np.array(array)
            for advice in ("sequential", "random", "normal", "willneed", "dontneed"):
                farside.hint(array, advice)
            farside.prefetch(array)
            farside.prefetch(array, wait=True)
            self.assertTrue(np.array_equal(np.asarray(array), before))
        farside.prefetch(arrays[0], slice(10, 1000))
        farside.prefetch(arrays[0].reshape(1024, 1024), np.s_[:, :3], wait=True)
        farside.hint(memoryview(b"read-only" * 1000), "willneed")

    def test_other_libraries_use_the_memory_in_place(self):
        array = farside.zeros(1000)
        memoryview(array).cast("B")[0:8] = np.float64(2.5).tobytes()
        np.from_dlpack(array)[1] = 3.5
        self.assertEqual(array[:2].tolist(), [2.5, 3.5])

    def test_threads(self):
        def work(number):
            for _ in range(20):
                array = farside.full(50_000, number)
                farside.prefetch(array, wait=True)
                sums.append(int(array.sum()) == 50_000 * number)
        sums = []
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sums, [True] * 80)

    def test_a_child_has_its_own_copy(self):
        array = farside.full(100_000, 7)
        child = os.fork()
        if child == 0:
            array[:] = 8
            os._exit(0 if farside.zeros(10).sum() == 0 and array.sum() == 800_000 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(array.sum(), 700_000)


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
