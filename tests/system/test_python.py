"""python3 with a large dict, subprocesses, forks and threads."""
from pathlib import Path

from support import MIB, PYTHON, SHARES, SystemTest, environment, expand, main, variations, write_text

SIZE = 3 * MIB
PROGRAM = Path(__file__).parent / "programs/large_dict.py"


@expand
class PythonTest(SystemTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_text(cls.folder / "text", SIZE)

    @variations(SHARES)
    def test_large_dict(self, variation):
        command = [PYTHON, "-B", PROGRAM, self.folder / "text"]
        fixed = environment(PYTHONHASHSEED="0")
        self.same(variation, command, self.once("native", lambda: self.native(command, env=fixed)), env=fixed)


if __name__ == "__main__":
    main()
