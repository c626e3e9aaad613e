-- Strict globals: lua/strict.lua.
local ok, err = pcall(function() return no_such_global end) -- luacheck: ignore
assert(not ok and err:find("undeclared global 'no_such_global'", 1, true)
  and err:find("strict_test.lua:2:", 1, true), err)
ok, err = pcall(function() return pirnt end) -- luacheck: ignore
assert(not ok and err:find("did you mean 'print'?", 1, true), err)

-- A main chunk declares by assigning, nil included.
Declared = nil -- luacheck: ignore
assert(Declared == nil) -- luacheck: ignore
Declared = 5 -- luacheck: ignore
;(function() Declared = 6 end)() -- luacheck: ignore
assert(Declared == 6) -- luacheck: ignore

-- From inside a function it is an error in tests and in the library.
ok, err = pcall(function() Forgotten_local = 1 end) -- luacheck: ignore
assert(not ok and err:find("assignment to undeclared global 'Forgotten_local'", 1, true)
  and err:find("strict_test.lua:", 1, true), err)
assert(rawget(_G, "Forgotten_local") == nil)

-- On purpose.
rawset(_G, "on_purpose", 1)
assert(on_purpose == 1) -- luacheck: ignore
require("accel").global("by_name", 2)
assert(by_name == 2) -- luacheck: ignore

-- In a user's script an assignment inside a function warns and goes on.
local chunk = load("(function() Fresh_global = 3 end)() return Fresh_global", "@script.lua")
warn("@off")
assert(chunk() == 3)
warn("@on")

-- Modules in C may ask for globals of their own, as luv does when it is loaded.
assert(select("#", table.unpack(_G, 1, 2)) == 2)
