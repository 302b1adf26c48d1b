--- Replacements for nginx, the clock and the kernel in tests.
package.path = "./?.lua;" .. package.path
local ffi = require "ffi"
local freshet = require "resty.freshet"

local _M = {}

--- A socket that stores packets. `takes` decides whether the socket accepts the next packet.
function _M.socket()
  return {
    packets = {},
    takes = function() return true end,
    begin = function() end,
    wait = function() end,
    close = function() end,
    send = function(self, b, n)
      local ok, err = self.takes(n)
      if ok then
        self.packets[#self.packets + 1] = ffi.string(b, n)
      end
      return ok, err
    end,
  }
end

--- An instance without telemetry, its socket, and a clock that the test moves.
function _M.new(options)
  local o = { server = "127.0.0.1:8125", telemetry = false }
  for k, v in pairs(options or {}) do
    o[k] = v
  end
  local time = { now = 1000 }
  local socket = _M.socket()
  local m = assert(freshet.new(o, { socket = socket, clock = function()
    time.now = time.now + (time.step or 0)
    return time.now
  end }))
  return m, socket, time
end

--- All lines that were sent, sorted.
function _M.lines(socket)
  local lines = {}
  for _, packet in ipairs(socket.packets) do
    for line in packet:gmatch "([^\n]*)\n" do
      lines[#lines + 1] = line
    end
  end
  table.sort(lines)
  return lines
end

--- Returns the counts of a line of buckets, by index, and the line's schema, sum and zero count.
function _M.parse(line)
  local schema, sum, zero, runs = line:match ":h(%-?%d+),([^,|;]+),([^,|;]+)([^|]*)|nh"
  local h = { schema = tonumber(schema), sum = tonumber(sum), zero = tonumber(zero), total = tonumber(zero) }
  for run in runs:gmatch ";([^;]+)" do
    local index
    for n in run:gmatch "[^,]+" do
      n = tonumber(n)
      if not index then
        index = n
      else
        h[index] = (h[index] or 0) + n
        h.total = h.total + n
        index = index + 1
      end
    end
  end
  return h
end

return _M
