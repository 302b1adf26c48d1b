-- A script for wrk: the requests of visitors of a shop.
local pages = {
  { 40, "/" }, { 30, "/static/" }, { 20, "/search?q=" }, { 6, "/checkout" }, { 4, "/login" },
}

local at = {}
for _, page in ipairs(pages) do
  for _ = 1, page[1] do
    at[#at + 1] = page[2]
  end
end

function request()
  local path = at[math.random(#at)]
  if path == "/static/" or path == "/search?q=" then
    path = path .. math.random(500)
  end
  return wrk.format("GET", path)
end
