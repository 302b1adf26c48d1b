--- Writes changed series into packets and sends them.
--
-- The fast part is one loop over series for each kind of metric. These loops are flat and use no
-- state of a metric, and every path in them leads to the loop's end, so LuaJIT can compile them
-- whole. LuaJIT would abort traces again and again if a loop had an inner loop, or returned to a
-- function that is not compiled. The functions take variable arguments, because LuaJIT never starts
-- a trace at the head of such a function. All other functions are interpreted (jit.off). When a
-- worker starts, warm runs the loops until LuaJIT has compiled them.
local ffi = require "ffi"
local bit = require "bit"
local text = require "resty.freshet.text"

local put, put_number, LONGEST = text.put, text.put_number, text.LONGEST
local band, huge, fill = bit.band, math.huge, ffi.fill
local _M = {}

-- A tick ends with the first packet that is complete after TICK seconds. A packet takes about 0.1 ms,
-- and longer until the loops are compiled, so a tick takes less than 2 ms.
_M.TICK = 0.001
local ENTRY = LONGEST + 10 -- bytes of a bucket: ';', index, ',', count
local TELEMETRY_GAP = 10 -- seconds, as in other clients
local TELEMETRY = "datadog.dogstatsd.client."

-- The number of series that were left out because their sum is infinite. No server accepts such a sum.
local infinite = ffi.new "double[1]"

-- Each of the following functions writes the series between two places of a ring, as many as fit into
-- the packet. It returns the end of the packet, the next place in the ring, and where to continue
-- within the series at that place (0 is its start).

local function plain_lines(...)
  local b, pos, room, ring, at, mark, mask, cells, labels, head, kind = ...
  local fixed = #head + LONGEST + #kind + 1
  while at ~= mark do
    local id = ring[at]
    local own, v = labels[id], cells[id]
    if pos + fixed + #own > room then
      break
    end
    if v < huge and v > -huge then
      pos = put(b, pos, head)
      pos = put_number(b, pos, v)
      pos = put(b, pos, kind)
      pos = put(b, pos, own)
      b[pos] = 10
      pos = pos + 1
    else
      infinite[0] = infinite[0] + 1
    end
    at = band(at + 1, mask)
  end
  return pos, at, 0
end

--- The cells of a native histogram are the sum, the count of values close to zero, and the buckets.
-- Each turn of the loop handles one cell, or eight empty cells, or the end of a line and the
-- beginning of the next. A single empty bucket within a run is written, because its count is
-- shorter than the head of a new run.
local function native_lines(...)
  local b, pos, room, ring, at, mark, mask, cells, stride, labels, head, base, exemplars, from = ...
  local k, id, series, gap = stride, -1, 0, 2 -- no line is open
  local line, first, stop, own, x = pos, pos, 0, "", ""
  while true do
    if k < stride and pos <= stop then
      local n = cells[series + k]
      if n == 0 then
        local c = series + k
        if k + 8 <= stride
          and cells[c + 1] + cells[c + 2] + cells[c + 3] + cells[c + 4] + cells[c + 5] + cells[c + 6] + cells[c + 7] == 0 then
          k, gap = k + 8, gap + 8
        else
          k, gap = k + 1, gap + 1
        end
      else
        if gap == 1 then
          b[pos], b[pos + 1] = 44, 48
          pos = pos + 2
        elseif gap > 1 then
          local index = base + k
          b[pos] = 59
          if index < 0 then
            pos = pos + 1
            b[pos], index = 45, -index
          end
          pos = put_number(b, pos + 1, index)
        end
        b[pos] = 44
        if n < 10 then -- like most counts of a second
          b[pos + 1] = 48 + n
          pos = pos + 2
        else
          pos = put_number(b, pos + 1, n)
        end
        k, gap = k + 1, 0
      end
    else
      if id >= 0 then
        if pos == first then -- the line has no value
          pos = line
        else
          pos = put(b, pos, "|nh")
          pos = put(b, pos, own)
          pos = put(b, pos, x)
          b[pos] = 10
          pos = pos + 1
        end
        if k < stride then
          return pos, at, k
        end
        at = band(at + 1, mask)
      end
      if at == mark then
        return pos, at, 0
      end
      id = ring[at]
      own, x = labels[id], exemplars[id] or ""
      if from > 0 then
        x = ""
      end
      if pos + #head + 2 * LONGEST + #own + #x + #",|nh\n" + ENTRY > room then
        return pos, at, from
      end
      series, line, gap = id * stride, pos, 2
      stop = room - #own - #x - #"|nh\n" - ENTRY
      local sum, zero = cells[series], cells[series + 1] -- 0 if an earlier line had them
      k, from = from > 2 and from or 2, 0
      if sum < huge then
        pos = put(b, pos, head)
        pos = put_number(b, pos, sum)
        b[pos] = 44
        pos = put_number(b, pos + 1, zero)
        first = pos
        if zero > 0 then
          first = 0
        end
      else
        infinite[0] = infinite[0] + 1
        k, first = stride, pos
      end
    end
  end
