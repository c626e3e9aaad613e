-- Files of torch.save by old versions of torch and with unusual content: read with the recorded values, or refused by a message that
-- names the file and what to do, as the row's `answer` allows. Used by folders.lua.
local accel = require "accel"
local raw = require "raw"
local typed = require "typed"
local twister = require "twister"

local M = {}

-- Values of floats of 8 and 4 bits by their definitions: sign, exponent and mantissa of one byte.
local function small(exponent, mantissa, bias, is_nan)
  return function(b)
    if is_nan(b) then return 0 / 0 end
    local e, m = b >> mantissa & (1 << exponent) - 1, b & (1 << mantissa) - 1
    local x = e == 0 and m * 2.0 ^ (1 - bias - mantissa) or ((1 << mantissa) + m) * 2.0 ^ (e - bias - mantissa)
    return b >> exponent + mantissa & 1 == 1 and -x or x
  end
end
local of_byte = {
  float8_e4m3fnuz = small(4, 3, 8, function(b) return b == 0x80 end),
  float8_e5m2fnuz = small(5, 2, 16, function(b) return b == 0x80 end),
  float8_e8m0fnu = function(b) return b == 255 and 0 / 0 or 2.0 ^ (b - 127) end,
}
local of_half_byte = small(2, 1, 1, function() return false end)

--- The values that bytes of such a dtype have.
local function values(dtype, bytes)
  local list = {}
  for i = 1, #bytes do
    local b = bytes:byte(i)
    if dtype == "float4_e2m1fn_x2" then
      list[#list + 1], list[#list + 2] = of_half_byte(b & 15), of_half_byte(b >> 4)
    else
      list[#list + 1] = of_byte[dtype](b)
    end
  end
  return list
end

local PARTS <const> = { complex32 = "f16", complex64 = "f32", complex128 = "f64" }

--- A comparison of tensors and arrays with the file of expected bytes.
local function comparison(expected)
  return function(want, got, at)
    local key = want.tensor or want.array
    local wanted = expected[key]
    if not wanted then return false, at .. ": no expected bytes under " .. key end
    if not accel.is_tensor(got) then return false, at .. ": no tensor but " .. type(got) end
    local says = ("%s: %s %s"):format(at, got.dtype, accel.inspect(got.shape))
    got = got:detach()
    if got:is_complex() then got = accel.view_as_real(got) end -- as the file of bytes has them
    got = got:contiguous()
    if of_byte[want.dtype] or want.dtype == "float4_e2m1fn_x2" then
      local list = values(want.dtype, wanted.bytes)
      if got.dtype ~= "f32" or got:numel() ~= #list then return false, says end
      for i, x in ipairs(got:reshape(-1):tolist()) do
        if x ~= list[i] and not (x ~= x and list[i] ~= list[i]) then
          return false, ("%s: value %d is %s, not %s"):format(says, i, x, list[i])
        end
      end
      return true
    end
    return got.dtype == (PARTS[want.dtype] or raw.dtype(want.dtype)) and raw.same_list(got.shape, wanted.shape)
      and got:to_bytes() == wanted.bytes, says
  end
end

--- Draws after the states of the file that the row names, as the generators' definitions have them.
local function check_draws(path, report, row)
  local states = assert(accel.load((path:gsub("[^/]*$", row.what:match "states of (%S+)"))))
  local wanted = assert(raw.json(path))
  local python, numpy = states.random_state[2], states.numpy_random_seed
  local drawn = {
    python = twister.doubles(twister.new(table.move(python, 1, 624, 1, {}), python[625]), #wanted.python),
    numpy_rand = twister.doubles(twister.new(numpy[2]:to("i64"):tolist(), numpy[3]), #wanted.numpy_rand),
  }
  local torch = twister.of_torch(states.torch_manual_seed:to_bytes())
  drawn.torch_rand = twister.floats(torch, #wanted.torch_rand)
  drawn.torch_randn = twister.normals(torch, #wanted.torch_randn)
  drawn.torch_randperm = twister.permutation(torch, #wanted.torch_randperm)
  for name, list in pairs(wanted) do
    for i, x in ipairs(list) do
      local bar = name == "torch_randn" and 1e-6 or 0
      local distance = drawn[name] and math.abs(drawn[name][i] - x) or "none"
      if type(distance) == "string" or distance > bar then return report(("%s[%d]"):format(name, i), distance, bar) end
    end
  end
end

--- Compares one file; report(quantity, distance, bar) is called for what differs.
---@param path string
---@param report fun(quantity: string, distance: any, bar: any)
---@param row table
function M.check(path, report, row)
  if not row.answer then return check_draws(path, report, row) end
  local tree, message, code = accel.load(path, { device = "cpu" })
  if tree == nil then
    if row.answer == "read" then return report("load", message, "the recorded values") end
    if code ~= "parse" or not message:find(path:match "[^/]*$", 1, true) or not message:find "; %l" then
      report("message", message, "the file, what is wrong, and what to do")
    end
    return
  end
  if row.answer == "refuse" then return report("load", "read", "refused") end
  local stem = path:gsub("%.[^./]*$", "")
  local says = assert(raw.json(stem .. ".expected.json"))
  if says.tree == nil then return end -- torch cannot read it
  if tree == accel.json.null then tree = nil end
  local ok, differs = typed.same(says.tree, tree, "tree", comparison(raw.tensors(stem .. ".expected.safetensors") or {}))
  if not ok then report("value", differs, "the recorded values") end
end

return M
