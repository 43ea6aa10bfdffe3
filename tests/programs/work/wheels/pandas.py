import io

import numpy as np
import pandas as pd

random = np.random.default_rng(3)
rows = 600_000
frame = pd.DataFrame({"key": random.integers(0, 5000, rows), "value": random.random(rows).round(6),
                      "name": ["name %d" % n for n in random.integers(0, 1000, rows)]})
groups = frame.groupby("key").agg({"value": ["sum", "max"], "name": "nunique"})
merged = frame.merge(groups.droplevel(0, axis=1).reset_index(), on="key").sort_values(["value", "key"])
text = frame.head(100_000).to_csv(index=False)
back = pd.read_csv(io.StringIO(text))
print(groups.head().to_string(), merged.iloc[[0, 777, -1]].to_string(), back.equals(frame.head(100_000)), sep="\n")
print(frame.pivot_table(index="name", values="value", aggfunc="mean").round(6).head().to_string())
