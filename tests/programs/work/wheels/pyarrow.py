import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

rows = 1_500_000
table = pa.table({"i": pa.array(range(rows)), "name": pa.array(["name %d" % (i % 10_007) for i in range(rows)])})
table = table.append_column("value", pc.multiply(table["i"], 31))
sums = table.group_by("name").aggregate([("value", "sum"), ("i", "count")]).sort_by("name")
stream = io.BytesIO()
pq.write_table(table, stream, compression="zstd")
stream.seek(0)
back = pq.read_table(stream)
print(pa.default_memory_pool().backend_name, sums.slice(12, 3).to_pylist(), back.equals(table))
print(back.sort_by([("name", "descending"), ("i", "ascending")]).slice(777, 2).to_pylist())
