"""Random sequences of calls on mappings: the same transcript natively and on far memory. Fixed seeds.

MAPPING_SEEDS="FIRST LAST" tries others: MAPPING_SEEDS="100 200" python3 tests/system/test_mapping_steps.py
"""
import os

from support import PROGRAMS, SMALL, SystemTest, expand, main, run, variations

SEQUENCES, STEPS = "6", "200"
FIRST, LAST = map(int, os.environ.get("MAPPING_SEEDS", "3 5").split())


@expand
class Test(SystemTest):
    @variations(SMALL)
    def test_steps(self, variation):
        for seed in range(FIRST, LAST + 1):
            with self.subTest(seed=seed):
                self.compare(variation, [PROGRAMS / "mapping_steps", str(seed), SEQUENCES, STEPS])

    def compare(self, variation, command):
        native, far = self.native(command, seconds=60), run([*variation.launcher("--quiet"), *command])
        self.assertEqual(far.status, 0, far.errors)
        # The first line that differs: the rest follows from it.
        for number, lines in enumerate(zip(native.output.splitlines(), far.output.splitlines()), 1):
            self.assertEqual(*lines, f"line {number}")
        self.assertEqual(len(native.output), len(far.output))


if __name__ == "__main__":
    main()
