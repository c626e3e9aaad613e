-- Counts PyTorch's public names: which accel has, which it refuses with a reason, which are absent, and which no test compares with PyTorch.
--   accel-run tests/reference/names.lua [--absent] [--refused] [--untested] [NAMESPACE ...]
--
-- Reads lines "namespace name" of ../shared/cases/ops/torch_names.txt, or of the file that ACCEL_TORCH_NAMES names. The namespaces are torch,
-- Tensor, F (nn.functional), nn, linalg and fft. A name is present where accel has it under the same namespace. Tested means: a case of
-- calls/*.json names it, or a case of PyTorch's own test database (opinfo/golden) is of that op.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local raw = require "raw"
local absent = require "accel.util.absent"

local show, only = {}, {}
for _, word in ipairs(arg) do
  if word:find "^%-%-" then show[word:sub(3)] = true else only[word] = true end
end
local path = os.getenv "ACCEL_TORCH_NAMES" or here .. "/../../../shared/cases/ops/torch_names.txt"
local file, why = io.open(path)
if not file then
  print(("skipped: %s"):format(why))
  os.exit(77)
end

-- accel's spelling where a name is a word of Lua, or its place is another one.
local PLACE <const> = { F = "nn.functional", torch = "", nn = "nn", linalg = "linalg", fft = "fft" }

local function value_of(space, name)
  local at = accel
  if space == "Tensor" then
    local t = accel.zeros(2, 2)
    local ok, v = pcall(function() return t[name] end)
    if ok and v ~= nil then return v end
    return ok and accel.Tensor[name] or nil
  end
  for part in PLACE[space]:gmatch "[^.]+" do
    local ok, v = pcall(function() return at[part] end)
    if not ok or v == nil then return nil end
    at = v
  end
  local ok, v = pcall(function() return at[name] end)
  if not ok or space == "torch" and name == "dist" then return nil end -- accel.dist is the module for ranks
  return v
end

-- The names that tests compare with PyTorch: tested[space .. " " .. name].
local tested = {}
local function test(space, name) tested[space .. " " .. name] = true end
for entry in require "lfs".dir(here .. "/calls") do
  if entry:find "%.json$" then
    for _, case in ipairs(assert(raw.json(here .. "/calls/" .. entry))) do
      for _, space in ipairs(case.spaces) do test(space, case.name) end
    end
  end
end
for _, entry in ipairs(raw.json(here .. "/opinfo/golden/ops.json") or {}) do
  local prefix, name = entry.op:match "^(.-)%.?([%w_]+)$"
  local space = ({ ["nn.functional"] = "F", linalg = "linalg", fft = "fft" })[prefix]
  if space then test(space, name)
  elseif prefix == "" or prefix == "special" then
    test("torch", name)
    test("Tensor", name)
    test("torch", name .. "_")
    test("Tensor", name .. "_")
    test("F", name)
  end
end
for _, entry in ipairs(raw.json(here .. "/opinfo/golden/modules.json") or {}) do test("nn", entry.op) end

local order, count, stale = {}, {}, {}
for line in file:lines() do
  local space, name = line:match "^(%S+) (%S+)$"
  if space then
    local c = count[space]
    if not c then
      c = { all = 0, present = {}, refused = {}, absent = {}, untested = {} }
      count[space], order[#order + 1] = c, space
    end
    c.all = c.all + 1
    if value_of(space, name) ~= nil then
      c.present[#c.present + 1] = name
      if absent.reason(space, name) then stale[#stale + 1] = space .. " " .. name end
      if not tested[space .. " " .. name] then c.untested[#c.untested + 1] = name end
    elseif absent.reason(space, name) then
      c.refused[#c.refused + 1] = name
    else
      c.absent[#c.absent + 1] = name
    end
  end
end
file:close()

print(("%-8s %6s %8s %8s %8s %9s"):format("", "names", "present", "refused", "absent", "untested"))
for _, space in ipairs(order) do
  local c = count[space]
  print(("%-8s %6d %8d %8d %8d %9d"):format(space, c.all, #c.present, #c.refused, #c.absent, #c.untested))
end
if #stale > 0 then print("\nrefused by util/absent although accel has them: " .. table.concat(stale, ", ")) end
for _, kind in ipairs { "refused", "absent", "untested" } do
  for _, space in ipairs(order) do
    if show[kind] and (next(only) == nil or only[space]) then
      print(("\n%s, %s:"):format(space, kind))
      for _, name in ipairs(count[space][kind]) do
        local reason = kind == "refused" and absent.reason(space, name)
        print("  " .. name .. (reason and ": " .. reason or ""))
      end
    end
  end
end
