-- What the host changes in its Lua state: lua/boot.lua, and tracebacks: lua/traceback.lua.
local accel = require "accel"

-- Chunks are text.
local binary = string.dump(function() return 1 end)
local f, message = load(binary)
assert(f == nil and message:find("binary", 1, true))
f, message = load("return 1", "x", "b")
assert(f == nil and message:find("binary", 1, true))
assert(load("return 1", "x", "bt")() == 1 and load("return ...", "x")(3) == 3)
local env = {}
assert(load("y = 1", "x", "t", env) and pcall(load("y = 1", "x", "t", env)) and env.y == 1)
local tmp = (os.getenv("ACCEL_TEST_TMP") or ".") .. "/"
local function write(name, text)
  local file = assert(io.open(tmp .. name, "wb"))
  file:write(text)
  file:close()
end
write("binary_module.lua", binary)
write("broken_module.lua", "return +")
write("plain_module.lua", "return { name = ..., value = 7 }")
package.path = tmp .. "?.lua;" .. package.path
assert(loadfile(tmp .. "binary_module.lua") == nil and not pcall(dofile, tmp .. "binary_module.lua"))
local ok, err = pcall(require, "binary_module")
assert(not ok and tostring(err):find("binary", 1, true), err)
ok, err = pcall(require, "broken_module")
assert(not ok and tostring(err):find("broken_module.lua", 1, true))
assert(require("plain_module").value == 7 and require("plain_module").name == "plain_module")
ok, err = pcall(require, "no.such.module")
assert(not ok and tostring(err):find("no/such/module.lua", 1, true))
assert(dofile(tmp .. "plain_module.lua").value == 7)

-- Tracebacks show the tensors of each function.
local function inner(weights_ab)
  local hidden = weights_ab * 2
  local plain = 5
  return accel.traceback("what happened", plain - 4 + (hidden.ndim - 2))
end
local text = (function()
  local outer_tensor = accel.zeros(4, { dtype = "i64" })
  local t = inner(accel.zeros(2, 3))
  return t, outer_tensor
end)()
assert(text:find("^what happened\nstack traceback:\n"))
assert(text:find("weights_ab: f32 (2, 3), hidden: f32 (2, 3)", 1, true), text)
assert(text:find("outer_tensor: i64 (4)", 1, true) and text:find("boot_test.lua:", 1, true)
  and not text:find("plain", 1, true))
-- values that misbehave when printed
assert(accel.traceback(setmetatable({}, { __tostring = error })):find("cannot be printed", 1, true))
local deep
deep = function(n) if n == 0 then return accel.traceback("deep") end return (deep(n - 1)) end
assert(select(2, deep(200):gsub("\n", "")) < 60)

-- The library's own frames are passed over: the line named is the script's.
local nn = accel.nn
ok, err = pcall(function() return nn.Linear(3, 2)(accel.zeros(4, 5)) end)
assert(not ok and tostring(err):find("^[^:]*boot_test.lua:"), tostring(err))
