"""Differences between the list of system calls and a header are found."""
import unittest

from check_calls import differences

HEADER = "#define __NR_read 0\n#define __NR_write 1\n"


class Test(unittest.TestCase):
    def test_newer_calls_may_be_listed(self):
        self.assertEqual(differences([(0, "read"), (1, "write"), (470, "newer")], HEADER), [])

    def test_a_missing_call_and_another_name_are_found(self):
        self.assertEqual(len(differences([(1, "write")], HEADER)), 1)
        self.assertEqual(len(differences([(0, "read"), (1, "writev")], HEADER)), 1)

    def test_the_order_is_checked(self):
        self.assertEqual(len(differences([(1, "write"), (0, "read")], HEADER)), 1)
        self.assertEqual(len(differences([(0, "read"), (0, "read"), (1, "write")], HEADER)), 1)


if __name__ == "__main__":
    unittest.main()
