.bail on
CREATE TABLE t1(a INTEGER PRIMARY KEY, b INTEGER, c TEXT);
CREATE TABLE t2(a INTEGER, b INTEGER, c TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000)
INSERT INTO t1 SELECT i, i * 7919 % 1000003, printf('%.*c entry %d', 60, 'x', i * 31 % 99991) FROM n;
INSERT INTO t2 SELECT a, b, c FROM t1 ORDER BY b;
CREATE INDEX t2b ON t2(b);
CREATE INDEX t2c ON t2(c);
SELECT count(*), avg(b) FROM t1 WHERE b BETWEEN 1000 AND 90000;
SELECT count(*), sum(t1.b) FROM t1 JOIN t2 ON t1.b = t2.b WHERE t1.a % 7 = 0;
UPDATE t2 SET b = b * 2 WHERE a % 3 = 0;
DELETE FROM t1 WHERE b % 5 = 0;
SELECT c, count(*) FROM t2 GROUP BY substr(c, -3) ORDER BY 2 DESC, 1 LIMIT 10;
SELECT group_concat(c) IS NOT NULL, sum(length(c)) FROM t1;
VACUUM;
PRAGMA integrity_check;
SELECT sum(b), count(DISTINCT c) FROM t2;
