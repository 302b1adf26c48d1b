local helper = require "spec.helper"
local freshet = require "resty.freshet"
local text = require "resty.freshet.text"

describe("a line", function()
  it("reads as DogStatsD", function()
    local m, socket = helper.new { prefix = "shop.", tags = { "env:prod" }, exemplars = true }
    m:counter("requests", { "route", "status" }):inc(2, "cart", 200)
    m:gauge("busy"):set(-1.5)
    local h = m:histogram("took", { "route" })
    h:observe(0.5, "cart")
    h:observe_traced(0.25, "4BF92F3577B34DA6A3CE929D0E0E4736", "cart")
    h:observe(0, "cart")
    m:histogram("old", {}, { buckets = { 0.1, 1 } }):observe(0.5)
    assert(m:flush())
    local lines = helper.lines(socket)
    assert.equal("shop.busy:-1.5|g|#env:prod", (lines[1]:gsub("1%.5%d*", "1.5")))
    assert.same({
      "shop.old.bucket:0|c|#env:prod,le:0.1",
      "shop.old.bucket:1|c|#env:prod,le:+Inf",
      "shop.old.bucket:1|c|#env:prod,le:1",
      "shop.old.count:1|c|#env:prod",
    }, { lines[2], lines[3], lines[4], lines[5] })
    assert.truthy(lines[6]:match "^shop%.old%.sum:0%.50*|c|#env:prod$")
    assert.equal("shop.requests:2|c|#route:cart,status:200,env:prod", lines[7])
    assert.truthy(lines[8]:match "^shop%.took:h3,0%.750*,1;%-16,1;%-8,1|nh|#route:cart,env:prod|x:4bf92f3577b34da6a3ce929d0e0e4736,0%.250*,%d+$")
  end)

  -- A server ends counters that are idle for some minutes, so buckets without changes are sent, too.
  it("of every classic bucket is sent when one bucket has changed", function()
    local m, socket = helper.new()
    local h = m:histogram("h", {}, { buckets = { 0.1, 1 } })
    for _ = 1, 2 do
      socket.packets = {}
      h:observe(0.5)
      assert(m:flush())
      assert.same({ "h.bucket:0|c|#le:0.1", "h.bucket:1|c|#le:+Inf", "h.bucket:1|c|#le:1", "h.count:1|c" }, { unpack(helper.lines(socket), 1, 4) })
    end
    socket.packets = {}
    assert(m:flush())
    assert.same({}, helper.lines(socket))
  end)

  it("is never forged by a value", function()
    local evil = {
      "a\nforged:1|c", "a\r\nforged:1|c", "a|#route:b", "a,status:500", "a\0b", "\27[2J", "a\255\254b", "\237\160\128", "\192\175",
      ("x"):rep(5000), ("é"):rep(300), "", "#|,:\n", "_e{1,1}:a|b",
    }
    for _, v in ipairs(evil) do
      local m, socket = helper.new()
      m:counter("c" .. v:sub(1, 100), { "route", "k" .. v }):inc(1, v, "ok")
      m:histogram("h" .. v:sub(1, 100), { "route" .. v }):observe(1, v)
      m:flush()
      local lines = helper.lines(socket)
      assert.equal(2, #lines)
      for _, line in ipairs(lines) do
        local name, tags = line:match "^([^:|%c]+):[%d.,;h-]+|n?[ch]|#([^|%c]+)$"
        assert.truthy(name, line)
        local _, commas = tags:gsub(",", "")
        assert.equal(line:sub(1, 1) == "c" and 1 or 0, commas, line)
        assert.truthy(#line < 1000, "values are cut")
        assert.falsy(line:find "[\192\193\255\254]", line)
        assert.falsy(line:find("\237\160", 1, true), line)
      end
    end
  end)

  it("keeps text in other scripts, and cuts it between characters", function()
    assert.equal("größe-日本-😀", text.value "größe-日本-😀")
    assert.equal(("é"):rep(100), text.value(("é"):rep(101)))
    assert.equal("a" .. ("é"):rep(99), text.value("a" .. ("é"):rep(100)))
  end)

  it("cannot begin an event", function()
    local m, socket = helper.new { prefix = "_e" }
    m:counter("{1,1}"):inc(1)
    assert(m:flush())
    assert.equal("_e_1,1}:1|c", helper.lines(socket)[1])
  end)

  it("has 'none' for a missing value, and no value raises an error", function()
    local m, socket = helper.new()
    local c = m:counter("c", { "a", "b" })
    c:inc(1, nil, 1)
    c:inc(1, "", 1)
    c:inc(1, 0 / 0, true)
    c:inc("2", {}, function() end)
    c:inc(1)
    assert(m:flush())
    assert.same({ "c:1|c|#a:nan,b:true", "c:2|c|#a:none,b:1", "c:3|c|#a:none,b:none" }, helper.lines(socket))
  end)

  it("has a number that reads back unchanged", function()
    math.randomseed(1)
    for i = 1, 200000 do
      local v = math.random() * 10 ^ math.random(-9, 12)
      if i % 3 == 0 then v = math.floor(v * 1000) / 1000 elseif i % 7 == 0 then v = math.floor(v) end
      local s = text.number(v)
      assert(tonumber(s) == v and #s <= text.LONGEST, s)
    end
  end)

  it("has a trace id of hexadecimal digits, or none", function()
    assert.equal("00ff", text.trace "00FF")
    for _, id in ipairs { "", "x", "00\n", ("0"):rep(33), 12 } do
      assert.is_nil(text.trace(id))
    end
  end)
end)

describe("an invalid option", function()
  local cases = {
    { "server", {} }, { "server", { server = "unix:relative" } }, { "server", { server = "unix:/" .. ("a"):rep(200) } },
    { "server", { server = "127.0.0.1:99999" } }, { "interval", { interval = 0 } }, { "packet", { packet = 100 } },
    { "max_series", { max_series = 0 } }, { "prefix", { prefix = "a:b" } }, { "tags", { tags = { "a|b" } } }, { "speed", { speed = 1 } },
  }
  for i, case in ipairs(cases) do
    it("is named in the error: " .. case[1] .. " " .. i, function()
      local o = case[2]
      if case[1] ~= "server" then
        o.server = "127.0.0.1"
      end
      local m, err = freshet.new(o, {})
      assert.is_nil(m)
      assert.truthy(err:find(case[1], 1, true), err)
    end)
  end

  it("of a metric is named in the error", function()
    local m = helper.new()
    local function bad(pattern, ok, err)
      assert.is_nil(ok)
      assert.truthy(err:find(pattern, 1, true), err)
    end
    bad("schema = 9:", m:histogram("a", {}, { schema = 9 }))
    bad('schema = "3":', m:histogram("a", {}, { schema = "3" }))
    bad("buckets[2] = true", m:histogram("a", {}, { buckets = { 0.1, true } }))
    bad("buckets[1] = table", m:histogram("a", {}, { buckets = { { 1 } } }))
    bad("buckets[", m:histogram("a", {}, { buckets = { 0.1, nil, 1 } }))
    bad("buckets[", m:histogram("a", {}, { buckets = { 0.1, [7] = 1 } }))
    bad('buckets["x"]', m:histogram("a", {}, { buckets = { 0.1, x = 1 } }))
    bad("label le", m:histogram("a", { "le" }, { buckets = { 0.1 } }))
    bad("option to: is for native", m:histogram("a", {}, { buckets = { 1, 2 }, to = 3 }))
    bad("from", m:histogram("a", {}, { from = 3, to = 2 }))
    bad("buckets[2]", m:histogram("a", {}, { buckets = { 1, 1 } }))
    bad("close", m:histogram("a", {}, { buckets = { 1, 1.0000001, 1.0000002 } }))
    bad("9 labels", m:counter("a", { "1", "2", "3", "4", "5", "6", "7", "8", "9" }))
    bad("twice", m:counter("a", { "b", "b" }))
    m:counter("a", { "b" })
    bad("already", m:gauge("a", { "b" }))
    assert.equal(m:counter("a", { "b" }), m:counter("a", { "b" }))
  end)
end)
