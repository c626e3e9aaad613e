-- Modules that others wrote, from Debian's packages: luasocket, lpeg, cjson, penlight, luv, under strict globals, alone and on 2 ranks, next to
-- tensors. Each one that is missing is named, and with none the test skips.
local accel = require "accel"
local R, tmp = accel.process.program(), os.getenv "ACCEL_TEST_TMP"

-- package, module, a program for it that prints "right". accel is loaded, and its globals are strict.
local programs = {
  { "lua-socket", "socket", [[
    local socket = require "socket"
    local server = assert(socket.bind("127.0.0.1", 0))
    local _, port = server:getsockname()
    local client = assert(socket.connect("127.0.0.1", port))
    local peer = assert(server:accept())
    client:send "a line\n"
    assert(peer:receive() == "a line" and require "socket.url".parse "http://h:80/p".port == "80")
    assert(require "mime".b64 "accel" == "YWNjZWw=")
    assert(#require "ltn12".source.string "x"() == 1)
    client:close() peer:close() server:close()
  ]] },
  { "lua-lpeg", "lpeg", [[
    local lpeg = require "lpeg"
    local number = lpeg.R "09" ^ 1 / tonumber
    local list = lpeg.Ct(number * ("," * number) ^ 0)
    assert(accel.tensor(list:match "1,22,333"):sum():item() == 356)
    assert(require "re".match("key=value", "{[a-z]+} '=' {.*}") == "key")
  ]] },
  { "lua-cjson", "cjson", [[
    local cjson = require "cjson"
    local t = cjson.decode(cjson.encode { shape = accel.ones(2, 3).shape, none = cjson.null })
    assert(t.shape[2] == 3 and t.none == cjson.null and cjson.encode(accel.json.decode "[1,2]") == "[1,2]")
    assert(not pcall(cjson.encode, accel.ones(2)))
  ]] },
  { "lua-penlight", "pl.List", [[
    local List = require "pl.List"
    assert(List { 3, 1, 2 }:sort():map(function(x) return x * 2 end):join "," == "2,4,6")
    local stringx, tablex, pretty = require "pl.stringx", require "pl.tablex", require "pl.pretty"
    assert(stringx.strip "  a " == "a" and tablex.deepcompare({ 1, { 2 } }, { 1, { 2 } }) and pretty.write({ 1 }, ""):find "1")
    local Animal = require "pl.class"()
    function Animal:_init(name) self.name = name end
    assert(Animal "cat".name == "cat" and require "pl.path".basename "/a/b.lua" == "b.lua")
    assert(require "pl.OrderedMap" { { a = 1 }, { b = 2 } }:keys()[2] == "b")
  ]] },
  { "lua-luv", "luv", [[
    local uv = require "luv"
    local ticks, weight = 0, accel.zeros(1)
    local timer = uv.new_timer()
    timer:start(0, 1, function()
      ticks = ticks + 1
      weight:add_(1)
      if ticks == 5 then timer:close() end
    end)
    uv.run()
    assert(weight:item() == 5 and uv.hrtime() > 0)
  ]] },
}

local path = tmp .. "/m.lua"
local function run(ranks)
  local pipe = assert(io.popen(("'%s' --num-threads 1 %s '%s' 2>&1"):format(R, ranks and "--num-processes " .. ranks or "", path)))
  local text = pipe:read "a"
  return pipe:close() == true, text
end

local missing, found = {}, 0
for _, p in ipairs(programs) do
  if not package.searchpath(p[2], package.path) and not package.searchpath(p[2], package.cpath) then
    missing[#missing + 1] = p[1]
  else
    found = found + 1
    assert(accel.write_file(path, ('local accel = require "accel"\n%s\n%s\nio.write "right\\n"\n'):format(p[3],
      "assert(not pcall(function() return no_such_global end))")))
    for _, ranks in ipairs { false, 2 } do
      local ok, text = run(ranks)
      assert(ok and select(2, text:gsub("right", "")) == (ranks or 1), ("%s on %s: %s"):format(p[2], ranks or 1, text))
    end
  end
end
if #missing > 0 then print("not here: " .. table.concat(missing, " ")) end
if found == 0 then
  print "skipped: none of the packages is installed"
  os.exit(77)
end
print "modules of others: right"
