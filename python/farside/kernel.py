"""A kernel for Jupyter that runs under `farside run`.

`python -m farside.kernel install [--local 4G] [--far ADDRESS] [--token-file FILE]` installs its specification, which runs
this interpreter. Needs ipykernel and jupyter_client."""
import argparse
import importlib
import json
import os
import select
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from ._arguments import flags


def specification(options: list[str], display_name: str) -> dict[str, Any]:
    """The contents of kernel.json."""
    launcher = [sys.executable, "-m", "farside", "run", "--quiet", *options]
    return {"argv": [*launcher, "-m", "farside.kernel", "run", "-f", "{connection_file}"], "display_name": display_name,
            "language": "python", "interrupt_mode": "message", "metadata": {"debugger": False}}


def install(arguments: argparse.Namespace) -> None:
    manager = importlib.import_module("jupyter_client.kernelspec").KernelSpecManager()
    importlib.import_module("ipykernel")
    options = flags({"--local": arguments.local, "--far": arguments.far, "--token-file": arguments.token_file})
    prefix = sys.prefix if arguments.sys_prefix else arguments.prefix
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(specification(options, arguments.display_name), indent=1)
        Path(folder, "kernel.json").write_text(text + "\n", encoding="utf-8")
        place = manager.install_kernel_spec(folder, arguments.name, user=prefix is None, prefix=prefix)
    print(f"installed the kernel {arguments.name!r} in {place}")


def end_with(process: int) -> None:
    """Ends this process when the other one has ended, which is Jupyter's: the launcher does not end with it."""
    try:
        select.select([os.pidfd_open(process)], [], [])
    except ProcessLookupError:
        pass
    os._exit(1)


def run(arguments: argparse.Namespace) -> None:
    """The kernel. ipykernel ends where its parent is not Jupyter; here the parent is the launcher."""
    if jupyter := int(os.environ.get("JPY_PARENT_PID", 0)):
        threading.Thread(target=end_with, args=(jupyter,), daemon=True).start()
        os.environ["JPY_PARENT_PID"] = str(os.getppid())
    importlib.import_module("ipykernel.kernelapp").launch_new_instance(argv=["-f", arguments.f])


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="python -m farside.kernel", description="A kernel for Jupyter that runs under Farside.")
    commands = whole.add_subparsers(required=True)
    installs = commands.add_parser("install", help="installs the kernel's specification, for this user by default")
    installs.set_defaults(call=install)
    for option, text in (("--local", "near memory, as of farside run"), ("--far", "memory servers, as of farside run"),
                         ("--token-file", "the file with their secret"), ("--prefix", "where to install, e.g. /usr/local")):
        installs.add_argument(option, help=text)
    installs.add_argument("--sys-prefix", action="store_true", help="install in this interpreter's environment")
    installs.add_argument("--name", default="farside", help="the kernel's name (default: farside)")
    installs.add_argument("--display-name", default="Python (far memory)", help="the name that Jupyter shows")
    runs = commands.add_parser("run", help="what the specification executes")
    runs.add_argument("-f", required=True, help="the connection file")
    runs.set_defaults(call=run)
    return whole


def main() -> None:
    arguments = parser().parse_args()
    try:
        arguments.call(arguments)
    except ModuleNotFoundError as error:
        sys.exit(f"farside: error: the Python module {error.name} is missing; install it: pip install 'farside[jupyter]'")
    except OSError as error:
        sys.exit(f"farside: error: {error.filename}: {error.strerror}; choose another place by --prefix or --sys-prefix")


if __name__ == "__main__":
    main()
