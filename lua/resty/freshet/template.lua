--- Writes the functions that requests call.
--
-- Each kind of metric and number of labels has its own source text. The text has no variable
-- arguments and no loop over labels, because either would keep LuaJIT from compiling the caller. It
-- is loaded anew for each metric, so that the metric's pointers and sizes become constants of the
-- machine code. If metrics shared a function, its code would load and check each pointer and size.
local _M = {}

-- Finds the id of a label set in nested tables. If a value is not found, t or id is nil, and `miss`
-- finds or makes the id.
local function find(arity)
  if arity == 0 then
    return "local id = 1"
  elseif arity == 1 then
    return "local id = root[a1]\nif not id then id = miss(LABELS) end"
  end
  local lines = { "local t = root[a1]" }
  for i = 2, arity - 1 do
    lines[i] = ("t = t and t[a%d]"):format(i)
  end
  lines[arity] = ("local id = t and t[a%d]"):format(arity)
  lines[arity + 1] = "if not id then id = miss(LABELS) end"
  return table.concat(lines, "\n")
end

-- Accepts only numbers that a server accepts: not negative, not infinite, not NaN.
local CHECK = [[
local v = tonumber(n)
if not v or not (v >= 0 and v <= 1.7976931348623157e308) then return refuse(v) end]]

local CHECK_FINITE = [[
local v = tonumber(n)
if not v or not (v >= -1.7976931348623157e308 and v <= 1.7976931348623157e308) then return refuse(v) end]]

-- Appends the series to the ring of changed ones, unless it is there already.
local MARK = [[
if flag[id] == 0 then
  flag[id] = 1
  local at = tail[0]
  ring[at] = id
  tail[0] = band(at + 1, RING_MASK)
end]]

local ADD = [[
cells[id] = cells[id] + v]]

local SET = [[
if id == 0 then return crowd() end
cells[id] = v]]

local SHIFT_BY = [[
if id == 0 then return crowd() end
cells[id] = cells[id] + v]]

-- See buckets.lua. The comparison is the sign bit of limit - v, which is 1 if v is above the limit.
-- For positive doubles, the difference of their bits has the same sign. So the code has no branch, and
-- no side trace.
local OBSERVE = [[
word.d = min(max(v, LOW), HIGH)
local cell = rshift(word.w[HIGH_WORD], SHIFT) - OFFSET
local at = id * STRIDE
cells[at] = cells[at] + v
at = at + 1 + first[cell] + tonumber(rshift(limit[cell] - word.q, 63))
cells[at] = cells[at] + 1]]

-- An empty text, or one that is too long for a trace id, does not replace an earlier trace id. The
-- digits are checked when the id is sent, because LuaJIT could not compile a pattern match here.
local TRACE = [[
if id > 0 and type(trace) == "string" and #trace > 0 and #trace <= 32 then
  trace_ids[id], trace_values[id], trace_times[id] = trace, v, now()
end]]

local PROLOGUE = [[
local env = ...
local root, miss, refuse, crowd = env.root, env.miss, env.refuse, env.crowd
local cells, flag, ring, tail = env.cells, env.flag, env.ring, env.tail
local word, first, limit = env.word, env.first, env.limit
local trace_ids, trace_values, trace_times, now = env.trace_ids, env.trace_values, env.trace_times, env.now
local again = env.again
local tonumber, type, min, max = tonumber, type, math.min, math.max
local band, rshift = bit.band, bit.rshift
]]

local function labels(arity)
  local names = {}
  for i = 1, arity do
    names[i] = "a" .. i
  end
  return table.concat(names, ", ")
end

--- method returns the sources of three functions: one that takes label values, one for handles,
-- which know their id, and one that takes the id. `before` lists the parameters before the labels.
local function method(check, find_id, what, mark, before, arity)
  local params = arity > 0 and ", LABELS" or ""
  local by_labels = table.concat({ "function(_, n" .. before .. params .. ")", check, find_id, what, mark, "end" }, "\n")
  local by_handle = table.concat({
    "function(h, n" .. before .. ")", check, "local id = h.id", "if not id then id = again(h) end", what, mark, "end",
  }, "\n")
  local by_id = table.concat({ "function(id, n" .. before .. ")", check, what, mark, "end" }, "\n")
  return by_labels, by_handle, by_id
end

--- build returns three tables of functions: methods of the metric, methods of handles, and functions
-- that take an id. `kind` is counter, gauge or histogram. `constants` are written into the text.
function _M.build(kind, arity, constants, env)
  local methods = {}
  local function add(name, check, what, before)
    methods[#methods + 1] = { name, method(check, find(arity), what, MARK, before or "", arity) }
  end
  if kind == "counter" then
    add("inc", CHECK, ADD)
  elseif kind == "gauge" then
    add("set", CHECK_FINITE, SET)
    add("inc", CHECK_FINITE, SHIFT_BY)
  else
    add("observe", CHECK, OBSERVE)
    add("observe_traced", CHECK, env.trace_ids and OBSERVE .. "\n" .. TRACE or OBSERVE, ", trace")
  end
  local source = { PROLOGUE .. "return {" }
  for form = 2, 4 do
    for _, m in ipairs(methods) do
      source[#source + 1] = m[1] .. " = " .. m[form] .. ","
    end
    source[#source + 1] = form < 4 and "}, {" or "}"
  end
  source = table.concat(source, "\n")
  source = source:gsub("LABELS", labels(arity)):gsub("%f[%u][%u_]+%f[^%u_]", constants)
  return assert(loadstring(source, "=freshet." .. kind .. arity))(env)
end

--- miss returns a function for label sets that were not found by their values as given. The set may
-- be known under another spelling: a missing value is "none", and a boolean is its text. If it is
-- not known, it gets an id if there is room.
function _M.miss(arity, env)
  local lines = {
    "local root, full, intern, spell = ...",
    "return function(LABELS)",
    "local t = root[spell(a1)]",
  }
  for i = 2, arity do
    lines[#lines + 1] = ("t = t and t[spell(a%d)]"):format(i)
  end
  lines[#lines + 1] = "if t then return t end"
  lines[#lines + 1] = "if full[0] ~= 0 then full[1] = full[1] + 1 return 0 end"
  lines[#lines + 1] = "return intern(LABELS)"
  lines[#lines + 1] = "end"
  local source = table.concat(lines, "\n"):gsub("LABELS", labels(arity))
  return assert(loadstring(source, "=freshet.miss" .. arity))(env.root, env.full, env.intern, env.spell)
end

return _M
