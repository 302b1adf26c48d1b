local ffi = require "ffi"

ffi.cdef [[ void *freshet_calloc(size_t, size_t) __asm__("calloc"); ]]

--- Returns n zeroes of a C type, or nil and an error. The kernel gives memory to what is used
-- of them only. They are never freed, as pointers to them are in machine code: a worker has
-- them until its end.
return function(kind, n)
  local p = ffi.C.freshet_calloc(n, ffi.sizeof(kind))
  if p == nil then
    return nil, "out of memory"
  end
  return ffi.cast(kind .. " *", p)
end
