-- luajit bench/calls.lua: nanoseconds of CPU to count a request. Each call is compiled and comes from
-- C, as in nginx. The second number excludes the cost of an empty function. The numbers are medians of
-- 15 turns. Bound: 60 ns, including the entry from C.
package.path = arg[0]:gsub("bench/calls%.lua$", "") .. "?.lua;" .. package.path
local freshet = require "resty.freshet"

local metrics = assert(freshet.new({ server = "127.0.0.1:9" }, { socket = { begin = function() end } }))
local labels = { "route", "method", "status" }
local requests = metrics:counter("requests", labels)
local latency = metrics:histogram("latency", labels)
local classic = metrics:histogram("classic", labels, { buckets = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20 } })
local requests_home, latency_home = requests:with("home", "GET", 200), latency:with("home", "GET", 200)

local route, method, status, took = "home", "GET", 200, 0.0123
local cases = {
  { "empty", function() end },
  { "native", function()
    requests:inc(1, route, method, status)
    latency:observe(took, route, method, status)
  end },
  { "classic", function()
    requests:inc(1, route, method, status)
    classic:observe(took, route, method, status)
  end },
  { "handles", function()
    requests_home:inc(1)
    latency_home:observe(took)
  end },
}

-- load, which is in C, calls its function for each piece of a text. Each case loads its own copy of
-- the source: with a shared copy, the machine code would first check which case it runs.
local N = 1000000
local function turn_of(f)
  return loadstring [[
    local f, n = ...
    local left
    local function piece()
      f()
      left = left - 1
      return left > 0 and " " or nil
    end
    return function()
      left = n
      local t = os.clock()
      load(piece)
      return (os.clock() - t) / n * 1e9
    end]](f, N)
end
for _, case in ipairs(cases) do
  case.turn = turn_of(case[2])
end

local turns = {}
for i = 1, 15 do
  for _, case in ipairs(cases) do
    took = i / 100 -- the values fall into many buckets
    turns[case[1]] = turns[case[1]] or {}
    table.insert(turns[case[1]], case.turn())
  end
end
local function median(list)
  table.sort(list)
  return list[math.floor(#list / 2) + 1]
end
for _, case in ipairs(cases) do
  local all = median(turns[case[1]])
  print(("%s %.1f"):format(case[1], all) .. (case[1] ~= "empty" and (" %.1f"):format(all - median(turns.empty)) or ""))
end
