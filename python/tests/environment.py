"""The virtual environment with the wheel that is tested, and packages from PyPI."""
import os
import subprocess
import sys
from pathlib import Path

PACKAGES = ["numpy", "mypy~=2.0", "pyarrow", "duckdb", "ipython", "ipykernel", "jupyter_client"]


class Environment:
    """The virtual environment of all tests. No program of the machine is in its PATH, so nothing needs a compiler."""
    folder = wheel = None

    @classmethod
    def create(cls, folder, wheel):
        cls.folder, cls.wheel = folder / "venv", wheel
        subprocess.run([sys.executable, "-m", "venv", cls.folder], check=True)
        pip = [cls.folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-index", wheel], check=True)
        subprocess.run([*pip, *PACKAGES], check=True)

    @classmethod
    def run(cls, *command, status=0, **options):
        """What the command prints, where it has to exit with `status`."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("FARSIDE_", "PYTHON"))}
        done = subprocess.run([cls.folder / "bin" / command[0], *command[1:]], capture_output=True, text=True, check=False,
                              timeout=120, env=clean | {"PATH": str(cls.folder / "bin"), "HOME": str(cls.folder)}, **options)
        if done.returncode != status:
            raise AssertionError(f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout if status == 0 else done.stderr

    @classmethod
    def prefix(cls):
        return Path(cls.run("python", "-c", "import farside; print(farside.prefix)").strip())
