local helper = require "spec.helper"

local function sums(socket)
  local s = {}
  for _, line in ipairs(helper.lines(socket)) do
    local name, n = line:match "^([^:]+):([%d.e+-]+)|[cg]"
    if name then
      local key = name .. (line:match "|#.*" or "")
      s[key] = (s[key] or 0) + tonumber(n)
    elseif line:find "|nh" then
      local key = line:match "^[^:]+" .. (line:match "|#.*" or "")
      s[key] = (s[key] or 0) + helper.parse(line).total
    end
  end
  return s
end

describe("a flush", function()
  it("sends each change once", function()
    local m, socket = helper.new()
    local c = m:counter("c", { "a" })
    c:inc(1, "x")
    c:inc(2, "x")
    c:inc(1, "y")
    assert(m:flush())
    assert.same({ "c:1|c|#a:y", "c:3|c|#a:x" }, helper.lines(socket))
    assert(m:flush())
    assert.equal(2, #helper.lines(socket))
    c:inc(5, "y")
    assert(m:flush())
    assert.same({ "c:1|c|#a:y", "c:3|c|#a:x", "c:5|c|#a:y" }, helper.lines(socket))
  end)

  for _, arity in ipairs { 0, 1, 2, 3, 8 } do
    it("sends every call by labels and by handle, with " .. arity .. " labels", function()
      local m, socket = helper.new()
      local names, values = {}, {}
      for i = 1, arity do
        names[i], values[i] = "l" .. i, "v" .. i
      end
      local c, h, g = m:counter("c", names), m:histogram("h", names), m:gauge("g", names)
      for _ = 1, 200 do
        c:inc(1, unpack(values))
        c:with(unpack(values)):inc(1)
        h:observe(0.1, unpack(values))
        h:with(unpack(values)):observe(0.1)
        g:inc(1, unpack(values))
        g:with(unpack(values)):inc(1)
      end
      assert(m:flush())
      local lines = helper.lines(socket)
      assert.truthy(lines[1]:find("c:400|c", 1, true))
      assert.truthy(lines[2]:find("g:400|g", 1, true))
      assert.equal(400, helper.parse(lines[3]).total)
    end)
  end

  it("fills packets to the limit, with whole lines", function()
    local m, socket = helper.new { packet = 600 }
    local c, h = m:counter("requests", { "a" }), m:histogram("h", { "a" }, { schema = 8 })
    local k = m:histogram("k", { "a" }, { buckets = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 } })
    for i = 1, 100 do
      c:inc(1, i)
    end
    for i = 1, 500 do
      h:observe(i / 25, "x")
      k:observe(i / 25, "x")
    end
    assert(m:flush())
    for i, packet in ipairs(socket.packets) do
      assert.truthy(#packet <= 600 and packet:sub(-1) == "\n")
      assert.truthy(#packet > 400 or i == #socket.packets, "packet " .. i .. " has " .. #packet)
    end
    local s = sums(socket)
    assert.equal(500, s["h|#a:x"])
    assert.equal(500, s["k.count|#a:x"])
    assert.equal(500, s["k.bucket|#a:x,le:+Inf"])
    assert.equal(25, s["k.bucket|#a:x,le:1"])
    assert.equal(0, m:stats().too_long)
    local total = 0
    for _, line in ipairs(helper.lines(socket)) do
      total = total + (line:find "|nh" and helper.parse(line).sum or 0)
    end
    assert.near(500 * 501 / 2 / 25, total, 1e-9)
  end)

  it("sends everything exactly once, whatever fails when", function()
    for seed = 1, 60 do
      math.randomseed(seed)
      local m, socket = helper.new { packet = 512 }
      socket.takes = function()
        if math.random() < 0.4 then
          return nil, math.random() < 0.5 and "full" or "down"
        end
        return true
      end
      local c, h = m:counter("c", { "a" }), m:histogram("h", { "a" })
      local k = m:histogram("k", { "a" }, { buckets = { 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10 } })
      local want = {}
      for _ = 1, 30 do
        for _ = 1, math.random(0, 60) do
          local a, v = math.random(1, 9), math.random() * 12
          c:inc(1, a)
          h:observe(v, a)
          k:observe(v, a)
          for _, key in ipairs { "c|#a:" .. a, "h|#a:" .. a, "k.count|#a:" .. a, "k.bucket|#a:" .. a .. ",le:+Inf" } do
            want[key] = (want[key] or 0) + 1
          end
          local low = "k.bucket|#a:" .. a .. ",le:0.8"
          want[low] = (want[low] or 0) + (v <= 0.8 and 1 or 0)
        end
        m:flush()
      end
      socket.takes = function() return true end
      assert(m:flush())
      assert.equal(0, m:stats().changed)
      local got = sums(socket)
      for key, n in pairs(want) do
        assert.equal(n, got[key], key .. " of seed " .. seed)
      end
    end
  end)

  it("is spread over ticks, each of which continues where the last ended", function()
    local m, socket, time = helper.new()
    local c = m:counter("c", { "a" })
    for i = 1, 2000 do
      c:inc(1, i)
    end
    time.step = 0.0004 -- for each reading of the clock
    local ticks, most = 0, 0
    repeat
      local before = #socket.packets
      local state = m.flusher:run(0.001)
      ticks, most = ticks + 1, math.max(most, #socket.packets - before)
    until state ~= "more"
    assert.truthy(ticks > 4, ticks)
    assert.truthy(most <= 4, most)
    assert.equal(2000, #helper.lines(socket))
  end)

  it("ends although requests continue", function()
    local m, socket, time = helper.new()
    local c = m:counter("c", { "a" })
    for i = 1, 500 do
      c:inc(1, i)
    end
    socket.takes = function()
      for i = 1, 500 do
        c:inc(1, i)
      end
      return true
    end
    time.step = 0
    assert.equal("done", (m.flusher:run(math.huge)))
  end)

  it("drops a packet that the kernel can never send, and counts it", function()
    local m, socket = helper.new()
    m:counter("c"):inc(1)
    socket.takes = function() return nil, "size" end
    m:flush()
    assert.equal(1, m:stats().dropped_packets)
    assert.equal(0, m:stats().changed)
  end)

  it("refuses an infinite sum, and continues", function()
    local m, socket = helper.new()
    local c, h, k = m:counter "c", m:histogram "h", m:histogram("k", {}, { buckets = { 1 } })
    for _ = 1, 2 do
      c:inc(1.7e308)
      h:observe(1.7e308)
      k:observe(1.7e308)
    end
    m:flush()
    assert.equal(3, m:stats().refused)
    assert.equal(0, m:stats().changed)
    socket.packets = {}
    c:inc(1)
    h:observe(1)
    k:observe(2)
    m:flush()
    local s = sums(socket)
    assert.equal(1, s.c)
    assert.equal(1, helper.parse(helper.lines(socket)[2]).total)
    assert.equal(1, s["k.bucket|#le:+Inf"])
    assert.equal(2, s["k.sum"])
  end)

  it("counts a line that fits into no packet", function()
    local m, socket = helper.new { packet = 512 }
    local names = { "a", "b", "c", "d" }
    local c, g = m:counter("c", names), m:gauge "g"
    c:inc(1, ("x"):rep(200), ("y"):rep(200), ("z"):rep(200), "w")
    g:set(1)
    assert(m:flush())
    assert.same({ "g:1|g" }, helper.lines(socket))
    assert.equal(1, m:stats().too_long)
  end)

  it("reports our own counts under the names of DogStatsD clients", function()
    local m, socket = helper.new { telemetry = true }
    local c = m:counter("c")
    c:inc(1)
    c:inc(0 / 0)
    m:exit()
    local s = table.concat(helper.lines(socket), "\n")
    assert.truthy(s:find("datadog.dogstatsd.client.metric_dropped_on_receive:1|c|#client:freshet-lua", 1, true))
    assert.truthy(s:find("datadog.dogstatsd.client.aggregated_context:1|c", 1, true))
  end)
end)

describe("beyond max_series", function()
  it("counts go to the overflow series of the metric, and nothing is lost", function()
    local m, socket = helper.new { max_series = 10, tags = { "env:prod" } }
    local c = m:counter("c", { "a" })
    for i = 1, 1000 do
      c:inc(1, "id" .. i)
    end
    c:inc(1, "id3")
    assert(m:flush())
    local s = sums(socket)
    assert.equal(990, s["c|#client_overflow:true,env:prod"])
    assert.equal(2, s["c|#a:id3,env:prod"])
    assert.equal(11, #helper.lines(socket))
    assert.equal(990, m:stats().overflowed)
    assert.equal(10, m:stats().series)
  end)

  it("a metric with its own limit leaves room for other metrics", function()
    local m, socket = helper.new { max_series = 10 }
    local c = m:counter("c", { "a" }, { max_series = 3 })
    local d = m:histogram("d", { "a" })
    for i = 1, 20 do
      c:inc(1, i)
      d:observe(1, i)
    end
    assert(m:flush())
    local s = sums(socket)
    assert.equal(17, s["c|#client_overflow:true"])
    assert.equal(13, s["d|#client_overflow:true"])
  end)

  it("gauges are refused, because their values have no sum", function()
    local m, socket = helper.new { max_series = 1 }
    local g = m:gauge("g", { "a" })
    g:set(1, "x")
    g:set(2, "y")
    assert(m:flush())
    assert.same({ "g:1|g|#a:x" }, helper.lines(socket))
    assert.equal(1, m:stats().crowded)
  end)

  it("idle label sets lose their places, and handles find new ones", function()
    local m, socket, time = helper.new { max_series = 4, idle = 100 }
    local c, g = m:counter("c", { "a" }), m:gauge("g", { "b" })
    g:set(7, "kept")
    local first = c:with "first"
    first:inc(1)
    c:inc(1, "second")
    c:inc(1, "third")
    c:inc(1, "fourth")
    m:tick()
    assert.equal(1, m:stats().overflowed)
    time.now = time.now + 60
    c:inc(1, "third")
    m:tick()
    time.now = time.now + 60
    m:tick()
    assert.equal(2, m:stats().released)
    socket.packets = {}
    c:inc(1, "fourth")
    first:inc(5)
    c:inc(2, "third")
    g:inc(1, "kept")
    assert(m:flush())
    assert.same({ "c:1|c|#a:fourth", "c:2|c|#a:third", "c:5|c|#a:first", "g:8|g|#b:kept" }, helper.lines(socket))
  end)
end)
