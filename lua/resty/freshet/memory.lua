local ffi = require "ffi"

ffi.cdef [[ void *freshet_calloc(size_t, size_t) __asm__("calloc"); ]]

--- Returns n zeroes of a C type, or nil and an error. Only pages in use take memory. The zeroes are
-- never freed before the worker exits, because machine code has pointers to them.
return function(kind, n)
  local p = ffi.C.freshet_calloc(n, ffi.sizeof(kind))
  if p == nil then
    return nil, "out of memory"
  end
  return ffi.cast(kind .. " *", p)
end
