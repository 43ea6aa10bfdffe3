#!/usr/bin/env python3
"""An application computes the same with and without hints and with any number of threads; another seed gives another
result. smoke_test.py PROGRAM [OPTION VALUE]...: options for the first run, which must not change the result either, as
`--verify on`"""
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
    assert checksum("--threads", threads, "--hints", "on") == first, f"other results with hints and {threads} threads"
assert checksum("--seed", "2") != first, "the seed changes nothing"
assert subprocess.run([sys.argv[1], "--hints", "perhaps"], capture_output=True).returncode == 2
