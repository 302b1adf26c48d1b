#!/bin/sh
# Finds traces in our files that LuaJIT aborts, by jit.v, in an nginx that counts requests and sends
# the counts. It begins after a warm-up, since LuaJIT compiles during the first thousands of
# requests. It prints the lines about aborted traces, and fails if there are any.
#
#   bench/aborts.sh [HANDLER...]     handlers: see conf.sh
set -e
here=$(cd "$(dirname "$0")" && pwd)
"$here/../install"
dir=$(mktemp -d)
luajit "$here/sink.lua" "$dir/sink.sock" &
sink=$!
trap 'kill $sink; rm -rf "$dir"' EXIT
export SERVER="unix:$dir/sink.sock"
export INTERVAL=0.02 JITV="$dir/jit.txt"
n=${N:-10000} warm=${WARM:-10000} # requests, with a flush every 20 ms

[ $# -gt 0 ] || set -- api http variable route classic handle options
status=0
for handler; do
  rm -f "$JITV"
  "$here/conf.sh" "$dir" "$handler" > "$dir/nginx.conf"
  "$here/../../.cache/nginx/usr/sbin/nginx" -c "$dir/nginx.conf" -e "$dir/error.log" &
  pid=$!
  until luajit "$here/requests.lua" "$dir/http.sock" 1 2> /dev/null; do sleep 0.1; done
  luajit "$here/requests.lua" "$dir/http.sock" "$warm"
  before=$(wc -l < "$JITV")
  luajit "$here/requests.lua" "$dir/http.sock" "$n"
  kill -TERM $pid
  wait $pid || true
  grep -q '\(freshet\|init_worker\).*return' "$JITV" || { echo "$handler: LuaJIT compiled nothing of our code"; status=1; }
  # LuaJIT must never abort traces of functions that requests call, and no trace of a flush after the
  # warm-up. The first request is an exception: it looks up nginx's C functions, and LuaJIT cannot look
  # up a symbol while it records a trace. It records so early when two loops share a hot counter.
  grep -e '---.*freshet\.\(counter\|gauge\|histogram\|http\)' "$JITV" |
    grep -v 'disabled for function\|symbol not in cache' && status=1
  tail -n +$((before + 1)) "$JITV" | grep -e '---.*\(freshet\|http\.lua\|flush\.lua\|text\.lua\|labels\.lua\|buckets\.lua\|socket\.lua\)' && { echo "$handler: a trace was aborted after the warm-up"; status=1; }
done
exit $status
