--- The texts and numbers of DogStatsD lines. The rules are the same as in Freshet's client for Go:
-- separators in a text become '_'.
local ffi = require "ffi"

local floor, format, type = math.floor, string.format, type

local MAX_VALUE = 200 -- bytes of a label's value; longer values are cut

local _M = {}

--- inside reports whether byte `at` of s is followed by the rest of its character.
local function inside(s, at)
  local next_byte = s:byte(at + 1)
  return next_byte >= 0x80 and next_byte < 0xc0
end

--- cut returns at most the first `most` bytes of s, without splitting a character. It has no loop,
-- so LuaJIT can compile it into its callers.
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

--- The key for a label's value in the tables of label sets.
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

--- The length of the character at i, or nil if it is not well-formed UTF-8: an overlong form, a
-- surrogate, or above U+10FFFF.
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

--- repair returns s with '_' in place of each byte that is not part of a character.
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

--- The name of a metric as it is sent.
function _M.name(s)
  s = clean(s, "[%c:|]")
  if s:sub(1, 3) == "_e{" then -- begins an event
    s = "_e_" .. s:sub(4)
  end
  return s
end

--- The name of a label as it is sent. It has no ':', because that character ends the name.
function _M.key(s)
  return cut(clean(s, "[%c:|,]"), MAX_VALUE)
end

--- The value of a label as it is sent.
function _M.value(s)
  return clean(cut(s, MAX_VALUE), "[%c|,]")
end

--- A tag of the option `tags` as it is sent.
function _M.tag(s)
  return clean(s, "[%c|,]")
end

--- A trace id as it is sent: at most 32 hexadecimal digits, as in W3C and B3. Nil for other texts.
function _M.trace(s)
  if type(s) ~= "string" or #s > 32 or #s == 0 or s:find "%X" then
    return nil
  end
  return s:lower()
end

-- Texts of small numbers. Most numbers of a line are small, and copying is cheaper than formatting.
local SMALL = 1024
local small = require "table.new"(SMALL, 0)
for i = 0, SMALL - 1 do
  small[i] = tostring(i)
end

--- Bytes of the longest number that put_number writes, such as -1.2345678901234567e-308.
_M.LONGEST = 24

--- number returns v as a text that reads back as exactly v.
local function number(v)
  if v == floor(v) then
    if v >= 0 and v < SMALL then
      return small[v]
    elseif v < 1e15 and v > -1e15 then
      return format("%.0f", v)
    end
  elseif v >= 1e-6 and v < 1e9 then
    -- millionths and 1e6 are exact integers, so reading the text gives the same rounded quotient.
    local millionths = floor(v * 1e6 + 0.5)
    if millionths / 1e6 == v then
      return format("%.6f", v)
    end
  end
  return format("%.17g", v)
end
_M.number = number

--- shortest returns the shortest text that reads back as v, for values of labels.
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

--- put writes s to b at pos, and returns the position behind it.
local function put(b, pos, s)
  ffi.copy(b + pos, s, #s)
  return pos + #s
end
_M.put = put

--- put_number writes v to b at pos, and returns the position behind it.
function _M.put_number(b, pos, v)
  return put(b, pos, number(v))
end

-- Texts are cleaned once per label set, so compiling these functions costs more than it saves.
for _, f in ipairs { character, well_formed, repair, clean, _M.name, _M.key, _M.value, _M.tag, _M.trace, _M.shortest } do
  jit.off(f, true)
end

return _M
