local helper = require "spec.helper"

-- The place of an idle label set is given to another set. Handles and caches with its id must then
-- look up their own set again, and must not count into the other set.
describe("a place that was given to another label set", function()
  it("is forgotten by every handle that had it", function()
    local m, socket, time = helper.new { idle = 10 }
    local c = m:counter("c", { "a" })
    local old = c:with "x"
    old:inc(1)
    m:tick()
    time.now = time.now + 20
    m:tick()
    local new = c:with "x"
    new:inc(1)
    old:inc(1)
    m:tick()
    time.now = time.now + 20
    m:tick()
    socket.packets = {}
    c:inc(1, "y")
    new:inc(100)
    old:inc(10)
    m:tick()
    assert.same({ "c:110|c|#a:x", "c:1|c|#a:y" }, helper.lines(socket))
  end)

  -- resty.freshet.http reads requests from ngx, which the test replaces here.
  local function http_with(m, options)
    _G.ngx = {
      status = 200, var = {}, now = function() return 5 end,
      req = { get_method = function() return "GET" end, start_time = function() return 5 end },
    }
    package.loaded["resty.freshet.http"] = nil
    local http, err = require("resty.freshet.http").new(m, options)
    _G.ngx, package.loaded["resty.freshet.http"] = nil, nil
    return http, err
  end

  local function requests(socket)
    local of = {}
    for _, line in ipairs(helper.lines(socket)) do
      local name, n, route = line:match "^(%S+requests):(%d+)|c|#route:([^,]*)"
      if name then
        of[name .. " " .. route:sub(1, 1) .. #route] = tonumber(n)
      end
    end
    return of
  end

  it("is forgotten by each resty.freshet.http of an instance", function()
    local m, socket, time = helper.new { idle = 10 }
    local a, b = assert(http_with(m)), assert(http_with(m, { prefix = "b." }))
    a:log "checkout"
    m:tick()
    time.now = time.now + 20
    m:tick()
    socket.packets = {}
    b:log "login"
    a:log "checkout"
    m:tick()
    assert.same({ ["b.requests l5"] = 1, ["http.requests c8"] = 1 }, requests(socket))
  end)

  it("is forgotten by all routes that were cut to one value", function()
    local m, socket, time = helper.new { idle = 10 }
    local http = assert(http_with(m))
    local long = ("x"):rep(200)
    http:log(long .. "1")
    http:log(long .. "2")
    m:tick()
    time.now = time.now + 20
    m:tick()
    socket.packets = {}
    http:log "login"
    http:log(long .. "1")
    http:log(long .. "2")
    m:tick()
    assert.same({ ["http.requests l5"] = 1, ["http.requests x200"] = 2 }, requests(socket))
  end)

  it("is not shared with a metric that has a limit of its own", function()
    local m = helper.new()
    assert(m:counter("http.requests", { "route", "method", "status" }, { max_series = 100 }))
    local _, err = http_with(m)
    assert.matches("http.requests", err)
  end)

  it("counts routes without a name and routes beyond max_series", function()
    local m, socket = helper.new { max_series = 6 } -- two metrics
    local http = assert(http_with(m))
    for _, route in ipairs { "a", "", "none", "", "b", "c", "d", "c", "a" } do
      http:log(route)
    end
    m:flush()
    assert.same({ ["http.requests a1"] = 2, ["http.requests n4"] = 3, ["http.requests b1"] = 1 }, requests(socket))
    assert.matches("http.requests:3|c|#client_overflow:true", table.concat(helper.lines(socket), "\n"), 1, true)
    assert.equal(3, m:stats().overflowed)
  end)

  it("names invalid options of resty.freshet.http", function()
    local m = helper.new()
    for option, options in pairs {
      ["in a table"] = "x", upstream = { upstream = "yes" }, prefix = { prefix = {} }, ["$uri"] = { route = "$URI" }, exemplars = { trace = "$t" },
      ["$arg_x"] = { route = "$arg_x" }, ["$args"] = { route = "args" }, ["$cookie_a"] = { route = "$cookie_a" }, ["$host"] = { route = "$host" },
      ["option schema: is for native"] = { schema = 2, buckets = { 1 } },
    } do
      local http, err = http_with(m, options)
      assert.is_nil(http)
      assert.is_truthy(err:find(option, 1, true), err)
    end
  end)
end)

describe("a label set beyond max_series that is known under another spelling", function()
  it("counts into the known set", function()
    local m, socket = helper.new { max_series = 4 }
    local c = m:counter("c", { "a" })
    local long = ("x"):rep(200)
    for _ = 1, 2 do
      c:inc(1, true)
      c:inc(1, long .. "y")
      c:inc(1, 0 / 0)
      c:inc(1, {})
    end
    c:inc(1, false)
    c:inc(1, "new")
    assert(m:flush())
    assert.same({ "c:2|c|#a:nan", "c:2|c|#a:none", "c:2|c|#a:true", "c:2|c|#a:" .. long, "c:2|c|#client_overflow:true" }, helper.lines(socket))
    assert.equal(2, m:stats().overflowed)
  end)
end)

describe("exemplars", function()
  local trace = ("4bf92f3577b34da6"):rep(2)

  it("have the trace of the last traced request", function()
    local m, socket = helper.new { exemplars = true }
    local h = m:histogram("h", { "a" })
    h:observe_traced(0.5, trace, "x")
    h:observe_traced(0.1, nil, "x")
    h:observe_traced(0.1, "", "x")
    h:observe_traced(0.1, trace .. "0", "x")
    h:observe_traced(0.1, 17, "x")
    m:flush()
    assert.matches("|x:" .. trace .. ",0.5,%d+$", helper.lines(socket)[1])
  end)

  it("are not kept if the option is off", function()
    for _, c in ipairs { { {} }, { { exemplars = true }, { buckets = { 1, 2 } } } } do
      local h = helper.new(c[1]):histogram("h", { "a" }, c[2])
      h:observe_traced(0.5, trace, "x")
      assert.is_nil(h.trace_ids)
    end
  end)

  it("are written in ticks like everything else", function()
    local m, socket, time = helper.new { exemplars = true, max_series = 2000 }
    local h = m:histogram("h", { "a" })
    for i = 1, 1000 do
      h:observe_traced(0.5, trace, i)
    end
    time.step = 0.0003 -- each reading of the clock advances it by 0.3 ms; a tick may take 1 ms
    assert.equal("more", m.flusher:run(0.001))
    assert.same({}, socket.packets)
    local ticks = 1
    repeat
      ticks = ticks + 1
    until m.flusher:run(0.001) ~= "more" or ticks > 1000
    local traced = 0
    for _, line in ipairs(helper.lines(socket)) do
      traced = traced + (line:find("|x:" .. trace, 1, true) and 1 or 0)
    end
    assert.equal(1000, traced)
  end)
end)

describe("a mistake in options", function()
  it("gives nil and an error that names it", function()
    local freshet = require "resty.freshet"
    local function refused(word, metric, err)
      assert.is_nil(metric)
      assert.is_truthy(err:find(word, 1, true), err)
    end
    local m = helper.new()
    refused("bukets", m:histogram("a", {}, { bukets = { 1 } }))
    refused("schema", m:counter("b", {}, { schema = 1 }))
    refused("list of label names", m:counter("c", { a = "x" }))
    assert(m:histogram("d", {}, { schema = 3 }))
    refused("other labels or options", m:histogram("d", {}, { schema = 8 }))
    refused("tags.a", freshet.new { server = "127.0.0.1:1", tags = { a = "b" } })
    refused("exemplars", freshet.new { server = "127.0.0.1:1", exemplars = "no" })
  end)
end)

it("logs once that nothing can be sent, and once that sending works again", function()
  local log = {}
  local socket = helper.socket()
  local m = assert(require("resty.freshet").new({ server = "unix:/run/none", telemetry = false }, {
    socket = socket, clock = os.clock,
    ngx = { WARN = "warn", NOTICE = "notice", now = os.time, log = function(...) log[#log + 1] = table.concat({ ... }, "") end },
  }))
  local c = m:counter "c"
  for _, answer in ipairs { "Permission denied", "Permission denied", "full", "", "" } do
    socket.takes = function()
      return answer == "", answer
    end
    c:inc(1)
    m:tick()
  end
  assert.same({
    "warnfreshet: cannot send to unix:/run/none: Permission denied; counts are kept and sent later",
    "noticefreshet: sending to unix:/run/none works again",
  }, log)
end)