end

--- The cells of a classic histogram are the sum and the slots. Its lines are the buckets, the count
-- and the sum. Two packets may share the lines of a series, and only one of them may be sent, so
-- `unsent` holds the unsent amount of each line. Each turn of the loop handles one line or one slot.
-- It adds the count of a slot to the buckets that include the slot. Buckets without new values are
-- written, too: a server ends idle counters, and without the lower buckets a quantile is wrong.
local function classic_lines(...)
  local b, pos, room, ring, at, mark, mask, cells, stride, labels, heads, ends, tagless, longest, unsent, from = ...
  local slots, lines = stride - 1, stride + 1
  local id, series, out, below, own = -1, 0, 0, 0, ""
  local j = lines -- below 0: slot j + slots
  while true do
    if j < 0 then
      local slot = j + slots
      below = below + cells[series + 1 + slot]
      cells[series + 1 + slot] = 0
      unsent[out + slot] = unsent[out + slot] + below
      if j == -1 then
        unsent[out + slots] = unsent[out + slots] + below
        unsent[out + slots + 1] = unsent[out + slots + 1] + cells[series]
        cells[series] = 0
      end
      j = j + 1
    elseif j < lines then
      local n = unsent[out + j]
      if pos + longest + #own > room then
        return pos, at, j + 1
      end
      if n < huge then
        pos = put(b, pos, heads[j])
        pos = put_number(b, pos, n)
        pos = put(b, pos, "|c")
        pos = put(b, pos, own)
        pos = put(b, pos, own == "" and tagless[j] or ends[j])
        b[pos] = 10
        pos = pos + 1
      else
        infinite[0] = infinite[0] + 1
      end
      j = j + 1
    else
      if id >= 0 then
        at = band(at + 1, mask)
      end
      if at == mark then
        return pos, at, 0
      end
      id = ring[at]
      own, series, out, below = labels[id], id * stride, id * lines, 0
      j, from = from > 0 and from - 1 or -slots, 0
    end
  end
end

--- commit clears the flags of series that were sent, and the first `bytes` of their cells.
local function commit(...)
  local ring, at, to, mask, flag, changed, now, cells, bytes = ...
  local n = 0
  while at ~= to do
    local id = ring[at]
    if bytes > 0 then
      fill(cells + id * bytes, bytes)
    end
    flag[id], changed[id] = 0, now
    at = band(at + 1, mask)
    n = n + 1
  end
  return n
end

-- Each kind gives its metric two functions: write, which is one of the functions above, and empty,
-- which clears a series. The array `sent` has the cells to clear after sending, and sent_stride is
-- their number for each series.

