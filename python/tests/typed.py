"""What mypy is to accept of the module's types. Not executed."""
from pathlib import Path

import farside
import farside.compute as fc
import numpy as np

stats: farside.Stats = farside.stats()
total: int = stats.near_bytes + stats.far_bytes + farside.limit() + farside.limit("1G")
share: float = farside.pressure(stats) + farside.pressure()
prefix: Path = farside.prefix
a = farside.zeros((2, 3), np.int32, policy="lru")
b: float = float(farside.from_numpy(a, policy="priority").sum() + farside.full(3, 1.5).max())
farside.hint(a, "sequential")
farside.hint(a, "dontneed")
farside.prefetch(a, slice(0, 1), wait=True)
farside.prefetch(bytearray(10))
with farside.allocator("2q"):
    c = np.zeros(3)
d = farside.mmap_file(prefix / "bin/farside", np.uint8, (2, 3), offset=1)
farside.write_file(d, "copy")
farside.init("2G", far="tcp://host:7000", token_file=prefix)
farside.hint(a, "soon")  # type: ignore[arg-type]
farside.empty(3, policy="best")  # type: ignore[arg-type]
t: fc.Table = fc.Table.from_arrow(None, place="server").filter((fc.col("x") + 1 > 2) & ~fc.col("y").is_null())
rows: int = t.group_by("x", {"n": "count", "m": ("mean", fc.col("y") / 2)}).top_k(3, "n").num_rows + len(t.sort_by([("x", "descending")]))
t.top_k(1, "x", "upwards")  # type: ignore[arg-type]
