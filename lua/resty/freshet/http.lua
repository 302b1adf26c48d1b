--- The usual metrics of requests in one line: their number and their latency, by route, method and
-- status. Other metrics are options, because reading their variables costs more than counting.
local ffi = require "ffi"
local allocate = require "resty.freshet.memory"

local ngx = ngx
local type, tonumber = type, tonumber

local _M = {}

-- Known methods. All other methods have number 0, "other": otherwise a client could send any text as
-- its method, and each text would become a label value.
local METHODS = { [0] = "other", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE" }
local METHOD = {}
for i, name in pairs(METHODS) do
  METHOD[name] = i
end

-- An array has the ids of label sets by route, method and status, so a request looks up only its
-- route. An id takes 4 bytes, and only pages in use take memory: 4 KiB for two methods of a route.
-- Label sets of routes beyond the first ROUTES are found by name.
local ROUTES = 1024
local STATUSES = 512 -- how many statuses, from 100 on
local PER_ROUTE = 16 * STATUSES

local LABELS = { "route", "method", "status" }
local BYTES = { from = 0, to = 40 } -- up to 1 TiB, in buckets of schema 1

---@class freshet.http.Options
---@field route? string|fun(): string?  a variable or a function, but never the raw URI; default "$freshet_route"
---@field prefix? string                the beginning of the names; default "http."
---@field schema? integer               the schema of the latencies; default 3
---@field buckets? number[]             the buckets of the latencies, which are then classic histograms
---@field upstream? boolean             http.upstream.duration, the time of all upstreams together
---@field bytes? boolean                http.response.bytes and http.request.bytes
---@field cache? boolean                http.cache by route and status of nginx's cache
---@field tls? boolean                  http.tls by protocol and cipher; "none" without TLS
---@field trace? string|fun(): string?  a variable or function with a trace id, for exemplars

---@class freshet.http
---@field log fun(self, route: string?)  for log_by_lua_block; a given route is used in place of the variable
local Http = {}
Http.__index = Http

--- route returns a function for the log_by_lua_block of one route, which need not look up the route.
---@param name string
---@return fun()
function Http:route(name)
  return self.logger(name)
end

-- Source of the function that each request calls. It is loaded anew for each route, because functions
-- loaded from the same source at once share machine code, which would have to check for which function
-- it runs.
local LOG = [[
local env = ...
local bases, base_of, read, room = env.bases, env.base_of, env.read, env.room
local ids, miss, place, METHOD, METHODS = env.ids, env.miss, env.place, env.METHOD, env.METHODS
local count, observe, observe_traced, trace, more = env.count, env.observe, env.observe_traced, env.trace, env.more
local route_name, route_base = env.name, env.base
local ngx, get_method, now, start_time = ngx, ngx.req.get_method, ngx.now, ngx.req.start_time
return function(PARAMS)
  ROUTE
  local method, status = METHOD[get_method()] or 0, ngx.status
  local id = 0
  local s = status - 100
  if base and s >= 0 and s < STATUSES then
    local at = base + method * STATUSES + s
    id = ids[at]
    if id == 0 then
      id = miss(name, METHODS[method], status)
      if id > 0 then place(at, id) end -- 0 is the overflow series, beyond max_series
    end
  else
    id = miss(name, METHODS[method], status)
  end
  count(id, 1)
  local took = now() - start_time()
  if took < 0 then took = 0 end -- the clock was set back, and 0 is the best guess
  OBSERVE
  MORE
end]]
local BY_NAME = [[
name = name or read() or "none"
local base = bases[name]
if not base and room[0] > 0 then base = base_of(name) end]]
local BY_BASE = "local name, base = route_name, route_base"
local BY_NAME_ONLY = "local name, base = route_name, nil"

-- Variables that clients can set, and prefixes of such variables. They may only be used for the trace
-- id.
local CLIENTS = {
  uri = true, request_uri = true, document_uri = true, request_filename = true, request = true, args = true, query_string = true,
  request_body = true, host = true, remote_user = true, remote_addr = true,
  arg_ = true, http_ = true, cookie_ = true,
}

local function reader(source, option)
  if type(source) == "function" then
    return source
  end
  local name = type(source) == "string" and source:match "^%$?([%w_]+)$"
  if not name then
    return nil, ('freshet: option %s: must be a variable, such as "$freshet_route", or a function'):format(option)
  end
  name = name:lower() -- as nginx does
  if option == "route" and (CLIENTS[name] or CLIENTS[name:match "^%l+_" or ""]) then
    return nil, ("freshet: option %s = $%s: clients set it, and each value would be a series; set your own variable in each location"):format(option, name)
  end
  local var = ngx.var
  return function()
    return var[name]
  end
end

--- seconds returns the sum of the times of several upstreams, in nginx's format: "0.004, 0.120 : -".
local function seconds(times)
  local one = tonumber(times)
  if one then
    return one
  end
  local sum
  for part in times:gmatch "[%d.]+" do
    sum = (sum or 0) + (tonumber(part) or 0)
  end
  return sum
end

local KNOWN = {
  route = true, prefix = true, schema = true, buckets = true, upstream = true, bytes = true, cache = true, tls = true,
  trace = true,
}

--- Makes the metrics, in init_worker_by_lua_block.
---@param metrics freshet.Metrics
---@param options? freshet.http.Options
---@return freshet.http? http
---@return string? err
function _M.new(metrics, options)
  options = options or {}
  if type(metrics) ~= "table" or not metrics.counter or type(options) ~= "table" then
    return nil, "freshet: resty.freshet.http needs the instance that resty.freshet.new returned, and options in a table"
  end
  for _, option in ipairs { "upstream", "bytes", "cache", "tls" } do
    if options[option] ~= nil and type(options[option]) ~= "boolean" then
      return nil, ("freshet: option %s of resty.freshet.http: must be true or false"):format(option)
    end
  end
  for key in pairs(options) do
    if not KNOWN[key] then
      return nil, ("freshet: option %s of resty.freshet.http: is not known; docs/edge.md lists the options"):format(tostring(key))
    end
  end
  local route, err = reader(options.route or "$freshet_route", "route")
  if not route then
    return nil, err
  end
  local trace
  if options.trace then
    if not metrics.options.exemplars or options.buckets then
      return nil, "freshet: option trace of resty.freshet.http: needs exemplars = true of the instance, and native histograms"
    end
    trace, err = reader(options.trace, "trace")
    if not trace then
      return nil, err
    end
  end
  local prefix = options.prefix or "http."
  if type(prefix) ~= "string" then
    return nil, "freshet: option prefix of resty.freshet.http: must be a string"
  end
  local failed
  local function make(kind, name, labels, shape)
    local m, reason = metrics[kind](metrics, prefix .. name, labels, shape)
    failed = failed or reason
    return m
  end
  local requests = make("counter", "requests", LABELS)
  local duration = make("histogram", "request.duration", LABELS, { schema = options.schema, buckets = options.buckets })
  local upstream = options.upstream and make("histogram", "upstream.duration", LABELS, { schema = options.schema, buckets = options.buckets })
  local sent = options.bytes and make("histogram", "response.bytes", LABELS, { schema = 1, from = BYTES.from, to = BYTES.to })
  local received = options.bytes and make("histogram", "request.bytes", LABELS, { schema = 1, from = BYTES.from, to = BYTES.to })
  local cache = options.cache and make("counter", "cache", { "route", "cache" })
  local tls = options.tls and make("counter", "tls", { "protocol", "cipher" })
  if failed then
    return nil, failed
  end

  local space = requests.space -- shared by all four metrics, because they have the same labels and limit
  local ids = allocate("int32_t", ROUTES * PER_ROUTE)
  if not ids then
    return nil, "freshet: no memory for the ids of routes"
  end
  local places = {} -- by id, its indexes in ids; an id has several if long names are cut to one value
  space.remembered[#space.remembered + 1] = function(id)
    for _, at in ipairs(places[id] or {}) do
      ids[at] = 0
    end
    places[id] = nil
  end

  -- place puts an id into the array.
  local function place(at, id)
    ids[at], places[id] = id, places[id] or {}
    table.insert(places[id], at)
  end
  jit.off(place)

  local bases = {} -- by route, the index of its first id
  local room = ffi.new("int32_t[1]", ROUTES)
  local function base_of(name)
    if name == "" then -- the variable is set in no location
      bases[""] = bases.none or base_of "none"
    elseif not bases[name] and room[0] > 0 and type(name) == "string" then
      bases[name], room[0] = (ROUTES - room[0]) * PER_ROUTE, room[0] - 1
    end
    return bases[name]
  end
  jit.off(base_of)

  local var = ngx.var
--- more records the metrics that options turn on.
  local function more(id, name)
    if upstream then
      local times = var.upstream_response_time
      local t = times and seconds(times)
      if t then
        upstream.by_id.observe(id, t)
      end
    end
    if sent then
      sent.by_id.observe(id, var.bytes_sent)
      received.by_id.observe(id, var.request_length)
    end
    if cache then
      local status = var.upstream_cache_status
      if status then
        cache:inc(1, name, status)
      end
    end
    if tls then
      tls:inc(1, var.ssl_protocol, var.ssl_cipher)
    end
  end

  local env = {
    bases = bases, base_of = base_of, read = route, room = room, ids = ids, miss = space.miss, place = place,
    METHOD = METHOD, METHODS = METHODS,
    count = requests.by_id.inc, observe = duration.by_id.observe, observe_traced = duration.by_id.observe_traced,
    trace = trace, more = more,
  }
  local source = LOG:gsub("OBSERVE", trace and "observe_traced(id, took, trace())" or "observe(id, took)")
    :gsub("MORE", (upstream or sent or cache or tls) and "more(id, name)" or "")
    :gsub("STATUSES", tostring(STATUSES))
  local function logger(params, find)
    return assert(loadstring((source:gsub("PARAMS", params):gsub("ROUTE", find)), "=freshet.http"))(env)
  end
  return setmetatable({
    log = logger("_, name", BY_NAME),
    logger = function(name)
      if name == nil or name == "" then
        name = "none"
      end
      env.name, env.base = name, base_of(name)
      return logger("", env.base and BY_BASE or BY_NAME_ONLY)
    end,
  }, Http)
end

jit.off(_M.new)
return _M
