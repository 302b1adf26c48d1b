-- luajit requests.lua PORT N [PATH]: sends N requests one after the other by one connection,
-- exactly as many, which wrk cannot.
local ffi = require "ffi"
ffi.cdef [[
struct in_addr4 { uint16_t family, port; uint32_t addr; char zero[8]; };
int socket(int, int, int);
int connect(int, const struct in_addr4 *, uint32_t);
ssize_t send(int, const void *, size_t, int);
ssize_t recv(int, void *, size_t, int);
]]
local port, n, path = tonumber(arg[1]), tonumber(arg[2]), arg[3] or "/"
local fd = ffi.C.socket(2, 1, 0)
local to = ffi.new("struct in_addr4", { family = 2, port = bit.bor(bit.lshift(bit.band(port, 255), 8), bit.rshift(port, 8)) })
to.addr = ffi.abi "le" and 0x0100007f or 0x7f000001
if ffi.C.connect(fd, to, 16) ~= 0 then
  io.stderr:write("requests.lua: nobody listens on port ", port, "\n")
  os.exit(1)
end
local request = "GET " .. path .. " HTTP/1.1\r\nHost: localhost\r\n\r\n"
local buffer = ffi.new "char[65536]"
for _ = 1, n do
  ffi.C.send(fd, request, #request, 0)
  local answer, need = "", nil
  repeat
    local got = tonumber(ffi.C.recv(fd, buffer, 65536, 0))
    if got <= 0 then
      io.stderr:write "requests.lua: the connection was closed\n"
      os.exit(1)
    end
    answer = answer .. ffi.string(buffer, got)
    local _, head = answer:find("\r\n\r\n", 1, true)
    need = need or head and head + tonumber(answer:match "[Cc]ontent%-[Ll]ength: (%d+)")
  until need and #answer >= need
end