local function plain(m, kind)
  local cells, labels, head, ring, mask = m.cells, m.space.labels, m.head, m.ring, m.mask
  m.write = function(b, pos, room, at, mark)
    return plain_lines(b, pos, room, ring, at, mark, mask, cells, labels, head, kind)
  end
  m.empty = function(id)
    cells[id] = 0
  end
end

function _M.counter(m)
  plain(m, "|c")
  m.sent, m.sent_stride = m.cells, 1
end

function _M.gauge(m)
  plain(m, "|g")
  m.sent, m.sent_stride = m.cells, 0 -- clears nothing: the series keeps its value
end

local function wipe(cells, from, to)
  fill(cells + from, (to - from) * 8)
end

function _M.native(m)
  local cells, stride, labels, head, ring, mask = m.cells, m.stride, m.space.labels, m.head, m.ring, m.mask
  local exemplars, base = m.exemplars, m.base - 1 -- base: the index that the bucket of cell 0 would have
  m.sent, m.sent_stride = cells, stride
  m.write = function(b, pos, room, at, mark, from)
    return native_lines(b, pos, room, ring, at, mark, mask, cells, stride, labels, head, base, exemplars, from)
  end
  m.partly = function(id, to)
    wipe(cells, id * stride, id * stride + to)
  end
  m.empty = function(id)
    wipe(cells, id * stride, (id + 1) * stride)
  end
end

function _M.classic(m)
  local cells, stride, labels, ring, mask = m.cells, m.stride, m.space.labels, m.ring, m.mask
  local unsent = m.unsent
  local lines = stride + 1
  local heads, ends, tagless = {}, {}, {}
  for line = 0, lines - 3 do
    local le = "le:" .. (m.bounds[line + 1] and text.shortest(m.bounds[line + 1]) or "+Inf")
    heads[line], ends[line], tagless[line] = m.name .. ".bucket:", "," .. le, "|#" .. le
  end
  heads[lines - 2], ends[lines - 2], tagless[lines - 2] = m.name .. ".count:", "", ""
  heads[lines - 1], ends[lines - 1], tagless[lines - 1] = m.name .. ".sum:", "", ""
  local longest = #m.name + #".bucket:" + LONGEST + #"|c" + #",le:" + LONGEST + 1
  m.sent, m.sent_stride = unsent, lines
  m.write = function(b, pos, room, at, mark, from)
    return classic_lines(b, pos, room, ring, at, mark, mask, cells, stride, labels, heads, ends, tagless, longest, unsent, from)
  end
  m.partly = function(id, to)
    wipe(unsent, id * lines, id * lines + to - 1)
  end
  m.empty = function(id)
    wipe(cells, id * stride, (id + 1) * stride)
    wipe(unsent, id * lines, (id + 1) * lines)
  end
end

for _, kind in ipairs { "counter", "gauge", "native", "classic" } do
  local prepare = _M[kind]
  _M[kind] = function(m)
    prepare(m)
    jit.off(m.write)
    jit.off(m.empty)
    if m.partly then
      jit.off(m.partly)
    end
  end
end
jit.off(wipe)

