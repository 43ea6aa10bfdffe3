#!/usr/bin/env python3
"""Checks that an application computes the same result with and without hints and with any number of threads, and another
one with another seed. smoke_test.py PROGRAM [OPTION VALUE]...: options of the first run, such as `--verify on`, which
must not change the result."""
import json
import subprocess
import sys


def checksum(*options):
    line = subprocess.run([sys.argv[1], "--size", "4M", *options], check=True, capture_output=True, text=True).stdout
    figures = json.loads(line)
    assert figures["operations"] > 0 and figures["ops_per_s"] > 0, line
    return figures["checksum"]


first = checksum("--threads", "1", "--hints", "off", *sys.argv[2:])
for threads in "2", "3", "7":
    assert checksum("--threads", threads, "--hints", "on") == first, f"another result with hints and {threads} threads"
assert checksum("--seed", "2") != first, "the seed does not change the result"
assert subprocess.run([sys.argv[1], "--hints", "perhaps"], capture_output=True).returncode == 2
