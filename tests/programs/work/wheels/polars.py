import polars as pl

rows = 2_000_000
frame = pl.DataFrame({"i": range(rows)}).with_columns(
    key=pl.col("i") * 7919 % 5003, value=pl.col("i") * 31 % 100_003, name=pl.format("name {}", pl.col("i") % 1009))
groups = frame.lazy().group_by("key").agg(pl.col("value").sum(), pl.col("name").n_unique()).sort("key").collect()
joined = frame.join(groups, on="key", suffix="_sum").sort(["value", "i"])
print(groups.head().rows(), joined.row(12345), joined["value_sum"].sum())
print(frame["name"].str.len_chars().sum(), frame.sort("name", "i").row(777_777))
