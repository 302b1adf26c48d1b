--- Metrics for nginx and OpenResty that cost a request almost nothing. Each worker counts in arrays
-- of its own, and a timer sends the changes to Freshet or another DogStatsD server. docs/edge.md is
-- the manual.
--
-- This file has the metrics, and labels.lua has their label sets. template.lua writes the functions
-- that requests call, buckets.lua finds the bucket of a value, and flush.lua sends.
local bit = require "bit"
local ffi = require "ffi"
local buckets = require "resty.freshet.buckets"
local flush = require "resty.freshet.flush"
local sets = require "resty.freshet.labels"
local allocate = require "resty.freshet.memory"
local sockets = require "resty.freshet.socket"
local template = require "resty.freshet.template"
local text = require "resty.freshet.text"

-- LuaJIT compiles nothing in this file. template.lua writes the functions that requests call, and
-- flush.lua has the fast loops of a flush. The functions here are called rarely, so LuaJIT would only
-- start traces now and then, and abort them.
jit.off(true, true)

local type, tostring, floor = type, tostring, math.floor
local unpack = unpack

local _M = { _VERSION = "0.1.0" }

local MAX_NAME = 200 -- bytes
local PAUSE = 0.005 -- seconds between the ticks of a flush, in which a worker answers requests
local EXIT_WAIT = 0.2 -- seconds that an exiting worker waits for a slow server

---@class freshet.Options
---@field server string           unix:/path of a datagram socket, udp://host:port, or host:port
---@field prefix? string          the beginning of every name, such as "shop."
---@field tags? string[]          tags of every metric, such as {"env:prod"}
---@field interval? number        seconds between flushes, 0.01 to 60; default 1
---@field max_series? integer     most series of all metrics together; default 10000
---@field packet? integer         bytes of the longest datagram; default 8192, over UDP 1432
---@field idle? number            seconds after which a label set without changes loses its place; default 3600, 0 for never
---@field exemplars? boolean      send the trace ids of calls of observe_traced
---@field telemetry? boolean      false: do not send this library's own counts

---@class freshet.Metrics
local Metrics = {}
Metrics.__index = Metrics

---@class freshet.Metric
---@field name string
local Metric = {}
Metric.__index = Metric

---@class freshet.Counter : freshet.Metric
---@field inc fun(self, n: number, ...: string|number|nil)

---@class freshet.Gauge : freshet.Metric
---@field set fun(self, v: number, ...: string|number|nil)
---@field inc fun(self, n: number, ...: string|number|nil)

---@class freshet.Histogram : freshet.Metric
---@field observe fun(self, v: number, ...: string|number|nil)
---@field observe_traced fun(self, v: number, trace_id: string?, ...: string|number|nil)

---@class freshet.Handle
---@field inc? fun(self, n: number)
---@field set? fun(self, v: number)
---@field observe? fun(self, v: number)
---@field observe_traced? fun(self, v: number, trace_id: string?)

local instances = {}
local warmed = false

local function whole(v, from, to)
  return type(v) == "number" and v >= from and v <= to and v == floor(v)
end

-- shown writes a value as in Lua source, so that "3" differs from 3.
local function shown(value)
  return type(value) == "string" and ("%q"):format(value) or tostring(value)
end

local function wrong(option, value, rule)
  return nil, ("freshet: option %s = %s: %s"):format(option, shown(value), rule)
end

local KNOWN = {
  server = true, prefix = true, tags = true, interval = true, max_series = true, packet = true, idle = true,
  exemplars = true, telemetry = true,
}

