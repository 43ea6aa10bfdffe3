"""The module in a process that does not run under Farside."""
import unittest

import farside


class NativeTest(unittest.TestCase):
    def test_there_are_no_statistics_and_there_is_no_limit(self):
        self.assertFalse(farside.is_active())
        for call in (farside.stats, farside.pressure, farside.limit, lambda: farside.limit("1G")):
            with self.assertRaisesRegex(RuntimeError, "start it by: farside run"):
                call()


if __name__ == "__main__":
    unittest.main()
