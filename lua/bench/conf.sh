#!/bin/sh
# Prints an nginx.conf for measurements: conf.sh DIR HANDLER
#
# All handlers start in the same way, so that memory has the same layout and only the log phase
# differs. nginx listens on LISTEN, by default the socket DIR/http.sock. SERVER and INTERVAL are
# options of the library, JITV is a file for the messages of jit.v, and GC_PAUSE is Lua's setpause
# in percent.
lua=$(cd "$(dirname "$0")/.." && pwd)
nginx=$(cd "$lua/.." && pwd)/.cache/nginx # see lua/install
dir=$1 handler=$2
case $handler in
none) unset log ;;                      # no log_by_lua_block
empty) log='' ;;                    # an empty log_by_lua_block
noop) log='noop()' ;;               # a call of a function that does nothing
read) log='read("home")' ;;         # reading method, status and latency, counting nothing
api) log='count("home")' ;;         # counter:inc and histogram:observe
http) log='http:log("home")' ;;     # resty.freshet.http
variable) log='http:log()' ;;       # the same, with the route in a variable
route) log='home()' ;;              # the same, by a function of the route
classic) log='classic()' ;;         # the same, with 12 classic buckets
handle) log='by_handle()' ;;        # two handles, of one fixed method and status
chosen) log='chosen()' ;;           # two handles, chosen by the request's method and status
block) log='requests:inc(1, "home", ngx.req.get_method(), ngx.status) latency:observe(latency_now(), "home", ngx.req.get_method(), ngx.status)' ;; # interpreted
options) log='everything:log("home")' ;; # http with upstream, bytes, cache, tls and trace
ipairs) log='first("home")' ;;      # techniques.lua: Kong's logger at first
loop) log='fixed("home")' ;;        # techniques.lua: Kong's logger later
*) echo "conf.sh: no handler $handler" >&2; exit 2 ;;
esac
cat <<EOF
load_module $nginx/usr/lib/nginx/modules/ndk_http_module.so;
load_module $nginx/usr/lib/nginx/modules/ngx_http_lua_module.so;
env JITV;
daemon off;
master_process off;
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
    collectgarbage("setpause", ${GC_PAUSE:-200})
    local file = os.getenv "JITV"
    if file and file ~= "" then
      require("jit.v").on(file)
    end
  }
  init_worker_by_lua_block {
    local metrics = assert(require("resty.freshet").new { server = "${SERVER:-127.0.0.1:9}", interval = ${INTERVAL:-60}, exemplars = true })
    local module = require "resty.freshet.http"
    http = assert(module.new(metrics))
    home = http:route "home"
    everything = assert(module.new(metrics, {
      prefix = "all.", upstream = true, bytes = true, cache = true, tls = true, trace = "\$request_id",
    }))
    classic = assert(module.new(metrics, {
      prefix = "classic.", buckets = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20 },
    })):route "home"
    local labels = { "route", "method", "status" }
    requests, latency = metrics:counter("requests", labels), metrics:histogram("latency", labels) -- global, for the handler block
    local requests, latency = requests, latency
    local get_method, now, start_time, band = ngx.req.get_method, ngx.now, ngx.req.start_time, bit.band
    -- Latencies from 1 ms to 7 s, in all buckets.
    local spread, turn = {}, 0
    for i = 0, 63 do
      spread[i] = 0.001 * 1.15 ^ i
    end
    function latency_now()
      turn = band(turn + 1, 63)
      return now() - start_time() + spread[turn]
    end
    local function nothing() end
    function noop() end
    function read(route)
      nothing(route, get_method(), ngx.status, latency_now())
    end
    function count(route)
      local method, status = get_method(), ngx.status
      requests:inc(1, route, method, status)
      latency:observe(latency_now(), route, method, status)
    end
    local requests_200, latency_200 = requests:with("home", "GET", 200), latency:with("home", "GET", 200)
    function by_handle()
      requests_200:inc(1)
      latency_200:observe(latency_now())
    end
    function chosen()
      if get_method() == "GET" and ngx.status == 200 then
        requests_200:inc(1)
        latency_200:observe(latency_now())
      else
        count("home")
      end
    end
    local techniques = require "bench.techniques"
    local bounds = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20 }
    local by_ipairs, by_loop = techniques.by_ipairs(bounds), techniques.by_loop(bounds)
    function first(route)
      by_ipairs(latency_now(), route, get_method(), ngx.status)
    end
    function fixed(route)
      by_loop(latency_now(), route, get_method(), ngx.status)
    end
  }
  exit_worker_by_lua_block { require("resty.freshet").exit() }
  server {
    listen ${LISTEN:-unix:$dir/http.sock};
    location / {
      set \$freshet_route home;
      return 200 "ok";
      ${log+log_by_lua_block { $log \}}
    }
  }
}
EOF
