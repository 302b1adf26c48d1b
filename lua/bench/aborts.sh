#!/bin/sh
# Traces in our files that LuaJIT gives up, in an nginx under load that sends what it counts,
# by jit.v. What is looked at begins after a warm-up: compiling is a matter of the first
# thousands of requests. Prints such lines, and fails if there are any.
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
n=${N:-10000} warm=${WARM:-10000} # requests; a flush each 20 ms meanwhile

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
  grep -q '\(freshet\|init_worker\).*return' "$JITV" || { echo "$handler: nothing of ours was compiled"; status=1; }
  # What requests call must not be given up at any time; what flushes call, not after warm-up.
  grep -e '---.*freshet\.\(counter\|gauge\|histogram\|http\)' "$JITV" | grep -v 'disabled for function' && status=1
  tail -n +$((before + 1)) "$JITV" | grep -e '---.*\(freshet\|http\.lua\|flush\.lua\|text\.lua\|labels\.lua\|buckets\.lua\|socket\.lua\)' && { echo "$handler: given up after warm-up"; status=1; }
done
exit $status
