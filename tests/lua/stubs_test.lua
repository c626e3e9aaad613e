-- The stubs of lua/meta name what scripts use: every method of the Accelerator and every module of accel, and nothing that is not
-- there. (Functions and methods from C are compared by reference_test.lua, ops by check/meta.)
local accel = require "accel"
local source = os.getenv "ACCEL_TEST_SRC" or (arg[0]:match "^(.*)/[^/]*$" or ".") .. "/../.."

local function fields(class)
  local found, inside = {}, false
  for line in io.lines(source .. "/lua/meta/modules.lua") do
    if line:match "^%-%-%-@class " then inside = line:match "^%-%-%-@class ([%w_.]+)" == class end
    local name = inside and line:match "^%-%-%-@field ([%w_]+) "
    if name then
      assert(not found[name], class .. " has the field " .. name .. " twice")
      found[name] = true
    end
  end
  return found
end

local methods, modules, n = fields "accel.Accelerator", fields "accel", 0
local private = { init = true, alloc = true, extend = true, isinstance = true }
for name, value in pairs(accel.Accelerator) do
  if type(value) == "function" and not name:match "^_" and not private[name] then
    assert(methods[name], "lua/meta/modules.lua lacks the method " .. name .. " of the Accelerator")
    n = n + 1
  end
end
for name in pairs(methods) do assert(type(accel.Accelerator[name]) == "function", "the Accelerator has no method " .. name) end

local folders = assert(io.popen(("cd '%s/stdlib/accel' && ls -d */init.lua"):format(source)))
for line in folders:lines() do
  local name = line:match "^[^/]+"
  if accel[name] ~= nil then assert(modules[name], "lua/meta/modules.lua lacks the module " .. name) end
end
folders:close()
for name in pairs(modules) do assert(accel[name] ~= nil, "accel has no " .. name) end
print(n .. " methods of the Accelerator have stubs")
