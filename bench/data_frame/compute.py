"""Prints the times of group-bys and aggregates of one far table: by farside.compute on the memory server and near, and by
pyarrow.compute, which pulls the pages, in turn. Run it with the wheel under Farside, with a server that executes functions:

farside run --local 25% --far tcp://127.0.0.1:7170 --token-file FILE -- python compute.py [ROWS [ROUNDS]]"""
import statistics
import sys
import time

import farside.compute as fc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 16_000_000
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5


def make_table():
    random = np.random.default_rng(1)
    return pa.table({"key": random.integers(0, 1000, ROWS).astype(np.int32), "value": random.normal(size=ROWS)})


def queries(table, shared):
    """By name: the operator on the far table, and pyarrow's on its columns."""
    return {"group by": (lambda: table.group_by("key", {"mean": ("mean", "value")}).num_rows,
                         lambda: pa.TableGroupBy(shared, ["key"], use_threads=False).aggregate([("value", "mean")]).num_rows),
            "aggregate": (lambda: table.aggregate({"sum": ("sum", "value"), "max": ("max", "key")}).num_rows,
                          lambda: (pc.sum(shared["value"]), pc.max(shared["key"])) and 1)}


def seconds_of(query):
    begin = time.monotonic()
    assert query() > 0
    return time.monotonic() - begin


def main():
    server = fc.Table.from_arrow(make_table(), place="server")
    near = fc.Table(server._frame, "near")
    for name, (on_server, by_pyarrow) in queries(server, server.to_arrow()).items():
        ways = {"server": on_server, "near": queries(near, near.to_arrow())[name][0], "pyarrow": by_pyarrow}
        times = {way: [] for way in ways}
        for _ in range(1 + ROUNDS):
            for way, query in ways.items():
                times[way].append(seconds_of(query))
        middle = {way: statistics.median(measured[1:]) for way, measured in times.items()}
        print(f"{name}: " + ", ".join(f"{way} {value:.3f} s ({value / middle['pyarrow']:.2f})" for way, value in middle.items()), flush=True)


main()
