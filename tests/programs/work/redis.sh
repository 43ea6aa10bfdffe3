# redis-server on a socket in this folder: 400,000 values, hashes and lists, a snapshot by fork, and a restart from it.
set -e
start() {
  redis-server --port 0 --unixsocket "$PWD/socket" --save '' --enable-debug-command yes --dbfilename dump.rdb \
    --dir "$PWD" > server.log &
  for attempt in $(seq 600); do
    client ping 2> /dev/null | grep -q PONG && return
    sleep 0.2
  done
  tail server.log >&2
  exit 1
}
client() {
  redis-cli -s "$PWD/socket" "$@"
}
start
client --pipe < "$INPUT/commands" | grep -E 'errors'
client dbsize
client debug digest
client bgsave > /dev/null
while client info persistence | grep -q 'rdb_bgsave_in_progress:1'; do sleep 0.2; done
client info persistence | grep rdb_last_bgsave_status
client debug digest
client shutdown nosave
wait
start
client dbsize
client debug digest
client shutdown nosave
wait
