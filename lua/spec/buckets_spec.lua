local helper = require "spec.helper"
local buckets = require "resty.freshet.buckets"
local ffi = require "ffi"

-- A slow way to find a bucket: a binary search for the first bucket whose upper bound is not below v.
local function slow(schema, v)
  local low, high = math.floor(-1100 * 2 ^ schema), math.ceil(1100 * 2 ^ schema)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if buckets.bound(schema, middle) >= v then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function same(want, got)
  for index, n in pairs(want) do
    assert(got[index] == n, ("bucket %d: want %d, got %s"):format(index, n, tostring(got[index])))
  end
  for index, n in pairs(got) do
    assert(n == 0 or want[index] == n, ("bucket %d: want %s, got %d"):format(index, tostring(want[index]), n))
  end
end

local word = ffi.new "union { double d; uint64_t q; }"

local function observed(schema, values, from, to)
  local m, socket = helper.new { packet = 65507 }
  local h = assert(m:histogram("h", {}, { schema = schema, from = from, to = to }))
  for _, v in ipairs(values) do
    h:observe(v)
  end
  assert(m:flush())
  local all = {}
  for _, line in ipairs(helper.lines(socket)) do
    for index, n in pairs(helper.parse(line)) do
      if type(index) == "number" then
        all[index] = (all[index] or 0) + n
      end
    end
  end
  return all
end

describe("the bucket of a value", function()
  it("has exactly the bounds that the collector computes", function()
    local i = 0
    for line in io.lines "spec/bounds.txt" do
      word.d = buckets.bound(8, i) / 2
      assert.equal(line, bit.tohex(word.q), "bound " .. i)
      i = i + 1
    end
    assert.equal(257, i)
  end)

  for schema = -4, 8 do
    it("is the one that the slow way finds, for random values of schema " .. schema, function()
      math.randomseed(schema)
      local values, want = {}, {}
      for i = 1, 4000 do
        local v = 2 ^ (math.random() * 31.9 - 19.95)
        values[i] = v
        local index = slow(schema, v)
        want[index] = (want[index] or 0) + 1
      end
      same(want, observed(schema, values, -20, 12))
    end)

    it("has its upper bound, and the next bucket has the next double, of schema " .. schema, function()
      local values, want = {}, {}
      local width = 2 ^ schema
      for index = math.ceil(-9 * width), math.floor(9 * width) do
        local bound = buckets.bound(schema, index)
        word.d = bound
        word.q = word.q + 1
        values[#values + 1], values[#values + 2] = bound, word.d
        want[index] = (want[index] or 0) + 1
        want[index + 1] = (want[index + 1] or 0) + 1
      end
      same(want, observed(schema, values, -20, 12))
    end)
  end

  it("is the nearest bucket for values beyond the range, and the sum is exact", function()
    local m, socket = helper.new()
    local h = m:histogram("h", {}, { schema = 0, from = -2, to = 2 })
    for _, v in ipairs { 0, 0.1, 0.25, 0.26, 4, 5, 1e6 } do
      h:observe(v)
    end
    assert(m:flush())
    local got = helper.parse(helper.lines(socket)[1])
    assert.equal(3, got.zero)
    assert.equal(1, got[-1])
    assert.equal(3, got[2])
    assert.equal(7, got.total)
    assert.equal(0 + 0.1 + 0.25 + 0.26 + 4 + 5 + 1e6, got.sum)
  end)

  it("is, for classic bounds, the one that a loop finds, and is cumulative", function()
    math.randomseed(7)
    for _ = 1, 20 do
      local bounds, b = {}, 2 ^ math.random(-30, 3)
      for i = 1, math.random(1, 30) do
        b = b * (1 + math.random() * 3 + 0.001)
        bounds[i] = b
      end
      local m, socket = helper.new { packet = 65507 }
      local h = assert(m:histogram("h", {}, { buckets = bounds }))
      local want = {}
      for _ = 1, 500 do
        local i = math.random(1, #bounds)
        local v = math.random() < 0.2 and bounds[i] or bounds[i] * 2 ^ (math.random() * 4 - 2)
        h:observe(v)
        for j = 1, #bounds do
          want[j] = (want[j] or 0) + (v <= bounds[j] and 1 or 0)
        end
      end
      assert(m:flush())
      local got = {}
      for _, line in ipairs(helper.lines(socket)) do
        local n, le = line:match "^h%.bucket:(%d+)|c|#le:(.+)$"
        if n then
          got[le] = tonumber(n)
        end
      end
      for j, bound in ipairs(bounds) do
        local found
        for le, n in pairs(got) do
          if tonumber(le) == bound then
            found = n
          end
        end
        assert.equal(want[j], found, "le " .. bound)
      end
      assert.equal(500, got["+Inf"])
    end
  end)

  it("refuses values that would make a sum invalid, and counts them", function()
    local m = helper.new()
    local h, c = m:histogram "h", m:counter "c"
    for _, v in ipairs { 0 / 0, math.huge, -math.huge, -1, "x" } do
      h:observe(v)
      c:inc(v)
    end
    h:observe(nil)
    assert.equal(11, m:stats().refused)
    assert.equal(0, m:stats().changed)
  end)
end)
