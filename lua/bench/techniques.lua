--- Another technique to compare this library with: Kong's logger, rebuilt from its authors'
-- description. Each label set has an FFI structure with a counter and a histogram, which is found
-- in nested tables. A loop over the bounds finds the bucket of a value.
local ffi = require "ffi"

local _M = {}

local function series_of(bounds)
  local kind = ffi.typeof("struct { double requests, sum; double buckets[" .. #bounds + 1 .. "]; }")
  local all = {}
  return function(route, method, status)
    local methods = all[route] or {}
    local statuses = methods[method] or {}
    local series = statuses[status]
    if not series then
      series = kind()
      all[route], methods[method], statuses[status] = methods, statuses, series
    end
    return series
  end
end

--- by_ipairs returns from within its loop, which aborts the trace of the caller.
function _M.by_ipairs(bounds)
  local find = series_of(bounds)
  local function observe(series, seconds)
    series.sum = series.sum + seconds
    for i, bound in ipairs(bounds) do
      if seconds <= bound then
        series.buckets[i - 1] = series.buckets[i - 1] + 1
        return
      end
    end
    series.buckets[#bounds] = series.buckets[#bounds] + 1
  end
  return function(seconds, route, method, status)
    local series = find(route, method, status)
    series.requests = series.requests + 1
    observe(series, seconds)
  end
end

--- by_loop always runs over all bounds: its buckets are cumulative.
function _M.by_loop(bounds)
  local find = series_of(bounds)
  local function observe(series, seconds)
    series.sum = series.sum + seconds
    local n = #bounds
    for i = 1, n do
      if seconds <= bounds[i] then
        series.buckets[i - 1] = series.buckets[i - 1] + 1
      end
    end
    series.buckets[n] = series.buckets[n] + 1
  end
  return function(seconds, route, method, status)
    local series = find(route, method, status)
    series.requests = series.requests + 1
    observe(series, seconds)
  end
end

return _M
