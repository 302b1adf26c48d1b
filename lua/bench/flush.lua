-- luajit bench/flush.lua [SERIES [classic|exemplars]]: milliseconds of CPU of a flush, and of its
-- longest tick, to a socket that accepts everything. The flush sends SERIES label sets, each with a
-- counter and with a histogram that has values in 12 buckets. The numbers are medians of the last 21
-- of 60 flushes.
package.path = arg[0]:gsub("bench/flush%.lua$", "") .. "?.lua;" .. package.path
local freshet = require "resty.freshet"
local flush = require "resty.freshet.flush"

local n, shape = tonumber(arg[1] or 500), nil
if arg[2] == "classic" then
  shape = { buckets = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20 } }
end
local socket = { begin = function() end, send = function() return true end }
local metrics = assert(freshet.new({
  server = "unix:/nowhere", max_series = 100000, telemetry = false, exemplars = arg[2] == "exemplars",
}, { socket = socket }))
local labels = { "route", "method", "status" }
local requests, latency = metrics:counter("http.requests", labels), metrics:histogram("http.request.duration", labels, shape)
local routes = {}
for i = 1, n do
  routes[i] = "route" .. i
end

local all, longest = {}, {}
for i = 1, 60 do
  for _, route in ipairs(routes) do
    for j = 1, 12 do
      requests:inc(1, route, "GET", 200)
      -- Whole milliseconds, as nginx measures.
      latency:observe_traced(math.floor(2 ^ (j * 0.8) * 4) / 1000, "4bf92f3577b34da6a3ce929d0e0e4736", route, "GET", 200)
    end
  end
  collectgarbage()
  local total, most = 0, 0
  repeat
    local t = os.clock()
    local state = metrics.flusher:run(flush.TICK)
    t = (os.clock() - t) * 1000
    total, most = total + t, math.max(most, t)
  until state ~= "more"
  if i > 39 then
    all[#all + 1], longest[#longest + 1] = total, most
  end
end
table.sort(all)
table.sort(longest)
print(("%d label sets: %.2f ms, longest tick %.2f ms"):format(n, all[11], longest[11]))
