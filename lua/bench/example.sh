#!/bin/sh
# Prints the nginx.conf of ../README.md, changed so that it can be measured: example.sh DIR [WITH]
#
# It runs as one process, listens on DIR/http.sock, and has an upstream on DIR/upstream.sock. WITH is
# an option of resty.freshet.http to turn on, or none. EMPTY=1 makes its log handlers empty. SERVER,
# INTERVAL, JITV and GC_PAUSE are as in conf.sh. It fails if a text to change is not found, so that
# the README's example is what is measured.
set -e
lua=$(cd "$(dirname "$0")/.." && pwd)
nginx=$(cd "$lua/.." && pwd)/.cache/nginx # see lua/install
dir=$1 with=${2-}
awk '/^```nginx$/ { inside = 1; next } /^```$/ { inside = 0 } inside' "$lua/README.md" > "$dir/example.conf"

change() { # change WHAT INTO: every line that has WHAT
  grep -qF -e "$1" "$dir/example.conf" || { echo "example.sh: ../README.md has no \"$1\" any more" >&2; exit 1; }
  awk -v what="$1" -v into="$2" '
    { while (at = index($0, what)) { printf "%s", substr($0, 1, at - 1) into; $0 = substr($0, at + length(what)) } print }
  ' "$dir/example.conf" > "$dir/changed.conf"
  mv "$dir/changed.conf" "$dir/example.conf"
}

change 'load_module modules/' "load_module $nginx/usr/lib/nginx/modules/"
change 'worker_processes auto;' "env JITV; daemon off; master_process off; user root; pid $dir/nginx.pid; error_log $dir/error.log warn;"
change 'lua_package_path "/opt/freshet/lua/?.lua;;";' "
  lua_package_path \"$lua/?.lua;$nginx/usr/share/lua/5.1/?.lua;;\";
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path $dir/body;
  proxy_temp_path $dir/proxy;
  fastcgi_temp_path $dir/fastcgi;
  uwsgi_temp_path $dir/uwsgi;
  scgi_temp_path $dir/scgi;
  init_by_lua_block {
    collectgarbage(\"setpause\", ${GC_PAUSE:-200})
    local file = os.getenv \"JITV\"
    if file and file ~= \"\" then
      require(\"jit.v\").on(file)
    end
  }"
change 'unix:/run/freshet/dogstatsd.sock",' "${SERVER:-127.0.0.1:9}\", interval = ${INTERVAL:-60}, exemplars = true,"
change 'server 127.0.0.1:3000;' "server unix:$dir/upstream.sock; keepalive_requests 1000000000;"
change 'listen 8080;' "listen unix:$dir/http.sock;"
case $with in
'') ;;
trace) change '.new(metrics)' '.new(metrics, { trace = "$request_id" })' ;;
cache)
  change '.new(metrics)' '.new(metrics, { cache = true })'
  change 'proxy_http_version 1.1;' "proxy_cache_path $dir/cache keys_zone=all:1m; proxy_cache all; proxy_cache_valid 1h; proxy_http_version 1.1;"
  ;;
*) change '.new(metrics)' ".new(metrics, { $with = true })" ;;
esac
if [ "${EMPTY-}" ]; then
  awk '/^ *log_by_lua_block \{$/ { print; inside = 1; next } inside && /^ *\}$/ { inside = 0 } !inside' "$dir/example.conf"
else
  cat "$dir/example.conf"
fi
