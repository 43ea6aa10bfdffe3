import duckdb

base = duckdb.connect(":memory:")
base.execute("PRAGMA threads=2")
base.execute("""CREATE TABLE t AS SELECT i, i * 7919 % 1000003 AS b, 'entry ' || (i * 31 % 99991) AS c
                FROM range(2000000) n(i)""")
print(base.execute("SELECT c, count(*), sum(b) FROM t GROUP BY c ORDER BY 2 DESC, 1 LIMIT 5").fetchall())
print(base.execute("SELECT count(*), sum(x.b) FROM t x JOIN t y ON x.b = y.i WHERE x.i % 7 = 0").fetchall())
print(base.execute("SELECT * FROM t ORDER BY c, b DESC LIMIT 3 OFFSET 777777").fetchall())
print(base.execute("SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY c ORDER BY b) r FROM t)").fetchall())
