--- What may stand on a line of DogStatsD, and numbers. The rules are those of Freshet's
-- client for Go: what separates is written as '_'.
local ffi = require "ffi"

local floor, format, type = math.floor, string.format, type

local MAX_VALUE = 200 -- bytes of a label's value; what is longer is no label but a text

local _M = {}

--- inside reports whether a character of s goes on behind byte `at`.
local function inside(s, at)
  local next_byte = s:byte(at + 1)
  return next_byte >= 0x80 and next_byte < 0xc0
end

--- cut returns the first `most` bytes of s or fewer, so that no character is split. It has no
-- loop, and so LuaJIT can compile it into whoever calls it.
local function cut(s, most)
  if #s <= most then
    return s
  end
  local at = most
  if inside(s, at) then
    at = at - 1
    if inside(s, at) then
      at = at - 1
      if inside(s, at) then
        at = at - 1
      end
    end
  end
  return s:sub(1, at)
end

--- What stands for a label's value in the tables of label sets.
function _M.spell(v)
  local kind = type(v)
  if kind == "string" and v ~= "" then
    return cut(v, MAX_VALUE)
  elseif kind == "number" then
    return v == v and v or "nan"
  elseif kind == "boolean" then
    return v and "true" or "false"
  end
  return "none"
end

--- The length of the character at i if it is well-formed UTF-8, else nil: no overlong
-- forms, no surrogates, nothing above U+10FFFF.
local function character(s, i)
  local a, b, c, d = s:byte(i, i + 3)
  local function follows(x)
    return x and x >= 0x80 and x < 0xc0
  end
  if a < 0x80 then
    return 1
  elseif a < 0xc2 or a > 0xf4 or not follows(b) then
    return nil
  elseif a < 0xe0 then
    return 2
  elseif not follows(c) then
    return nil
  elseif a < 0xf0 then
    return not (a == 0xe0 and b < 0xa0 or a == 0xed and b >= 0xa0) and 3 or nil
  end
  return follows(d) and not (a == 0xf0 and b < 0x90 or a == 0xf4 and b >= 0x90) and 4 or nil
end

local function well_formed(s)
  local i = 1
  while i <= #s do
    local n = character(s, i)
    if not n then
      return false
    end
    i = i + n
  end
  return true
end

--- repair returns s with '_' for each byte that is no part of a character.
local function repair(s)
  if not s:find "[\128-\255]" or well_formed(s) then
    return s
  end
  local out, i = {}, 1
  while i <= #s do
    local n = character(s, i)
    out[#out + 1] = n and s:sub(i, i + n - 1) or "_"
    i = i + (n or 1)
  end
  return table.concat(out)
end

local function clean(s, separators)
  return repair((s:gsub(separators, "_")))
end

--- The name of a metric.
function _M.name(s)
  s = clean(s, "[%c:|]")
  if s:sub(1, 3) == "_e{" then -- begins an event
    s = "_e_" .. s:sub(4)
  end
  return s
end

--- The name of a label: its tag is cut at the first ':'.
function _M.key(s)
  return cut(clean(s, "[%c:|,]"), MAX_VALUE)
end

--- The value of a label.
function _M.value(s)
  return clean(cut(s, MAX_VALUE), "[%c|,]")
end

--- A tag as the option `tags` gives it.
function _M.tag(s)
  return clean(s, "[%c|,]")
end

--- The id of a trace, or nil: hexadecimal digits, 32 at most, as W3C and B3 write it.
function _M.trace(s)
  if type(s) ~= "string" or #s > 32 or #s == 0 or s:find "%X" then
    return nil
  end
  return s:lower()
end

-- Numbers of a line, most of which are small: copying is cheaper than formatting.
local SMALL = 1024
local small = require "table.new"(SMALL, 0)
for i = 0, SMALL - 1 do
  small[i] = tostring(i)
end

--- The longest number that put writes, such as -1.2345678901234567e-308.
_M.LONGEST = 24

--- number returns v so that the nearest double to it is v again.
local function number(v)
  if v == floor(v) then
    if v >= 0 and v < SMALL then
      return small[v]
    elseif v < 1e15 and v > -1e15 then
      return format("%.0f", v)
    end
  elseif v >= 1e-6 and v < 1e9 then
    -- Both are whole and exact, so that their quotient is rounded as the text will be.
    local millionths = floor(v * 1e6 + 0.5)
    if millionths / 1e6 == v then
      return format("%.6f", v)
    end
  end
  return format("%.17g", v)
end
_M.number = number

--- shortest is number, for texts that are read and compared: the value of a label.
function _M.shortest(v)
  if v == floor(v) and v < 1e15 and v > -1e15 then
    return format("%.0f", v)
  end
  for digits = 1, 17 do
    local s = format("%." .. digits .. "g", v)
    if tonumber(s) == v then
      return s
    end
  end
end

--- put writes s to b at pos and returns where it ends.
local function put(b, pos, s)
  ffi.copy(b + pos, s, #s)
  return pos + #s
end
_M.put = put

--- put_number writes v to b at pos and returns where it ends.
function _M.put_number(b, pos, v)
  return put(b, pos, number(v))
end

-- Text is cleaned once for a label set: compiling that costs more than it saves.
for _, f in ipairs { character, well_formed, repair, clean, _M.name, _M.key, _M.value, _M.tag, _M.trace, _M.shortest } do
  jit.off(f, true)
end

return _M
