--- Makes tables that give the bucket of a value without a loop. The leading bits of the double
-- select a cell. A cell is so narrow that it has at most one bound, so one comparison finds the
-- bucket. template.lua writes the look-up inline:
--
--   v = min(max(v, low), high)
--   cell = rshift(high word of v, shift) - offset
--   slot = first[cell] + (v > limit[cell] and 1 or 0)
--
-- Slot 0 is for values up to the lowest bound, slot n for values above the n-th bound. Upper
-- bounds are inclusive.
local ffi = require "ffi"
local bit = require "bit"

local _M = {}

local MAX_CELLS = 65536 -- 10 bytes each: 640 KiB for the widest range
local MAX_FINE = 12 -- the narrowest cell is 2^-12 of an octave

local word = ffi.new "union { double d; int32_t w[2]; int64_t q; }"
local HIGH_WORD = ffi.abi "le" and 1 or 0

local function high_word(v)
  word.d = v
  return word.w[HIGH_WORD]
end

--- 2^x, rounded like Go's math.Exp2, so that a value has the same bucket here as in the collector.
-- In 30 of 256 cases this result is not the nearest double.
local function exp2(x)
  local k = math.floor(x + 0.5)
  local t = x - k
  local hi, lo = t * 6.93147180369123816490e-01, -t * 1.90821492927058770002e-10
  local r = hi - lo
  t = r * r
  local c = r - t * (1.66666666666666657415e-01 + t * (-2.77777777770155933842e-03 + t * (6.61375632143793436117e-05
    + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))))
  local y = 1 - ((lo - (r * c) / (2 - c)) - hi)
  return math.ldexp(y, k)
end

--- The upper bound of a bucket of a Prometheus native histogram.
local function bound(schema, index)
  local per_octave = 2 ^ schema
  local octave = math.floor(index / per_octave)
  local rest = index / per_octave - octave
  if rest == 0 then
    return math.ldexp(1, octave)
  end
  return math.ldexp(exp2(rest) / 2, octave + 1)
end
_M.bound = bound

--- Makes the tables for n ascending bounds above 0. bounds[1] is the upper bound of slot 0.
-- Returns nil if two bounds are too close for cells of 2^-fine of an octave.
local function tables(bounds, low, high, fine)
  local shift = 20 - fine
  local offset = bit.rshift(high_word(low), shift)
  local cells = bit.rshift(high_word(high), shift) - offset + 1
  if cells > MAX_CELLS then
    return nil
  end
  local first, limit = ffi.new("int16_t[?]", cells), ffi.new("double[?]", cells)
  local at = 1
  for cell = 0, cells - 1 do
    local function start(c)
      word.q = 0
      word.w[HIGH_WORD] = bit.lshift(c + offset, shift)
      return word.d
    end
    local from, to = start(cell), start(cell + 1)
    while bounds[at] and bounds[at] < from do
      at = at + 1
    end
    if bounds[at + 1] and bounds[at + 1] < to then
      return nil
    end
    first[cell], limit[cell] = at - 1, bounds[at] or math.huge
  end
  return { first = first, limit = limit, shift = shift, offset = offset, low = low, high = high, slots = #bounds + 1 }
end

--- Tables for the buckets of a native histogram between 2^from and 2^to. The last bucket also
-- has the higher values. Slot i is bucket base + i; slot 0 is the zero bucket.
function _M.native(schema, from, to)
  local width = schema < 0 and 2 ^ -schema or 1 -- of a bucket in octaves, at least 1
  from, to = math.floor(from / width) * width, math.ceil(to / width) * width
  local base, last = from * 2 ^ schema, to * 2 ^ schema
  local bounds = {}
  for index = base, last do
    bounds[#bounds + 1] = bound(schema, index)
  end
  local t = tables(bounds, math.ldexp(1, from), math.ldexp(1, to), math.max(schema, 0) + 1)
  if t then
    t.base, t.slots = base, #bounds -- no value is above the last bound
  end
  return t
end

--- Tables for given bounds, ascending and above 0. Slot #bounds is +Inf.
function _M.classic(bounds)
  local _, from = math.frexp(bounds[1])
  local _, to = math.frexp(bounds[#bounds])
  local low, high = math.ldexp(1, from - 1), math.ldexp(1, to)
  for fine = 0, MAX_FINE do
    local t = tables(bounds, low, high, fine)
    if t then
      return t
    end
  end
  return nil
end

-- Tables are made only once, so these functions need not be compiled.
for _, f in ipairs { exp2, bound, tables, _M.native, _M.classic } do
  jit.off(f, true)
end

return _M
