-- Every parameter of a public function, method and constructor of stdlib has an annotation (---@param), from which stubs, help and sweeps
-- are made. The names are those of the reference pages.
--   accel-run tests/options/annotated_test.lua
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
local root = os.getenv "ACCEL_TEST_SRC" or here .. "/../.."
package.path = root .. "/lua/gen/?.lua;" .. package.path
local stdlib = require "reference.stdlib"

local n, missing = 0, {}
local function check(name, doc)
  local annotated = { self = true, _ = true, ["..."] = true }
  for _, text in ipairs(doc.annotations or {}) do annotated[text:match "^param%s+([%w_%.]+)" or 0] = true end
  for _, param in ipairs(doc.params or {}) do
    n = n + 1
    if not annotated[param] then missing[#missing + 1] = ("%s: parameter '%s' has no ---@param (%s)"):format(name, param, doc.path or "?") end
  end
end

for folder in accel.pairs(getmetatable(accel).__names) do
  if accel.listdir(root .. "/stdlib/accel/" .. folder) then
    for _, entry in ipairs((stdlib.entries(accel, root .. "/stdlib/accel", folder))) do
      check(entry.name, entry.constructor or entry)
      for _, method in ipairs(entry.methods or {}) do check(entry.name .. ":" .. method.name, method) end
    end
  end
end
assert(n > 5000, n)
for _, line in ipairs(missing) do print("FAIL " .. line) end
print(("%d parameters, %d without an annotation"):format(n, #missing))
if #missing > 0 then os.exit(1, true) end
