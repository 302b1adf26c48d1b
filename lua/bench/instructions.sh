#!/bin/sh
# User-mode instructions that a request takes beyond the empty handler, by callgrind: the
# difference of two counts of one process, so that start and compilation do not count. It
# depends on no clock and repeats within a few instructions.
#
#   bench/instructions.sh [HANDLER...]     handlers: see conf.sh
#
# Prints "HANDLER N" for each. Bound: 550, for api, http, route, classic and handle.
set -e
here=$(cd "$(dirname "$0")" && pwd)
"$here/../install"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=${N:-5000} warm=4000

count() { # prints instructions a request, times 10
  mkdir -p "$dir/$1"
  "$here/conf.sh" "$dir/$1" "$1" > "$dir/$1/nginx.conf"
  valgrind --tool=callgrind --smc-check=all-non-file --callgrind-out-file="$dir/$1/out" \
    "$here/../../.cache/nginx/usr/sbin/nginx" -c "$dir/$1/nginx.conf" -e "$dir/$1/error.log" > "$dir/$1/log" 2>&1 &
  pid=$!
  tries=0
  until luajit "$here/requests.lua" "$dir/$1/http.sock" 1 2> /dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat "$dir/$1/log" "$dir/$1/error.log" >&2; exit 1; }
    sleep 0.1
  done
  luajit "$here/requests.lua" "$dir/$1/http.sock" $warm
  callgrind_control -d $pid > /dev/null 2>&1
  luajit "$here/requests.lua" "$dir/$1/http.sock" "$n"
  callgrind_control -d $pid > /dev/null 2>&1
  kill -TERM $pid
  wait $pid || true
  sed -n 's/^totals: //p; s/^summary: //p' "$dir/$1/out.2" | head -1 | awk -v n="$n" '{ printf "%d\n", $1 * 10 / n }'
}

[ $# -gt 0 ] || set -- api http route classic
empty=$(count empty)
for handler; do
  it=$(count "$handler")
  awk -v h="$handler" -v a="$it" -v b="$empty" 'BEGIN { printf "%s %d\n", h, (a - b) / 10 + 0.5 }'
done