--- warm writes lines of all kinds to a socket that drops them, until LuaJIT has compiled the loops.
-- That takes some milliseconds.
function _M.warm(metrics)
  local c, g = metrics:counter("c", { "a" }), metrics:gauge("g", { "b" })
  local h, k = metrics:histogram("h", { "a" }), metrics:histogram("k", { "a" }, { buckets = { 0.001, 0.01, 0.1, 1 } })
  local values = { 0, 7, 70, 5000, 1e15, 0.25, 0.1 / 3, 1e-9, 1e10 + 0.5 }
  for round = 1, 24 do
    for i = 1, 36 do
      local v = values[i % #values + 1]
      g:set(round % 2 == 0 and -v or v, i)
      c:inc(v, i)
      for j = 0, 3 do
        local took = 0.001 * 2 ^ (j * 3 + i % 3 / 8)
        h:observe(took + v / 1e12, i)
        k:observe(took, i)
        if i % 3 == 0 then
          h:observe(took * 2 ^ 0.2, i)
          h:observe(took * 2 ^ 0.1, i)
        end
      end
      if i % 9 == 0 then
        for _ = 1, i % 18 == 0 and 12 or 1100 do
          h:observe(0.5, i)
        end
      end
    end
    metrics:flush()
  end
end
jit.off(_M.warm)

local Flusher = {}
Flusher.__index = Flusher

--- new returns a flusher of an instance of resty.freshet.
function _M.new(metrics, socket, clock, packet)
  local memory = ffi.new("uint8_t[?]", packet + 64)
  return setmetatable({
    metrics = metrics,
    socket = socket,
    clock = clock,
    room = packet,
    memory = memory,
    buffer = ffi.cast("uint8_t *", memory),
    filled = 0, -- bytes of the packet
    inside = {}, -- metrics in the packet: of each, the series before next_at, and the cells before next_from of the series there
    told = {}, -- our own counts that were reported
    reported = clock(),
  }, Flusher)
end

--- settle clears the series of a packet that was sent or is lost.
function Flusher:settle()
  local now, counts = self.clock(), self.metrics.counts
  for i, m in ipairs(self.inside) do
    if m.trace_ids then
      local at = m.head_at
      while at ~= m.next_at do
        m.trace_ids[m.ring[at]], m.exemplars[m.ring[at]] = nil, nil
        at = band(at + 1, m.mask)
      end
    end
    counts.sent_series = counts.sent_series
      + commit(m.ring, m.head_at, m.next_at, m.mask, m.flag, m.space.changed, now, m.sent_bytes, m.sent_stride * 8)
    m.head_at = m.next_at
    if m.next_from > 0 then
      m.partly(m.ring[m.next_at], m.next_from)
    end
    self.inside[i] = nil
  end
end

--- forget drops the packet. Its series stay changed, and so will be in the next packet.
function Flusher:forget()
  self.filled = 0
  for i = #self.inside, 1, -1 do
    self.inside[i] = nil
  end
end

--- push sends the packet. If it cannot, it returns false and the reason.
function Flusher:push()
  local bytes = self.filled
  if bytes > 0 then
    local counts = self.metrics.counts
    local ok, err = self.socket:send(self.buffer, bytes)
    if ok then
      counts.packets, counts.bytes = counts.packets + 1, counts.bytes + bytes
    elseif err == "size" then -- trying again would never help
      counts.dropped_packets, counts.dropped_bytes = counts.dropped_packets + 1, counts.dropped_bytes + bytes
    else
      counts.failed_sends = counts.failed_sends + 1
      self:forget()
      return false, err
    end
  end
  self.filled = 0
  self:settle() -- also for series without a line
  return true
end

--- spell_traces formats the exemplars of changed series. It returns false if its time is over
-- before all are formatted.
function Flusher:spell_traces(m, stop)
  while m.spelled ~= m.mark do
    local id = m.ring[m.spelled]
    local raw = m.trace_ids[id]
    if raw then
      local trace = text.trace(raw)
      -- An exemplar is one value of many, so nine digits are enough.
      m.exemplars[id] = trace and ("|x:%s,%.9g,%.0f"):format(trace, m.trace_values[id], m.trace_times[id] * 1000)
      if not trace then
        m.trace_ids[id] = nil
        self.metrics.counts.bad_traces = self.metrics.counts.bad_traces + 1
      end
    end
    m.spelled = band(m.spelled + 1, m.mask)
    if band(m.spelled, 63) == 0 and self.clock() > stop then
      return false
    end
  end
  return true
end

--- run sends the changes from before the round began, for at most `seconds`. It returns "done",
-- "more" if its time is over, or "failed" and the reason.
function Flusher:run(seconds)
  local clock, list, counts = self.clock, self.metrics.list, self.metrics.counts
  local started = clock()
  if not self.round then
    self.round = true
    for _, m in ipairs(list) do
      m.mark, m.spelled = m.tail[0], m.head_at
    end
  end
  for _, m in ipairs(list) do
    if m.trace_ids and m.spelled and not self:spell_traces(m, started + seconds) then
      return "more"
    end
  end
  self:forget()
  self.socket:begin()
  for _, m in ipairs(list) do
    local at, from, mark = m.head_at, 0, m.mark or m.head_at
    while at ~= mark do
      local pos, next_at, next_from = m.write(self.buffer, self.filled, self.room, at, mark, from)
      local went = next_at ~= at or next_from ~= from
      if went then
        if self.inside[#self.inside] ~= m then
          self.inside[#self.inside + 1] = m
        end
        self.filled, m.next_at, m.next_from = pos, next_at, next_from
      elseif self.filled == 0 and #self.inside == 0 then
        counts.too_long = counts.too_long + 1
        local id = m.ring[at]
        m.empty(id)
        m.flag[id] = 0
        next_at, next_from = band(at + 1, m.mask), 0
        m.head_at = next_at
      end
      at, from = next_at, next_from
      if at ~= mark and (went or self.filled > 0 or #self.inside > 0) then
        local ok, err = self:push()
        if not ok then
          self.round = false
          return "failed", err
        end
        if clock() - started > seconds then
          return "more"
        end
      end
    end
  end
  self.round = false
  local ok, err = self:push()
  if ok then
    ok, err = self:report(false)
  end
  counts.refused, infinite[0] = counts.refused + infinite[0], 0
  if not ok then
    return "failed", err
  end
  return "done"
end

--- report sends this library's own counts, under the names that all DogStatsD clients use.
function Flusher:report(now)
  local metrics = self.metrics
  if metrics.telemetry == false or not now and self.clock() - self.reported < TELEMETRY_GAP then
    return true
  end
  local c = metrics.counts
  local keys = {}
  local buffer, filled = self.buffer, 0
  local function push()
    local ok, err = true, nil
    if filled > 0 then
      ok, err = self.socket:send(buffer, filled)
      if ok then
        c.packets, c.bytes = c.packets + 1, c.bytes + filled
        for key, n in pairs(keys) do
          self.told[key] = n
        end
      else
        c.failed_sends = c.failed_sends + 1
      end
    end
    filled, keys = 0, {}
    return ok, err
  end
  local failed
  local function line(name, n, tag)
    local key = name .. (tag or "")
    local more = n - (self.told[key] or 0)
    if more == 0 and self.told[key] then
      return
    end
    local s = ("%s%s:%.0f|c%s%s\n"):format(TELEMETRY, name, more, metrics.own_tags, tag and "," .. tag or "")
    if filled + #s > self.room then
      local ok, err = push()
      failed = failed or not ok and err
    end
    if #s <= self.room then
      filled = put(buffer, filled, s)
      keys[key] = n
    end
  end
  line("aggregated_context", c.sent_series)
  line("packets_sent", c.packets)
  line("bytes_sent", c.bytes)
  line("packets_dropped", c.dropped_packets)
  line("packets_dropped_writer", c.dropped_packets)
  line("bytes_dropped", c.dropped_bytes)
  line("bytes_dropped_writer", c.dropped_bytes)
  line("metric_dropped_on_receive", c.refused + c.crowded + c.too_long)
  line("freshet.refused", c.refused, "reason:value")
  line("freshet.refused", c.crowded, "reason:max_series")
  line("freshet.refused", c.too_long, "reason:too_long")
  line("freshet.overflowed", metrics:overflowed())
  line("freshet.respelled", c.respelled)
  line("freshet.bad_traces", c.bad_traces)
  line("freshet.failed_sends", c.failed_sends)
  local ok, err = push()
  self.reported = self.clock()
  if failed or not ok then
    return false, failed or err
  end
  return true
end

for _, f in pairs(Flusher) do
  if type(f) == "function" then
    jit.off(f, true)
  end
end

return _M
