"""Arrays of NumPy by Farside's allocation handler, natively and under Farside."""
import asyncio
import contextlib
import gc
import os
import threading
import unittest

import farside
import numpy as np

try:
    from numpy._core.multiarray import get_handler_name
except ImportError:  # NumPy 1.26
    from numpy.core.multiarray import get_handler_name

LARGE = 100_000  # elements, more than 64 KiB


def heap():
    gc.collect()
    return farside.stats().heap_bytes if farside.is_active() else 0


class AllocatorTest(unittest.TestCase):
    def test_arrays_are_made_by_it_within_the_context_only(self):
        before, own = np.arange(LARGE), get_handler_name()
        with farside.allocator():
            self.assertEqual(get_handler_name(), "farside")
            made = [np.zeros(LARGE), np.ones(3), before + 1, np.sort(before[::-1]), np.empty((0, 3)), np.full((9, 9), 2)]
            with farside.allocator("lru"):
                made.append(np.arange(LARGE))
            made.append(np.array(5))
        self.assertEqual({get_handler_name(array) for array in made}, {"farside"})
        self.assertEqual((get_handler_name(), get_handler_name(before), get_handler_name(np.zeros(LARGE))), (own,) * 3)
        self.assertEqual((made[0].sum(), made[1].sum(), made[5].sum()), (0, 3, 162))
        self.assertTrue(np.array_equal(made[3], before) and np.array_equal(made[2] - 1, made[6]))

    def test_an_error_ends_the_context(self):
        own = get_handler_name()
        with contextlib.suppress(ZeroDivisionError), farside.allocator():
            print(1 / 0)
        self.assertEqual(get_handler_name(), own)
        with self.assertRaisesRegex(ValueError, "'best' is no policy; use 2q, "), farside.allocator("best"):
            pass
        self.assertEqual(get_handler_name(), own)

    def test_memory_is_zero_where_it_should_be_and_aligned(self):
        with farside.allocator():
            for _ in range(5):  # memory that was used before
                for size in (1, 1000, 8190, 8192, 8200, LARGE):
                    array = np.zeros(size)
                    self.assertFalse(array.any())
                    self.assertEqual(array.ctypes.data % 64, 0)
                    array[:] = 7

    def test_arrays_are_resized_within_and_after_the_context(self):
        with farside.allocator("fifo"):
            array = np.arange(10)
            array.resize(LARGE, refcheck=False)
            array[LARGE // 2:] = 3
        for size in (2 * LARGE, LARGE, 20, 5):
            array.resize(size, refcheck=False)
            self.assertEqual(array[:5].tolist(), [0, 1, 2, 3, 4])
            self.assertEqual(array[LARGE // 2:].sum(), 3 * (LARGE // 2) if size >= LARGE else 0)
        with farside.allocator():
            self.assertEqual(np.fromiter(range(LARGE), float).sum(), LARGE * (LARGE - 1) / 2)

    def test_the_memory_is_freed_after_the_context(self):
        begin = heap()
        with farside.allocator():
            arrays = [np.ones(LARGE * 10) for _ in range(8)]
        self.assertGreaterEqual(heap() - begin, 7 * 8 * 10 * LARGE if farside.is_active() else 0)  # other garbage may be freed
        del arrays
        self.assertLess(heap() - begin, 8 * LARGE * 10)

    def test_more_arrays_than_policies(self):
        with farside.allocator("lru"):
            arrays = [np.full(LARGE, number) for number in range(100)]
        self.assertEqual([int(array[-1]) for array in arrays], list(range(100)))

    def test_too_much_memory_is_an_error(self):
        with farside.allocator(), self.assertRaises(MemoryError):
            np.empty(1 << 50, np.int8)

    def test_other_threads_have_other_contexts(self):
        names = []

        def work(number):
            names.append(get_handler_name())
            for _ in range(50):
                with farside.allocator("lru" if number % 2 else None):
                    array = np.full(LARGE, number) + np.arange(LARGE)
                    names.append(get_handler_name(array))
                names.append(int(array[-1]) - number)
        with farside.allocator():
            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(names.count("farside"), 200)
        self.assertEqual(names.count(LARGE - 1), 200)
        self.assertEqual(names.count("default_allocator"), 4)

    def test_tasks_inherit_it(self):
        async def name():
            return get_handler_name()

        async def main():
            with farside.allocator():
                task = asyncio.create_task(name())
            return await task, await name()
        self.assertEqual(asyncio.run(main()), ("farside", "default_allocator"))

    def test_a_child_has_its_own_copy(self):
        with farside.allocator():
            array = np.full(LARGE, 7)
        child = os.fork()
        if child == 0:
            array[:] = 8
            array.resize(3, refcheck=False)
            os._exit(0 if array.sum() == 24 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(array.sum(), 7 * LARGE)


with farside.allocator("lru"):
    freed_at_exit = np.ones(LARGE)  # after the module of the handler is gone

if __name__ == "__main__":
    unittest.main()
