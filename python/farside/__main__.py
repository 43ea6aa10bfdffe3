"""The console script `farside` and `python -m farside`. Both become the program `farside` of the wheel.

`python -m farside run [OPTIONS] job.py ARGS...` runs the script in this interpreter, and so do `-m MODULE` and `-c CODE`
in place of the script. The console script takes exactly the arguments of the program."""
import os
import sys

from ._installation import prefix


def is_for_interpreter(word: str) -> bool:
    return word in ("-m", "-c") or (word.endswith(".py") and not word.startswith("-"))


def with_interpreter(arguments: list[str]) -> list[str]:
    """The arguments with this interpreter before the script, if the program is a script."""
    begin = next((at for at, word in enumerate(arguments) if word == "--" or is_for_interpreter(word)), len(arguments))
    program = arguments[begin + 1:] if arguments[begin:begin + 1] == ["--"] else arguments[begin:]
    if not program or not is_for_interpreter(program[0]):
        return arguments
    return [*arguments[:begin], "--", sys.executable, *program]


def execute(arguments: list[str]) -> None:
    """Replaces this process by the program `farside`. Returns only by an error."""
    program = prefix / "bin/farside"
    try:
        os.execv(program, ["farside", *arguments])
    except OSError as error:
        sys.exit(f"farside: error: cannot execute {program}: {error.strerror}; install the wheel again: "
                 "pip install --force-reinstall farside")


def main() -> None:
    execute(sys.argv[1:])


if __name__ == "__main__":
    execute(with_interpreter(sys.argv[1:]))
