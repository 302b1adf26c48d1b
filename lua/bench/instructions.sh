#!/bin/sh
# Counts the user-mode instructions of a request beyond those of an empty handler, by callgrind. It
# takes the difference of two counts in one process, so that start and compilation do not count. It
# counts only nginx's Lua log handler, since the rest of a request varies with timing. Lua's garbage
# collector is off meanwhile: a cycle, which is mostly about garbage of nginx's Lua module, would
# fall into one count or another. So the result depends on no clock, and repeats within ten
# instructions.
#
#   bench/instructions.sh [HANDLER...]
#
# Prints "HANDLER N" for each. A handler is one of conf.sh, or
#
#   example           the nginx.conf of ../README.md, compared with the same file with empty
#                     handlers: prints "example/PATH N" for each of its locations
#   example_OPTION    its location /checkout, with an option of resty.freshet.http
#
# Bound: 550, for api, http, route, classic, handle, chosen and example.
set -e
export GC_PAUSE=10000
here=$(cd "$(dirname "$0")" && pwd)
"$here/../install"
nginx=$here/../../.cache/nginx/usr/sbin/nginx
dir=$(mktemp -d)
upstream=
trap '[ -z "$upstream" ] || kill $upstream; rm -rf "$dir"' EXIT
n=${N:-2000} warm=${WARM:-2000}

ask() { luajit "$here/requests.lua" "$@"; }

# await sends requests until one is answered.
await() { # await DIR PATH
  tries=0
  until ask "$1/http.sock" 1 "$2" 2> /dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { tail -n 20 "$1/log" "$1/error.log" >&2; ask "$1/http.sock" 1 "$2"; exit 1; }
    sleep 0.1
  done
}

# count prints, for each path, ten times the instructions per request with the nginx.conf in DIR.
count() { # count DIR PATH...
  at=$1
  shift
  valgrind --tool=callgrind --toggle-collect=ngx_http_lua_log_handler --smc-check=all-non-file --callgrind-out-file="$at/out" \
    "$nginx" -c "$at/nginx.conf" -e "$at/error.log" > "$at/log" 2>&1 &
  pid=$!
  await "$at" "$1"
  for path; do
    ask "$at/http.sock" "$warm" "$path"
    callgrind_control -d $pid > /dev/null 2>&1
    ask "$at/http.sock" "$n" "$path"
    callgrind_control -d $pid > /dev/null 2>&1
  done
  kill -TERM $pid
  wait $pid || true
  part=2 # odd parts are warm-ups, even ones count
  for path; do
    sed -n 's/^totals: //p; s/^summary: //p' "$at/out.$part" | head -1 | awk -v n="$n" '{ printf "%d\n", $1 * 10 / n }'
    part=$((part + 2))
  done
}

# handler prints the count of a handler of conf.sh.
handler() {
  mkdir -p "$dir/$1"
  "$here/conf.sh" "$dir/$1" "$1" > "$dir/$1/nginx.conf"
  count "$dir/$1" /
}

# start_upstream starts the upstream of the example.
start_upstream() {
  [ -z "$upstream" ] || return 0
  mkdir -p "$dir/upstream"
  "$here/conf.sh" "$dir/upstream" none > "$dir/upstream/nginx.conf"
  "$nginx" -c "$dir/upstream/nginx.conf" -e "$dir/upstream/error.log" > "$dir/upstream/log" 2>&1 &
  upstream=$!
  await "$dir/upstream" /
}

# example prints lines of "PATH N".
example() { # example OPTION PATH...
  option=$1
  shift
  for empty in '' 1; do
    at=$dir/example$option$empty
    mkdir -p "$at"
    ln -s "$dir/upstream/http.sock" "$at/upstream.sock"
    EMPTY=$empty "$here/example.sh" "$at" "$option" > "$at/nginx.conf"
    count "$at" "$@" > "$at/counts"
  done
  for path; do echo "$path"; done | paste -d ' ' - "$dir/example$option/counts" "$at/counts" |
    awk '{ printf "%s %d\n", $1, ($2 - $3) / 10 + 0.5 }'
}

[ $# -gt 0 ] || set -- api http route classic example
empty=
for handler; do
  case $handler in
  example)
    start_upstream
    example '' / /checkout /login | sed 's/^/example/'
    ;;
  example_*)
    start_upstream
    example "${handler#example_}" /checkout | sed "s/^[^ ]*/$handler/"
    ;;
  *)
    [ -n "$empty" ] || empty=$(handler empty)
    it=$(handler "$handler")
    awk -v h="$handler" -v a="$it" -v b="$empty" 'BEGIN { printf "%s %d\n", h, (a - b) / 10 + 0.5 }'
    ;;
  esac
done
