#!/usr/bin/env python3
"""Checks that the guard describes every system call of the installed kernel headers.

check_calls.py [--root ROOT] [--header FILE]    prints one line for each difference, and exits 1 on any

src/preload/guard/calls/system_calls.inc lists the calls of x86-64 by number and name. The header may be older than the list,
and then has fewer; it must not have others.
"""
import argparse
import re
import sys
from pathlib import Path

LIST = "src/preload/guard/calls/system_calls.inc"
HEADERS = ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h")
ROW = re.compile(r"^CALL\((\d+), (\w+)", re.MULTILINE)
NUMBER = re.compile(r"^#define __NR_(\w+)\s+(\d+)", re.MULTILINE)


def differences(listed, header):
    """listed: pairs of number and name; header: the text of unistd_64.h."""
    found = []
    numbers = [number for number, _ in listed]
    if numbers != sorted(set(numbers)):
        found.append(f"{LIST}: numbers are not in order, or occur twice")
    names = dict(listed)
    for name, number in NUMBER.findall(header):
        if names.get(int(number)) != name:
            found.append(f"{LIST}: {number} is {names.get(int(number), 'missing')}; the kernel's header has {name}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--header", type=Path)
    options = parser.parse_args()
    header = options.header or next((Path(h) for h in HEADERS if Path(h).exists()), None)
    if header is None:
        print("no asm/unistd_64.h is installed (linux-libc-dev): nothing to compare with")
        return 0
    listed = [(int(number), name) for number, name in ROW.findall((options.root / LIST).read_text(encoding="utf8"))]
    found = differences(listed, header.read_text(encoding="utf8"))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
