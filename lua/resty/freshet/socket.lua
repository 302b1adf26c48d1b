--- A datagram socket by FFI. It never blocks. Unlike cosockets, it works in every phase of nginx,
-- so it can also send in exit_worker. It works only on Linux.
local ffi = require "ffi"
local bit = require "bit"

local C = ffi.C
local _M = {}

ffi.cdef [[
struct freshet_sockaddr { uint16_t family; char data[126]; };
struct freshet_addrinfo {
  int flags, family, socktype, protocol;
  uint32_t addrlen;
  struct freshet_sockaddr *addr;
  char *canonname;
  struct freshet_addrinfo *next;
};
struct freshet_pollfd { int fd; short events, revents; };
struct freshet_timespec { long sec; long nsec; };
int freshet_socket(int, int, int) __asm__("socket");
int freshet_connect(int, const struct freshet_sockaddr *, uint32_t) __asm__("connect");
ssize_t freshet_send(int, const void *, size_t, int) __asm__("send");
int freshet_close(int) __asm__("close");
int freshet_poll(struct freshet_pollfd *, unsigned long, int) __asm__("poll");
int freshet_getaddrinfo(const char *, const char *, const struct freshet_addrinfo *, struct freshet_addrinfo **) __asm__("getaddrinfo");
void freshet_freeaddrinfo(struct freshet_addrinfo *) __asm__("freeaddrinfo");
char *freshet_strerror(int) __asm__("strerror");
int freshet_clock_gettime(int, struct freshet_timespec *) __asm__("clock_gettime");
]]

-- These values are the same on every Linux that LuaJIT runs on, except MIPS.
local AF_UNIX, AF_INET = 1, 2
local SOCK_DGRAM, SOCK_CLOEXEC = 2, 0x80000
local MSG_DONTWAIT, MSG_NOSIGNAL = 0x40, 0x4000
local EINTR, EAGAIN, EMSGSIZE, ENOBUFS = 4, 11, 90, 105
local POLLOUT = 4
local CLOCK_MONOTONIC = 1
local MAX_PATH = 107 -- bytes of sun_path without the final zero

local time = ffi.new "struct freshet_timespec"

--- Seconds of the monotonic clock.
function _M.clock()
  C.freshet_clock_gettime(CLOCK_MONOTONIC, time)
  return tonumber(time.sec) + tonumber(time.nsec) * 1e-9
end

