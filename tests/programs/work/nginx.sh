# nginx with two workers on a socket in this folder: files, compressed files, byte ranges, and a proxy to itself.
set -e
mkdir files logs
cp "$INPUT/text" files/text
cat > nginx.conf <<CONF
user $(id -un);
daemon off;
worker_processes 2;
pid $PWD/pid;
error_log $PWD/logs/error;
events { worker_connections 64; }
http {
  access_log off;
  client_body_temp_path $PWD/logs/body; proxy_temp_path $PWD/logs/proxy; fastcgi_temp_path $PWD/logs/f;
  uwsgi_temp_path $PWD/logs/u; scgi_temp_path $PWD/logs/s;
  gzip_types *; gzip_min_length 1;
  server { listen unix:$PWD/socket; root $PWD/files; gzip on; gzip_buffers 512 64k; gzip_comp_level 6; }
  server { listen unix:$PWD/front; location / { proxy_pass http://unix:$PWD/socket; proxy_buffers 512 64k;
    proxy_busy_buffers_size 16m; } }
}
CONF
nginx -c "$PWD/nginx.conf" -p "$PWD" 2> /dev/null &
for attempt in $(seq 600); do [ -S front ] && break; sleep 0.05; done
fetch() {
  curl -s --unix-socket "$@" http://localhost/text | sha256sum
}
fetch front
fetch socket --compressed
fetch socket -r 1000000-3000000
for round in 1 2 3 4; do fetch front --compressed > "out$round" & clients="$clients $!"; done
wait $clients
cat out?
kill -QUIT "$(cat pid)"
wait