--- check returns the options with defaults, or nil and an error for people.
local function check(options)
  if type(options) ~= "table" then
    return wrong("options", options, "must be a table, in which server is required")
  end
  for key in pairs(options) do
    if not KNOWN[key] then
      return wrong(tostring(key), options[key], "is not known; docs/edge.md lists the options")
    end
  end
  local address, err = sockets.parse(options.server)
  if not address then
    return wrong("server", options.server, err)
  end
  local o = {
    address = address, server = options.server,
    prefix = options.prefix or "",
    tags = options.tags or {},
    interval = options.interval or 1,
    max_series = options.max_series or 10000,
    packet = options.packet or address.packet,
    idle = options.idle or 3600,
    exemplars = options.exemplars,
    telemetry = options.telemetry,
  }
  for _, option in ipairs { "exemplars", "telemetry" } do
    if o[option] ~= nil and type(o[option]) ~= "boolean" then
      return wrong(option, o[option], "must be true or false")
    end
  end
  if type(o.prefix) ~= "string" or o.prefix ~= text.name(o.prefix) then
    return wrong("prefix", o.prefix, "must be a string without ':', '|' and control characters")
  elseif type(o.tags) ~= "table" then
    return wrong("tags", o.tags, 'must be a list, such as {"env:prod"}')
  elseif type(o.interval) ~= "number" or not (o.interval >= 0.01 and o.interval <= 60) then
    return wrong("interval", o.interval, "must be from 0.01 to 60 seconds")
  elseif not whole(o.max_series, 1, 1e6) then
    return wrong("max_series", o.max_series, "must be a whole number from 1 to 1000000")
  elseif not whole(o.packet, 512, 65507) then
    return wrong("packet", o.packet, "must be from 512 to 65507 bytes, the most that UDP carries")
  elseif type(o.idle) ~= "number" or o.idle ~= o.idle or o.idle < 0 then
    return wrong("idle", o.idle, "must be seconds, or 0 for never")
  end
  for key in pairs(o.tags) do
    if type(key) ~= "number" then
      return wrong("tags." .. tostring(key), o.tags[key], 'is not an item of a list, such as {"env:prod"}')
    end
  end
  for i, tag in ipairs(o.tags) do
    if type(tag) ~= "string" or tag == "" or tag ~= text.tag(tag) then
      return wrong("tags[" .. i .. "]", tag, "must be a string that is not empty, without ',', '|' and control characters")
    end
  end
  o.constant = table.concat(o.tags, ",")
  if #o.prefix + #o.constant > o.packet / 2 then
    return wrong("tags", o.constant, "and prefix together take more than half of packet (" .. o.packet .. " bytes)")
  end
  return o
end

local function tick(premature, metrics)
  metrics:tick(premature)
end

local function next_tick(premature, metrics)
  metrics.coming = nil
  metrics:tick(premature)
end

local function first_tick(premature, metrics)
  if not premature then
    metrics.ngx.timer.every(metrics.options.interval, tick, metrics)
  end
  metrics:tick(premature)
end

