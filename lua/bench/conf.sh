#!/bin/sh
# Prints an nginx.conf for measurements: conf.sh DIR HANDLER [LUA_DIR]
#
# All handlers have the same start, so that memory is laid out alike and only the log phase
# differs. PORT, SERVER, INTERVAL and MASTER come from the environment; JITV names a file for
# the messages of jit.v.
nginx=$(cd "$(dirname "$0")/../.." && pwd)/.cache/nginx # see lua/install
dir=$1 handler=$2 lua=${3:-$(cd "$(dirname "$0")/.." && pwd)}
case $handler in
empty) log='' ;;                    # log_by_lua_block without a word
noop) log='noop()' ;;               # a call of a function that does nothing
read) log='read("home")' ;;         # reading method, status and latency, counting nothing
api) log='count("home")' ;;         # counter:inc and histogram:observe
http) log='http:log("home")' ;;     # resty.freshet.http
variable) log='http:log()' ;;       # the same, with the route in a variable
route) log='home()' ;;              # the same, by a function of the route
classic) log='classic()' ;;         # the same, with 12 classic buckets
handle) log='by_handle()' ;;        # two handles
*) echo "conf.sh: no handler $handler" >&2; exit 2 ;;
esac
cat <<EOF
load_module $nginx/usr/lib/nginx/modules/ndk_http_module.so;
load_module $nginx/usr/lib/nginx/modules/ngx_http_lua_module.so;
env JITV;
daemon off;
master_process ${MASTER:-off};
worker_processes 1;
user root;
pid $dir/nginx.pid;
error_log $dir/error.log warn;
events { worker_connections 256; }
http {
  access_log off;
  keepalive_requests 1000000000;
  lua_package_path "$lua/?.lua;$nginx/usr/share/lua/5.1/?.lua;;";
  client_body_temp_path $dir/body;
  proxy_temp_path $dir/proxy;
  fastcgi_temp_path $dir/fastcgi;
  uwsgi_temp_path $dir/uwsgi;
  scgi_temp_path $dir/scgi;
  init_by_lua_block {
    local file = os.getenv "JITV"
    if file and file ~= "" then
      require("jit.v").on(file)
    end
  }
  init_worker_by_lua_block {
    local metrics = assert(require("resty.freshet").new { server = "${SERVER:-127.0.0.1:9}", interval = ${INTERVAL:-60} })
    local module = require "resty.freshet.http"
    http = assert(module.new(metrics))
    home = http:route "home"
    classic = assert(module.new(metrics, {
      prefix = "classic.", buckets = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20 },
    })):route "home"
    local labels = { "route", "method", "status" }
    local requests, latency = metrics:counter("requests", labels), metrics:histogram("latency", labels)
    local get_method, now, start_time = ngx.req.get_method, ngx.now, ngx.req.start_time
    local function nothing() end
    function noop() end
    function read(route)
      nothing(route, get_method(), ngx.status, now() - start_time())
    end
    function count(route)
      local method, status = get_method(), ngx.status
      requests:inc(1, route, method, status)
      latency:observe(now() - start_time(), route, method, status)
    end
    local requests_200, latency_200 = requests:with("home", "GET", 200), latency:with("home", "GET", 200)
    function by_handle()
      requests_200:inc(1)
      latency_200:observe(now() - start_time())
    end
  }
  exit_worker_by_lua_block { require("resty.freshet").exit() }
  server {
    listen 127.0.0.1:${PORT:-18080};
    location / {
      set \$freshet_route home;
      return 200 "ok";
      log_by_lua_block { $log }
    }
  }
}
EOF
