-- luajit requests.lua SOCKET N [PATH]: sends exactly N requests over one connection, one after the
-- other, because wrk cannot send an exact number. SOCKET is the path of a Unix socket.
local ffi = require "ffi"
ffi.cdef [[
struct address { uint16_t family; char path[108]; };
int socket(int, int, int);
int connect(int, const struct address *, uint32_t);
ssize_t send(int, const void *, size_t, int);
ssize_t recv(int, void *, size_t, int);
]]
local socket, n, path = arg[1], tonumber(arg[2]), arg[3] or "/"
local fd = ffi.C.socket(1, 1, 0)
if ffi.C.connect(fd, ffi.new("struct address", 1, socket), 2 + #socket + 1) ~= 0 then
  io.stderr:write("requests.lua: nobody listens on ", socket, "\n")
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
  if answer:sub(1, 12) ~= "HTTP/1.1 200" then
    io.stderr:write("requests.lua: answered ", answer:match "[^\r]*", "\n")
    os.exit(1)
  end
end
