"""The module in a process with 48 MiB of near memory."""
import gc
import os
import time
import unittest

import farside
import numpy as np
from farside._process import share_lost

MIB = 1 << 20
LIMIT = 48 * MIB


class FarTest(unittest.TestCase):
    def setUp(self):
        farside.limit(LIMIT)

    def shrink(self, size):
        """Lowers the limit and waits until the process complies."""
        farside.limit(size)
        for _ in range(6000):
            if farside.stats().near_bytes <= size:
                return
            time.sleep(0.01)
        self.fail(f"{farside.stats()} a minute after the limit was lowered")

    def evict_all_but(self, size):
        self.shrink(size)
        farside.limit(LIMIT)

    def faults_of_reading(self, array):
        before = farside.stats().faults
        for begin in np.random.default_rng(1).permutation(array.size // 512) * 512:
            array[begin]
        return farside.stats().faults - before

    def test_statistics(self):
        self.assertTrue(farside.is_active())
        before = farside.stats()
        array = farside.full(96 * MIB // 8, 1.0)
        after = farside.stats()
        self.assertGreater(after.heap_bytes - before.heap_bytes, array.nbytes - MIB)
        self.assertLessEqual(after.near_bytes, after.near_limit_bytes)
        self.assertGreater(after.far_bytes, 32 * MIB)
        self.assertEqual(after.far_bytes, after.heap_bytes - after.near_bytes)
        self.assertGreater(after.faults, before.faults)
        self.assertEqual(array.sum(), array.size)
        del array
        gc.collect()
        self.assertLess(farside.stats().heap_bytes, after.heap_bytes - 95 * MIB)

    def test_pressure_is_the_time_in_faults_of_an_interval(self):
        array = farside.from_numpy(np.arange(2 * LIMIT // 8))
        before = farside.stats()
        self.assertGreater(self.faults_of_reading(array), 1000)
        after = farside.stats()
        lost, passed = after.fault_ns - before.fault_ns, after.time_ns - before.time_ns
        self.assertGreater(after.fetches - before.fetches, 1000)
        self.assertGreater(after.bytes_fetched - before.bytes_fetched, 1000 * 4096)
        self.assertGreater(lost, 0)
        self.assertLessEqual(lost, passed)  # one thread
        self.assertTrue(0 < farside.pressure(before) <= 1)
        self.assertTrue(0 < farside.pressure() <= 1)

    def test_pressure_is_that_of_the_thread_that_fetches_most(self):
        begin = farside.stats()
        for fault_ns, fetches, busiest, share in ((0, 0, 0, 0), (500, 10, 10, 0.5), (500, 10, 5, 0.25), (500, 10, 0, 0.5),
                                                  (500, 0, 0, 0.5), (4000, 10, 10, 1), (4000, 10, 1, 0.4)):
            end = begin._replace(fault_ns=begin.fault_ns + fault_ns, fetches=begin.fetches + fetches, time_ns=begin.time_ns + 1000,
                                 busiest_thread_fetches=begin.busiest_thread_fetches + busiest)
            self.assertAlmostEqual(share_lost(begin, end), share)
        self.assertEqual(share_lost(begin, begin), 0)

    def test_a_child_begins_with_no_costs(self):
        array = farside.from_numpy(np.arange(2 * LIMIT // 8))
        self.assertGreater(self.faults_of_reading(array), 1000)
        fetches = farside.stats().fetches
        child = os.fork()
        if child == 0:
            os._exit(0 if farside.stats().fetches < fetches and 0 <= farside.pressure() <= 1 else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_the_limit_is_set(self):
        self.assertEqual(farside.limit(), LIMIT)
        for given, bytes_ in ((32 * MIB, 32 * MIB), ("64M", 64 * MIB), ("0.5g", 512 * MIB), (" 24MiB ", 24 * MIB)):
            self.assertEqual(farside.limit(given), bytes_)
            self.assertEqual(farside.stats().near_limit_bytes, bytes_)

    def test_init_sets_the_limit(self):
        farside.init()
        self.assertEqual(farside.limit(), LIMIT)
        farside.init("64M", far="tcp://other:7000")
        self.assertEqual(farside.limit(), 64 * MIB)
        for given in (1, "much"):
            with self.assertRaises(ValueError):
                farside.init(given)

    def test_a_lower_limit_evicts(self):
        array = farside.full(2 * LIMIT // 8, 1.0)
        self.shrink(16 * MIB)
        self.assertEqual(array.sum(), array.size)

    def check_leaving_array(self, first):
        arrays = [farside.full(12 * MIB // 8, 3.0, policy="fifo") for _ in range(2)]
        leaving, kept = arrays[first], arrays[1 - first]
        farside.hint(leaving, "dontneed")
        filler = farside.zeros(16 * MIB // 8, policy="fifo")
        filler[np.random.default_rng(1).permutation(filler.size // 512) * 512] = 1.0  # no stream, which takes other huge pages
        self.assertLess(self.faults_of_reading(kept), 0.7 * self.faults_of_reading(leaving))
        self.assertEqual((leaving.sum(), kept.sum(), filler.sum()), (3.0 * kept.size, 3.0 * kept.size, filler.size // 512))

    def test_what_is_not_needed_soon_leaves_first(self):
        for first in (0, 1):
            self.check_leaving_array(first)

    def test_prefetching_saves_faults(self):
        array = farside.from_numpy(np.random.default_rng(1).permutation(20 * MIB // 8))
        self.evict_all_but(8 * MIB)
        expected = self.faults_of_reading(array)
        self.assertGreater(expected, 100)
        self.evict_all_but(8 * MIB)
        fetched = farside.stats().hints_fetched
        farside.prefetch(array, slice(0, array.size // 2), wait=True)
        farside.prefetch(array, slice(array.size // 2, None), wait=True)
        self.assertGreater(farside.stats().hints_fetched - fetched, 1000)
        self.assertLess(self.faults_of_reading(array), expected / 4)


if __name__ == "__main__":
    unittest.main()