--- Makes an instance, in init_worker_by_lua_block. From then on a timer sends.
---@param options freshet.Options
---@return freshet.Metrics? metrics
---@return string? err  names the option, its limit and the way out
function _M.new(options, parts)
  local o, err = check(options)
  if not o then
    return nil, err
  end
  parts = parts or {} -- tests replace nginx and the kernel
  local nginx = parts.ngx or ngx
  if nginx and nginx.get_phase and nginx.get_phase() == "init" then
    return nil, "freshet: new was called in init_by_lua, which has no timers: call it in init_worker_by_lua_block"
  end
  local self = setmetatable({
    options = o,
    ngx = nginx,
    now = nginx and nginx.now or os.time,
    list = {}, -- metrics
    names = {}, -- the same metrics by name
    spaces = {}, -- the spaces of label sets, see labels.lua
    series = 0, -- how many series have a place
    telemetry = o.telemetry,
    counts = {
      packets = 0, bytes = 0, dropped_packets = 0, dropped_bytes = 0, failed_sends = 0, sent_series = 0,
      refused = 0, crowded = 0, too_long = 0, respelled = 0, bad_traces = 0, released = 0, longest_tick = 0,
    },
  }, Metrics)
  self.own_tags = "|#client:freshet-lua,client_version:" .. _M._VERSION .. ",client_transport:" .. o.address.transport
    .. (o.constant ~= "" and "," .. o.constant or "")
  self.flusher = flush.new(self, parts.socket or sockets.new(o.address), parts.clock or sockets.clock, o.packet)
  if nginx and nginx.timer and not warmed then
    warmed = true
    local nobody = { begin = function() end, send = function() return true end }
    flush.warm(_M.new({ server = "/nowhere", max_series = 200, telemetry = false }, { ngx = { now = os.time }, socket = nobody }))
    instances[#instances] = nil
  end
  if nginx and nginx.timer then
    -- Workers start together, but flush at different times, so that their datagrams do not
    -- fill the server's queue.
    local first = o.interval
    if nginx.worker and nginx.worker.id and nginx.worker.id() then
      first = o.interval * (nginx.worker.id() + 1) / nginx.worker.count()
    end
    local ok, timer_err = nginx.timer.at(first, first_tick, self)
    if not ok then
      return nil, "freshet: start the timer: " .. tostring(timer_err)
    end
  end
  instances[#instances + 1] = self
  return self
end

--- tick sends for a millisecond. If there is more to send, it sets a timer to continue.
function Metrics:tick(premature)
  local clock = self.flusher.clock
  local started = clock()
  local state, err = self.flusher:run(flush.TICK)
  if state ~= "more" then
    sets.sweep(self)
    self:tell(state == "failed" and (err == "full" and err or self.flusher.socket.reason or err) or nil)
  end
  self.counts.longest_tick = math.max(self.counts.longest_tick, clock() - started)
  if state == "more" and not premature and not self.coming then
    self.coming = self.ngx.timer.at(PAUSE, next_tick, self)
  end
end

--- tell logs once that sending fails, with the reason, and once that it works again. It does not log
-- a full queue.
function Metrics:tell(reason)
  if reason ~= "full" and (reason == nil) ~= (self.trouble == nil) then
    self.trouble = reason
    if self.ngx and self.ngx.log and reason then
      self.ngx.log(self.ngx.WARN, "freshet: cannot send to ", self.options.server, ": ", reason, "; counts are kept and sent later")
    elseif self.ngx and self.ngx.log then
      self.ngx.log(self.ngx.NOTICE, "freshet: sending to ", self.options.server, " works again")
    end
  end
end

--- Sends all changes now, without waiting.
---@return boolean ok  whether all of them were sent
---@return string? err
function Metrics:flush()
  self.flusher.round = nil
  local state, err = self.flusher:run(math.huge)
  return state == "done", err
end

--- Sends the rest and this library's own counts when the worker exits. It waits up to EXIT_WAIT for
-- a slow server.
function Metrics:exit()
  local f = self.flusher
  local stop = f.clock() + EXIT_WAIT
  local ok, err
  repeat
    ok, err = self:flush()
    if ok then
      ok, err = f:report(true)
    end
    if not ok and err == "full" then
      f.socket:wait(10)
    end
  until ok or err ~= "full" or f.clock() > stop
  local unsent = self:stats().changed
  if unsent > 0 and self.ngx and self.ngx.log then
    self.ngx.log(self.ngx.WARN, "freshet: the worker ended before it could send ", unsent, " series: ", f.socket.reason or err)
  end
  f.socket:close()
end

--- Sends the rest of all instances of this worker: for exit_worker_by_lua_block.
function _M.exit()
  for _, metrics in ipairs(instances) do
    metrics:exit()
  end
end

local function power_above(n)
  local p = 2
  while p <= n do
    p = p * 2
  end
  return p
end

--- remember gives a handle its id. When the id's place is taken back, all its handles lose the id.
local function remember(m, id, handle)
  if id ~= sets.OVERFLOW then
    handle.id, m.handles[id] = id, m.handles[id] or {}
    table.insert(m.handles[id], handle)
  end
end

local SHAPE = { schema = true, from = true, to = true, buckets = true } -- options of histograms

--- add makes a metric. `prepare` makes the tables of a histogram; other kinds have no tables.
local function add(metrics, kind, name, labels, options, prepare)
  local function bad(err)
    return nil, ("freshet: %s %s: %s"):format(kind, tostring(name), err)
  end
  if type(name) ~= "string" or name == "" then
    return bad "needs a name, which must be a string"
  elseif #name > MAX_NAME then
    return bad(("has a name of %d bytes: at most %d"):format(#name, MAX_NAME))
  end
  labels, options = labels or {}, options or {}
  if type(labels) ~= "table" or type(options) ~= "table" then
    return bad 'takes a list of label names, {"route", "status"}, and a table of options'
  end
  for key in pairs(options) do
    if key ~= "max_series" and not (prepare and SHAPE[key]) then
      return bad(("option %s: is not known; docs/edge.md lists the options"):format(tostring(key)))
    end
  end
  local keys, err = sets.keys(labels)
  if not keys then
    return bad(err)
  end
  local places = options.max_series or metrics.options.max_series
  if not whole(places, 1, metrics.options.max_series) then
    return bad(("option max_series = %s: must be a whole number from 1 to max_series of the instance, %d"):format(shown(places), metrics.options.max_series))
  end
  name = text.name(metrics.options.prefix .. name)
  local bounds = type(options.buckets) == "table" and options.buckets or {}
  local shape = {}
  for i = 1, #bounds do
    shape[i] = tostring(bounds[i])
  end
  local spelling = table.concat({
    kind, places, tostring(options.schema), tostring(options.from), tostring(options.to),
    options.buckets and "of " .. table.concat(shape, ",") or "", unpack(keys),
  }, "\0")
  local known = metrics.names[name]
  if known then
    if known.spelling == spelling then
      return known
    end
    return bad("exists already as another kind, or with other labels or options; give it another name")
  end
  local m = setmetatable({
    name = name, kind = kind, spelling = spelling, head = name .. ":", metrics = metrics, counts = metrics.counts,
    handles = {}, stride = 1, exemplars = {},
  }, Metric)
  local constants, finish = { HIGH_WORD = ffi.abi "le" and "1" or "0" }, flush[kind]
  if prepare then
    local t
    t, finish = prepare(m, options)
    if not t then
      return bad(finish)
    end
    constants.LOW, constants.HIGH = ("%.17g"):format(t.low), ("%.17g"):format(t.high)
    constants.SHIFT, constants.OFFSET = tostring(t.shift), tostring(t.offset)
    m.tables, m.stride = t, t.slots + 1
    m.word = ffi.new "union { double d; int32_t w[2]; int64_t q; }"
    m.first, m.limit = ffi.cast("int16_t *", t.first), ffi.cast("int64_t *", t.limit)
    if metrics.options.exemplars and finish == flush.native then
      m.trace_ids, m.trace_values, m.trace_times = {}, {}, {}
    end
  end
  for _, key in ipairs(keys) do
    if key == "le" and finish == flush.classic then
      return bad "label le: is the label of classic buckets; give it another name, or leave out the option buckets"
    end
  end
  if #keys == 0 then
    places = 1
  end
  m.space = sets.space(metrics, keys, places)
  local ring = power_above(places + 1)
  m.mask = ring - 1
  m.cells = allocate("double", (places + 1) * m.stride)
  m.flag = allocate("uint8_t", places + 1)
  m.ring = allocate("int32_t", ring)
  m.tail, m.head_at = allocate("int32_t", 1), 0
  if finish == flush.classic then
    m.unsent = allocate("double", (places + 1) * (m.stride + 1))
  end
  if not (m.cells and m.flag and m.ring and m.tail) or finish == flush.classic and not m.unsent then
    return bad(("no memory for %d series; lower max_series, or the range or schema of a histogram"):format(places))
  end
  finish(m)
  m.sent_bytes = ffi.cast("uint8_t *", m.sent)
  constants.STRIDE, constants.RING_MASK = tostring(m.stride), tostring(m.mask)
  local counts = metrics.counts
  local methods, of_handle, by_id = template.build(kind, #keys, constants, {
    root = m.space.root, miss = m.space.miss, cells = m.cells, flag = m.flag, ring = m.ring, tail = m.tail,
    word = m.word, first = m.first, limit = m.limit, now = metrics.now,
    trace_ids = m.trace_ids, trace_values = m.trace_values, trace_times = m.trace_times,
    refuse = function()
      counts.refused = counts.refused + 1
    end,
    crowd = function()
      counts.crowded = counts.crowded + 1
    end,
    again = function(handle)
      local id = m.space.miss(unpack(handle.values, 1, #keys))
      remember(m, id, handle)
      return id
    end,
  })
  for method, f in pairs(methods) do
    m[method] = f
  end
  m.of_handle, m.by_id = of_handle, by_id
  m.space.metrics[#m.space.metrics + 1] = m
  metrics.series = metrics.series + m.space.count
  metrics.list[#metrics.list + 1] = m
  metrics.names[name] = m
  sets.look_for_room(metrics)
  return m
end

--- A counter: a number that only grows.
---@param name string
---@param labels? string[]  names of up to 8 labels
---@param options? { max_series?: integer }
---@return freshet.Counter? counter
---@return string? err
function Metrics:counter(name, labels, options)
  return add(self, "counter", name, labels, options)
end

--- A gauge: a number that goes up and down. Each worker has its own value. Unless a label tells
-- workers apart, the server keeps the value that came last.
---@param name string
---@param labels? string[]
---@param options? { max_series?: integer }
---@return freshet.Gauge? gauge
---@return string? err
function Metrics:gauge(name, labels, options)
  return add(self, "gauge", name, labels, options)
end

local function prepare_native(m, options)
  local schema, from, to = options.schema or 3, options.from or -20, options.to or 12
  if not whole(schema, -4, 8) then
    return nil, ("option schema = %s: must be a whole number from -4 to 8"):format(shown(schema))
  elseif not whole(from, -126, 127) or not whole(to, from + 1, 128) then
    return nil, ("options from = %s, to = %s: must be exponents of 2 from -126 to 128, and from must be less than to"):format(shown(from), shown(to))
  end
  local t = buckets.native(schema, from, to)
  if not t then
    return nil, ("options schema = %d, from = %d, to = %d: make too many buckets; lower the schema or the range"):format(schema, from, to)
  end
  m.base, m.head = t.base, ("%s:h%d,"):format(m.name, schema)
  return t, flush.native
end

local function prepare_classic(m, options)
  local bounds = options.buckets
  for _, option in ipairs { "schema", "from", "to" } do
    if options[option] ~= nil then
      return nil, ("option %s: is for native histograms, and buckets make a classic one; leave one of them out"):format(option)
    end
  end
  if type(bounds) ~= "table" or #bounds < 1 or #bounds > 256 then
    return nil, "option buckets: must be a list of 1 to 256 upper bounds, without +Inf"
  end
  for key in pairs(bounds) do
    if not whole(key, 1, #bounds) then
      return nil, ("option buckets[%s]: is not an item of a list of upper bounds"):format(shown(key))
    end
  end
  for i = 1, #bounds do
    local bound = bounds[i]
    if type(bound) ~= "number" or not (bound >= 2 ^ -1022 and bound <= 2 ^ 1022) or i > 1 and bound <= bounds[i - 1] then
      return nil, ("option buckets[%d] = %s: must be a number above 0 and above the previous bound"):format(i, shown(bound))
    end
  end
  local t = buckets.classic(bounds)
  if not t then
    return nil, "option buckets: two are so close, or the first and the last so far apart, that a table would need more than 65536 cells"
  end
  m.bounds = bounds
  return t, flush.classic
end

--- A histogram: the distribution of values that are not negative. By default it is a native
-- histogram, whose buckets grow by the factor 2^(2^-schema) between 2^from and 2^to. With `buckets`
-- it is a classic histogram.
---@param name string
---@param labels? string[]
---@param options? { schema?: integer, from?: integer, to?: integer, buckets?: number[], max_series?: integer }
---@return freshet.Histogram? histogram
---@return string? err
function Metrics:histogram(name, labels, options)
  local classic = type(options) == "table" and options.buckets
  return add(self, "histogram", name, labels, options, classic and prepare_classic or prepare_native)
end

--- A handle for one label set. It is fast, because it need not look up the label set. It may be
-- kept for ever.
---@param ... string|number|nil  values of the labels
---@return freshet.Handle
function Metric:with(...)
  local arity = self.space.arity
  local id = arity == 0 and 1 or self.space.miss(...)
  local handle = self.handles[id] and self.handles[id][1]
  if not handle then
    handle = { values = { ... } }
    for method, f in pairs(self.of_handle) do
      handle[method] = f
    end
    remember(self, id, handle)
  end
  return handle
end

function Metrics:overflowed()
  local n = 0
  for _, space in pairs(self.spaces) do
    n = n + space.full[1]
  end
  return n
end

--- The counts of this worker so far; docs/edge.md explains them.
---@return table<string, number>
function Metrics:stats()
  local s = { series = self.series, changed = 0, overflowed = self:overflowed() }
  for key, n in pairs(self.counts) do
    s[key] = n
  end
  for _, m in ipairs(self.list) do
    s.changed = s.changed + bit.band(m.tail[0] - m.head_at, m.mask)
  end
  return s
end

return _M
