--- Label sets and their ids. An id is a place in the arrays of metrics.
local ffi = require "ffi"
local allocate = require "resty.freshet.memory"
local template = require "resty.freshet.template"
local text = require "resty.freshet.text"

jit.off(true, true) -- see freshet.lua; known label sets are found by the code of template.lua

local type, tostring = type, tostring

local OVERFLOW = 0 -- the id of label sets without a place; others begin at 1
local MAX_LABELS = 8
local SWEEP = 100 -- how many label sets each flush checks for being idle

local _M = { OVERFLOW = OVERFLOW }

--- look_for_room notes in each space whether there is room for another label set.
local function look_for_room(metrics)
  for _, space in pairs(metrics.spaces) do
    local none = space.count >= space.places or metrics.series + #space.metrics > metrics.options.max_series
    space.full[0] = none and 1 or 0
  end
end

_M.look_for_room = look_for_room

--- intern gives a new label set its id, after it has cleaned the set's values. That happens once.
local function intern(metrics, space, ...)
  local values, spelled, respelled = {}, {}, false
  for i = 1, space.arity do
    local raw = select(i, ...)
    values[i] = text.spell(raw)
    local value = tostring(values[i])
    local clean = text.value(value)
    respelled = respelled or clean ~= value or type(raw) == "string" and #raw ~= #value
    spelled[i] = space.keys[i] .. ":" .. clean
  end
  local id = table.remove(space.free) or space.count + 1
  local t = space.root
  for i = 1, space.arity - 1 do
    local inner = t[values[i]]
    if not inner then
      inner = {}
      t[values[i]] = inner
    end
    t = inner
  end
  if space.arity > 0 then
    t[values[space.arity]] = id
  end
  if metrics.options.constant ~= "" then
    spelled[#spelled + 1] = metrics.options.constant
  end
  space.labels[id] = #spelled > 0 and "|#" .. table.concat(spelled, ",") or ""
  space.values[id] = values
  space.changed[id] = metrics.flusher.clock()
  space.count = space.count + 1
  metrics.series = metrics.series + #space.metrics
  metrics.counts.respelled = metrics.counts.respelled + (respelled and 1 or 0)
  look_for_room(metrics)
  return id
end

--- release takes back the place of a label set. Its series must have been sent.
local function release(metrics, space, id)
  local values = space.values[id]
  local path, t = {}, space.root
  for i = 1, space.arity do
    path[i] = t
    t = t[values[i]]
  end
  for i = space.arity, 1, -1 do
    path[i][values[i]] = nil
    if next(path[i]) then
      break
    end
  end
  for _, m in ipairs(space.metrics) do
    m.empty(id)
    for _, handle in ipairs(m.handles[id] or {}) do
      handle.id = nil
    end
    m.handles[id] = nil
  end
  for _, forget in ipairs(space.remembered) do
    forget(id)
  end
  space.labels[id], space.values[id] = nil, nil
  space.free[#space.free + 1] = id
  space.count = space.count - 1
  metrics.series = metrics.series - #space.metrics
  metrics.counts.released = metrics.counts.released + 1
  look_for_room(metrics)
end

--- in_use reports whether a series of the set has an unsent value, or is a gauge other than 0: later
-- calls may add to such a gauge.
local function in_use(space, id)
  for _, m in ipairs(space.metrics) do
    if m.flag[id] ~= 0 or m.kind == "gauge" and m.cells[id] ~= 0 then
      return true
    end
  end
  return false
end

--- sweep checks some label sets, and releases the idle sets.
function _M.sweep(metrics)
  local idle = metrics.options.idle
  if idle == 0 then
    return
  end
  local now = metrics.flusher.clock()
  for _, space in pairs(metrics.spaces) do
    if space.arity > 0 then
      local ids = space.count + #space.free
      for _ = 1, math.min(SWEEP, ids) do
        local id = space.cursor % ids + 1
        space.cursor = id
        if space.values[id] and now - space.changed[id] >= idle and not in_use(space, id) then
          release(metrics, space, id)
        end
      end
    end
  end
end

--- space returns the space of label sets with the given label names. Metrics with the same label
-- names share a space, so a label set of one metric is known to all of them.
function _M.space(metrics, keys, places)
  local name = places .. "\0" .. table.concat(keys, "\0")
  local space = metrics.spaces[name]
  if space then
    return space
  end
  local constant = metrics.options.constant
  space = {
    arity = #keys, keys = keys, places = places, metrics = {}, count = 0, cursor = 0, free = {},
    root = {}, labels = {}, values = {}, -- labels and values are by id
    remembered = {}, -- functions to call with an id whose place is taken back
    changed = allocate("double", places + 1), -- by id, the time of the last change
    full = ffi.new "double[2]", -- whether there is no room, and how many sets found no room
  }
  space.labels[OVERFLOW] = "|#client_overflow:true" .. (constant ~= "" and "," .. constant or "")
  local function slow(...)
    return intern(metrics, space, ...)
  end
  space.miss = space.arity > 0 and template.miss(space.arity, { root = space.root, full = space.full, intern = slow, spell = text.spell }) or slow
  metrics.spaces[name] = space
  if space.arity == 0 then
    intern(metrics, space)
  end
  return space
end

--- keys returns the names of labels as they are sent, or nil and an error.
function _M.keys(labels)
  local keys, seen = {}, {}
  for key in pairs(labels) do
    if type(key) ~= "number" or not labels[1] or key > #labels then
      return nil, 'takes a list of label names, {"route", "status"}'
    end
  end
  for i, label in ipairs(labels) do
    if type(label) ~= "string" or label == "" then
      return nil, "label " .. i .. " must be a name"
    end
    keys[i] = text.key(label)
    if seen[keys[i]] then
      return nil, "label " .. label .. " is given twice"
    end
    seen[keys[i]] = true
  end
  if #keys > MAX_LABELS then
    return nil, "has " .. #keys .. " labels: at most " .. MAX_LABELS
  end
  return keys
end

return _M
