"""The module in a process that does not run under Farside."""
import unittest
from pathlib import Path
from unittest import mock

import farside


class NativeTest(unittest.TestCase):
    def test_there_are_no_statistics_and_there_is_no_limit(self):
        self.assertFalse(farside.is_active())
        for call in (farside.stats, farside.pressure, farside.limit, lambda: farside.limit("1G")):
            with self.assertRaisesRegex(RuntimeError, "start it by: farside run"):
                call()

    def test_init_names_the_command_that_starts_the_program(self):
        for words, command in ((["python", "job.py", "a b"], "python -m farside run OPTIONS job.py 'a b'"),
                               (["python", "-m", "job"], "python -m farside run OPTIONS -m job"),
                               (["python", "-B", "job.py"], "farside run OPTIONS -- python -B job.py"),
                               (["python"], "python -m farside run OPTIONS job.py")):
            for arguments, options in (({}, ""), ({"local": "2G"}, "--local 2G "),
                                       ({"local": 1 << 30, "far": "tcp://host:7000", "token_file": Path("a b")},
                                        "--local 1073741824 --far tcp://host:7000 --token-file 'a b' ")):
                with mock.patch("sys.orig_argv", words), self.assertRaises(RuntimeError) as error:
                    farside.init(**arguments)
                self.assertEqual(str(error.exception).split("start it by: ")[1], command.replace("OPTIONS ", options))
        with self.assertRaises(ValueError):
            farside.init("much")


if __name__ == "__main__":
    unittest.main()