--- Reads the option `server`. A name is resolved only once, since resolving blocks the worker.
function _M.parse(server)
  if type(server) ~= "string" then
    return nil, "must be a string, such as unix:/run/freshet/dogstatsd.sock or udp://127.0.0.1:8125"
  end
  local path = server:match "^unixgram://(/.+)$" or server:match "^unix://(/.+)$" or server:match "^unix:(/.+)$" or server:match "^(/.+)$"
  if path then
    if #path > MAX_PATH then
      return nil, "has a path of " .. #path .. " bytes: at most " .. MAX_PATH .. " fit into a socket's address"
    end
    local to = ffi.new "struct freshet_sockaddr"
    to.family = AF_UNIX
    ffi.copy(to.data, path)
    return { kind = "unix", family = AF_UNIX, addr = to, len = 2 + #path + 1, transport = "uds", packet = 8192 }
  end
  local at = server:match "^udp://(.+)$" or not server:find "://" and not server:find "^unix" and server
  if not at or at == "" then
    return nil, "must begin with unix:/ or udp://, or be host:port"
  end
  local host, port = at:match "^%[([^%]]+)%]:?(%d*)$"
  if not host then
    host, port = at:match "^([^:/%s]+):?(%d*)$"
  end
  if not host or port ~= "" and (tonumber(port) < 1 or tonumber(port) > 65535) then
    return nil, "must be host:port with a port from 1 to 65535; IPv6 in brackets: [::1]:8125"
  end
  local hints, found = ffi.new "struct freshet_addrinfo", ffi.new "struct freshet_addrinfo *[1]"
  hints.socktype = SOCK_DGRAM
  if C.freshet_getaddrinfo(host, port ~= "" and port or "8125", hints, found) ~= 0 then
    return nil, "has an unknown host: " .. host .. "; give an address if nginx cannot resolve names when it starts"
  end
  local to = ffi.new "struct freshet_sockaddr"
  local info = found[0]
  ffi.copy(to, info.addr, info.addrlen)
  local a = { kind = "udp", family = info.family, addr = to, len = info.addrlen, transport = "udp", packet = 1432 }
  C.freshet_freeaddrinfo(info)
  local bytes = ffi.cast("uint8_t *", to.data)
  -- A loopback address is in 127.0.0.0/8, right after the port, or it is ::1, after the port and
  -- the flow label.
  a.loopback = a.family == AF_INET and bytes[2] == 127 or a.family ~= AF_INET and ffi.string(bytes + 6, 16) == ("\0"):rep(15) .. "\1"
  return a
end

local Socket = {}
Socket.__index = Socket

function _M.new(address)
  return setmetatable({ address = address, fd = -1 }, Socket)
end

function Socket:connect()
  local a = self.address
  local fd = C.freshet_socket(a.family, bit.bor(SOCK_DGRAM, SOCK_CLOEXEC), 0)
  if fd < 0 then
    return self:failed(ffi.errno())
  end
  if C.freshet_connect(fd, a.addr, a.len) ~= 0 then
    self:failed(ffi.errno())
    C.freshet_close(fd)
    return nil
  end
  self.fd = fd
  return true
end

function Socket:failed(errno)
  self.reason = ffi.string(C.freshet_strerror(errno))
end

function Socket:close()
  if self.fd >= 0 then
    C.freshet_close(self.fd)
    self.fd = -1
  end
end

--- begin prepares for the packets of a flush.
function Socket:begin()
  self.asks = self.address.loopback
end

-- ask sends an empty line over UDP on the loopback interface. If there is no server, the next send
-- fails, but its packet is not lost.
function Socket:ask()
  self.asks = false
  for _ = 1, 2 do
    if self.fd < 0 and not self:connect() then
      return
    end
    if C.freshet_send(self.fd, "\n", 1, bit.bor(MSG_DONTWAIT, MSG_NOSIGNAL)) >= 0 then
      return
    end
    self:close() -- this error was about an earlier packet, so ask again
  end
end

--- send returns true if the kernel accepted the packet. Otherwise it returns nil and one of these
-- reasons: "full" if the server's queue is full, "size" if a packet of this length can never be
-- sent, or "down". For "down", the field `reason` has the kernel's error.
function Socket:send(packet, bytes)
  if self.asks then
    self:ask()
  end
  for _ = 1, 2 do
    if self.fd < 0 and not self:connect() then
      return nil, "down"
    end
    if C.freshet_send(self.fd, packet, bytes, bit.bor(MSG_DONTWAIT, MSG_NOSIGNAL)) >= 0 then
      return true
    end
    local errno = ffi.errno()
    self:failed(errno)
    if errno == EAGAIN or errno == ENOBUFS then
      return nil, "full"
    elseif errno == EMSGSIZE then
      return nil, "size"
    elseif errno ~= EINTR then
      -- After a restart the server has another socket at the same address, so connect again. An
      -- error over UDP is about an earlier packet, which is lost.
      self:close()
      if self.address.kind == "udp" then
        return nil, "down"
      end
    end
  end
  return nil, "down"
end

--- wait returns when the socket accepts another packet, or after ms milliseconds.
function Socket:wait(ms)
  local p = ffi.new("struct freshet_pollfd", { fd = self.fd, events = POLLOUT })
  C.freshet_poll(p, 1, ms)
end

-- These functions are called once per packet, by functions that are not compiled either: see
-- flush.lua.
for _, f in ipairs { _M.parse, _M.new, _M.clock, Socket.connect, Socket.failed, Socket.close, Socket.begin, Socket.ask, Socket.send, Socket.wait } do
  jit.off(f)
end

return _M
