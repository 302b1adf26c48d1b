package = "lua-resty-freshet"
version = "0.1.0-1"
source = {
  url = "git+https://github.com/freshet-io/freshet.git",
  tag = "v0.1.0",
  dir = "freshet/lua",
}
description = {
  summary = "Metrics from nginx and OpenResty that a request does not feel",
  detailed = [[
    Counters, gauges and histograms in FFI arrays of each worker, sent once a second to
    Freshet, or to another server of DogStatsD.
  ]],
  homepage = "https://github.com/freshet-io/freshet",
  license = "Apache-2.0",
}
dependencies = {
  "lua >= 5.1, < 5.2", -- LuaJIT
}
build = {
  type = "builtin",
  modules = {
    ["resty.freshet"] = "resty/freshet.lua",
    ["resty.freshet.buckets"] = "resty/freshet/buckets.lua",
    ["resty.freshet.flush"] = "resty/freshet/flush.lua",
    ["resty.freshet.http"] = "resty/freshet/http.lua",
    ["resty.freshet.labels"] = "resty/freshet/labels.lua",
    ["resty.freshet.memory"] = "resty/freshet/memory.lua",
    ["resty.freshet.socket"] = "resty/freshet/socket.lua",
    ["resty.freshet.template"] = "resty/freshet/template.lua",
    ["resty.freshet.text"] = "resty/freshet/text.lua",
  },
}
