std = "luajit"
max_line_length = 160
files["resty"] = { std = "ngx_lua" }
files["spec"] = { std = "+busted" }
files["demo"] = { globals = { "wrk", "request" } }
