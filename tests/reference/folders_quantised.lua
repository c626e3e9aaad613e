-- Folders with quantised weights: the weights that they stand for, and the logits of a model with these in f32. Used by folders.lua and
-- tests/stdlib/models/packed_test.lua.
local accel = require "accel"

local M = {}

local BAR <const> = 1e-4 -- the README's, of logits: of the largest
local ROUNDED <const> = 3e-2 -- of logits whose tool also rounds activations, if the row has no bar for them
local ONE_ROUNDING <const> = 2.0 ^ -23 -- of weights that stay packed: dequantize multiplies by a scale that is rounded

local function largest(t) return t:to("f64"):abs():max():item() end

local function distance(got, want)
  if got.shape ~= want.shape then return ("shape %s, not %s"):format(tostring(got.shape), tostring(want.shape)) end
  local size = largest(want)
  return largest(got:to "f64" - want:to "f64") / (size > 0 and size or 1)
end

--- A model that holds the dequantised weights of this one in f32.
local function plain(model)
  local state, config = {}, {}
  for key, value in next, model.config do config[key] = value end
  config.quantization_config = nil
  for name, p in pairs(model:named_parameters()) do state[name] = p.quant_state and p:dequantize "f32" or p:detach():to "f32" end
  local other = getmetatable(model)(config)
  other:load_state_dict(state)
  return other:eval()
end

--- Compares one folder; report(quantity, distance, bar) is called for what differs.
---@param path string
---@param report fun(quantity: string, distance: any, bar: any)
---@param row table of the manifest
function M.check(path, report, row)
  local model, message = accel.models.from_pretrained(path, { dtype = "f32" })
  if not model then return report("load", message, "loads") end
  local expected = assert(accel.load(path .. "/expected.safetensors"))
  local ids = assert(accel.load(path:match "^(.*/)" .. "input.safetensors")).input_ids
  local _ <close> = accel.no_grad()
  local bar = tonumber((row.bar or ""):match "^([%d.e-]+) relative") or 0
  local weights = 0
  for key, want in accel.pairs(expected) do
    local name = key:match "^weight/(.*)"
    if name then
      weights = weights + 1
      local p = model:get_parameter(name)
      local d, limit = distance(p.quant_state and p:dequantize "f32" or p, want), p.quant_state and math.max(bar, ONE_ROUNDING) or bar
      if type(d) == "string" or not (d <= limit) then report(key, d, limit) end
    end
  end
  if weights == 0 then report("weights", 0, "some") end
  local function logits(quantity, got, limit)
    local d = distance(got, expected[quantity])
    if type(d) == "string" or not (d <= limit) then report(quantity, d, limit) end
  end
  logits("logits", plain(model)(ids), BAR)
  if expected.logits_by_tool then
    logits("logits_by_tool", model(ids), tonumber((row.bar or ""):match "compare to ([%d.e-]+) of the largest") or ROUNDED)
  end
end

return M
