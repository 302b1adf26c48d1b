local helper = require "spec.helper"
local freshet = require "resty.freshet"
local ffi = require "ffi"

ffi.cdef [[
int freshet_bind(int, const void *, uint32_t) __asm__("bind");
int freshet_getsockname(int, void *, uint32_t *) __asm__("getsockname");
ssize_t freshet_recv(int, void *, size_t, int) __asm__("recv");
]]
local sockets = require "resty.freshet.socket"

-- A server at an address. receive returns the packets that have arrived.
local function serve(address)
  local a = assert(sockets.parse(address))
  local fd = ffi.C.freshet_socket(a.family, 2, 0)
  assert.equal(0, ffi.C.freshet_bind(fd, a.addr, a.len))
  local buffer = ffi.new "char[65536]"
  return {
    receive = function()
      local all = {}
      while true do
        local n = tonumber(ffi.C.freshet_recv(fd, buffer, 65536, 0x40))
        if n < 0 then
          return table.concat(all)
        end
        all[#all + 1] = ffi.string(buffer, n)
      end
    end,
    close = function()
      ffi.C.freshet_close(fd)
    end,
  }
end

--- A free port of IPv4 (family 2) or IPv6 (10), chosen by the kernel.
local function free_port(family)
  local fd = ffi.C.freshet_socket(family, 2, 0)
  local address, size = ffi.new "uint8_t[28]", ffi.new("uint32_t[1]", 28)
  ffi.cast("uint16_t *", address)[0] = family
  ffi.C.freshet_bind(fd, address, family == 2 and 16 or 28)
  ffi.C.freshet_getsockname(fd, address, size)
  ffi.C.freshet_close(fd)
  return address[2] * 256 + address[3]
end

local path = os.tmpname()
for _, address in ipairs { "unix:" .. path, "udp://127.0.0.1:" .. free_port(2), "udp://[::1]:" .. free_port(10) } do
  describe("a server on " .. address:gsub("/.*", ""), function()
    it("that is down, dies and restarts gets everything once", function()
      os.remove(path)
      if address:find "::1" and not pcall(function() serve(address).close() end) then
        pending "there is no IPv6 here"
        return
      end
      local m = assert(freshet.new { server = address, telemetry = false })
      local c = m:counter "c"
      local function flush()
        c:inc(1)
        return (m:flush())
      end
      assert.is_false(flush())
      assert.is_false(flush())
      local server = serve(address)
      assert.is_true(flush())
      assert.equal("c:3|c", server.receive():match "c:%d+|c")
      server.close()
      os.remove(path)
      assert.is_false(flush())
      m.flusher.socket:begin() -- an idle flush in between must not consume the error
      assert.is_false(flush())
      server = serve(address)
      assert.is_true(flush())
      assert.equal("c:3|c", server.receive():match "c:%d+|c")
      server.close()
      os.remove(path)
    end)
  end)
end

it("a server that does not read blocks no caller, and gets the rest later", function()
  os.remove(path)
  local server = serve("unix:" .. path)
  local m = assert(freshet.new { server = "unix:" .. path, telemetry = false, max_series = 100000 })
  local c = m:counter("c", { "a" })
  for i = 1, 100000 do
    c:inc(1, "a value that is rather long, so that many packets are needed: " .. i)
  end
  local ok, err = m:flush()
  assert.is_false(ok)
  assert.equal("full", err)
  local lines = 0
  for _ = 1, 1000 do
    lines = lines + select(2, server.receive():gsub("c:1|c", ""))
    if m:flush() then
      break
    end
  end
  lines = lines + select(2, server.receive():gsub("c:1|c", ""))
  assert.equal(100000, lines)
  os.remove(path)
end)

it("an invalid address is refused", function()
  for _, server in ipairs { "unixstream:///x", "http://x", "", "udp://", "a b", "[::1" } do
    assert.is_nil((sockets.parse(server)), server)
  end
  assert.equal("udp", sockets.parse("localhost").kind)
  assert.truthy(helper)
end)
