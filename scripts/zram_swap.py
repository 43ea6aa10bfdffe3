"""Swap by the kernel, for comparison: a compressed RAM disk (zram) as swap area, and a memory limit that makes a process
use it. Both are undone at the end of a `with` block."""
import os
import shutil
import subprocess
import time

CONTROL = "/sys/class/zram-control"
CGROUP = "/sys/fs/cgroup"
V1 = f"{CGROUP}/memory"
ABOVE_OTHER_SWAP = "32767"


def why_unavailable():
    """The reason why zram swap cannot be used here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if not os.path.exists(f"{CONTROL}/hot_add"):
        return "this kernel has no zram"
    for tool in ("mkswap", "swapon", "swapoff"):
        if not shutil.which(tool):
            return f"{tool} is missing"
    if not _is_v1() and "memory" not in _read(f"{CGROUP}/cgroup.controllers", ""):
        return "no memory cgroup"
    return None if os.access(V1 if _is_v1() else CGROUP, os.W_OK) else "cgroups cannot be changed here"


def areas():
    """The swap areas in use."""
    return [line.split()[0] for line in _read("/proc/swaps").splitlines()[1:]]


def _is_v1():
    return os.path.exists(f"{V1}/memory.limit_in_bytes")


def _read(path, default=None):
    try:
        with open(path, encoding="utf8") as file:
            return file.read().strip()
    except OSError:
        if default is None:
            raise
        return default


def _write(path, text):
    with open(path, "w", encoding="utf8") as file:
        file.write(str(text))


class ZramSwap:
    """A new zram device in use as swap, with the highest priority. Existing devices are not touched. algorithm: that of the
    kernel's choice, if none is given."""

    def __init__(self, size, algorithm=None):
        self.size, self.algorithm = size, algorithm
        self.number = None
        self.swapping = False

    @property
    def device(self):
        return f"/dev/zram{self.number}"

    def memory(self):
        """The bytes of its pages, of these compressed, and the memory that it takes."""
        return [int(number) for number in _read(f"/sys/block/zram{self.number}/mm_stat").split()[:3]]

    def __enter__(self):
        try:
            self.number = int(_read(f"{CONTROL}/hot_add"))  # reading it adds a device
            if self.algorithm:
                _write(f"/sys/block/zram{self.number}/comp_algorithm", self.algorithm)
            _write(f"/sys/block/zram{self.number}/disksize", self.size)
            subprocess.run(["mkswap", self.device], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["swapon", "-p", ABOVE_OTHER_SWAP, self.device], check=True)
            self.swapping = True
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.swapping:
            subprocess.run(["swapoff", self.device], check=True)
        if self.number is not None:
            _write(f"{CONTROL}/hot_remove", self.number)


class MemoryLimit:
    """A cgroup whose processes may have `limit` bytes resident and swap the rest. `launcher` precedes a command line."""

    def __init__(self, limit):
        self.limit = limit
        self.path = f"{V1 if _is_v1() else CGROUP}/farside-{os.getpid()}"
        self.launcher = ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', f"{self.path}/cgroup.procs"]

    def __enter__(self):
        if not _is_v1() and "memory" not in _read(f"{CGROUP}/cgroup.subtree_control"):
            _write(f"{CGROUP}/cgroup.subtree_control", "+memory")
        os.mkdir(self.path)
        try:
            _write(f"{self.path}/{'memory.limit_in_bytes' if _is_v1() else 'memory.max'}", self.limit)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        deadline = time.monotonic() + 10
        while True:
            try:
                return os.rmdir(self.path)
            except OSError:  # its last process has not quite ended
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
