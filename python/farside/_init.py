"""Programs that require Farside, and how they are started."""
import os
import shlex
import sys

from ._arguments import flags
from ._process import is_active, limit, parse_size


def _command(options: dict[str, str | None]) -> str:
    """The command that starts this program again under Farside, with the options that are given."""
    program = sys.orig_argv[1:] or ["job.py"]
    is_script = program[0] in ("-m", "-c") or program[0].endswith(".py")
    return shlex.join(["python", "-m", "farside", "run", *flags(options), *program] if is_script else
                      ["farside", "run", *flags(options), "--", "python", *program])


def init(local: int | str | None = None, far: str | None = None,
         token_file: str | os.PathLike[str] | None = None) -> None:
    """Requires that this process runs under `farside run`, and sets its limit of near memory.

    local: the limit, in bytes or as a text as "2G"; None: as it is. far, token_file: the memory servers and the file of
    their token, which the process has to be started with; here they are for the message only.

    A running process cannot be attached: Farside has to see each thread, each system call and malloc from the first on.
    So where this one runs without it, the RuntimeError has the command that starts the program under Farside with these
    options: programs begin with `farside.init(...)` where they would not fit otherwise.

    Raises RuntimeError as said, ValueError for a limit of less than 8 MiB or a text that is no size. Thread-safe."""
    size = None if local is None else parse_size(local)
    if is_active():
        limit(size)
        return
    options = {"--local": None if local is None else str(local), "--far": far,
               "--token-file": None if token_file is None else os.fspath(token_file)}
    if "ipykernel" in sys.modules:
        raise RuntimeError("this notebook does not run under Farside, and a running kernel cannot be attached; make a "
                           f"kernel by: {shlex.join(['python', '-m', 'farside.kernel', 'install', *flags(options)])}")
    raise RuntimeError("this process does not run under Farside, and a running process cannot be attached; start it by: "
                       f"{_command(options)}")
