# A new cluster on a socket in this folder: load, vacuum, sort, aggregate, then pgbench. Prints what does not vary.
set -e
PATH=$(echo /usr/lib/postgresql/*/bin | tr ' ' :):$PATH
initdb -D data -A trust -U test --no-sync > /dev/null
echo "unix_socket_directories = '$PWD'
listen_addresses = ''
fsync = off
work_mem = 64MB
maintenance_work_mem = 64MB
max_parallel_workers_per_gather = 2" >> data/postgresql.conf
pg_ctl -D data -w -l log start > /dev/null
trap 'pg_ctl -D data -m immediate stop > /dev/null' EXIT
export PGHOST=$PWD PGUSER=test PGDATABASE=postgres
psql -qAt -v ON_ERROR_STOP=1 <<'SQL'
CREATE TABLE t AS SELECT i, (i::bigint * 7919 % 1000003)::int AS b, 'entry ' || (i * 31 % 99991) AS c
  FROM generate_series(1, 400000) i;
CREATE INDEX ON t(b);
CREATE INDEX ON t(c);
VACUUM ANALYZE t;
SELECT c, count(*), sum(b) FROM t GROUP BY c ORDER BY 2 DESC, 1 LIMIT 5;
SELECT count(*), sum(x.b) FROM t x JOIN t y ON x.b = y.i WHERE x.i % 7 = 0;
SELECT md5(string_agg(c, ',' ORDER BY b, i)) FROM t;
SQL
pgbench -q -i -s 2 2> /dev/null
pgbench -n -c 4 -j 2 -t 100 | grep -E 'transactions actually|failed'
psql -qAt -c 'SELECT count(*), (SELECT sum(abalance) FROM pgbench_accounts) = sum(delta) FROM pgbench_history'
trap - EXIT
pg_ctl -D data -w -m fast stop > /dev/null
pg_controldata data | grep 'cluster state'
