# A new data folder with a socket in this folder: load, index, join, sort, check. Prints the results of the queries.
set -e
user=$(id -un)
mariadb-install-db --no-defaults --user="$user" --datadir="$PWD/data" --auth-root-authentication-method=normal \
  --skip-test-db > install.log
mariadbd --no-defaults --user="$user" --datadir="$PWD/data" --socket="$PWD/socket" --skip-networking \
  --pid-file="$PWD/pid" --innodb-buffer-pool-size=128M --innodb-flush-log-at-trx-commit=0 \
  --innodb-use-native-aio=0 2> server.log &
client="mariadb --no-defaults --socket=$PWD/socket -u root -N -B"
for attempt in $(seq 300); do
  $client -e 'SELECT 1' > /dev/null 2>&1 && break
  kill -0 $! || { tail server.log >&2; exit 1; }
  sleep 0.1
done
$client <<'SQL'
CREATE DATABASE w; USE w;
CREATE TABLE t (i INT PRIMARY KEY, b INT, c VARCHAR(120)) ENGINE=InnoDB;
INSERT INTO t SELECT seq, seq * 7919 % 1000003, CONCAT(REPEAT('x', 60), ' entry ', seq * 31 % 99991)
  FROM seq_1_to_300000;
CREATE INDEX tb ON t(b);
CREATE INDEX tc ON t(c);
SELECT c, COUNT(*), SUM(b) FROM t GROUP BY c ORDER BY 2 DESC, 1 LIMIT 5;
SELECT COUNT(*), SUM(x.b) FROM t x JOIN t y ON x.b = y.i WHERE x.i % 7 = 0;
UPDATE t SET b = b + 1 WHERE i % 3 = 0;
DELETE FROM t WHERE i % 11 = 0;
SELECT MD5(GROUP_CONCAT(s ORDER BY s)) FROM (SELECT SUM(b) AS s FROM t GROUP BY i % 1000) q;
SET GLOBAL innodb_max_purge_lag_wait = 0;
CHECK TABLE t EXTENDED;
SHUTDOWN;
SQL
wait $!
echo "server: status $?"
