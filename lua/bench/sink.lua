-- luajit sink.lua PATH: a server that reads datagrams from a Unix socket and drops them.
local ffi = require "ffi"
ffi.cdef [[
struct address { uint16_t family; char path[108]; };
int socket(int, int, int);
int bind(int, const struct address *, uint32_t);
ssize_t recv(int, void *, size_t, int);
]]
local path = arg[1]
local fd = ffi.C.socket(1, 2, 0)
if ffi.C.bind(fd, ffi.new("struct address", 1, path), 2 + #path + 1) ~= 0 then
  io.stderr:write("sink.lua: could not listen on ", path, "\n")
  os.exit(1)
end
local buffer = ffi.new "char[65536]"
while true do
  ffi.C.recv(fd, buffer, 65536, 0)
end
