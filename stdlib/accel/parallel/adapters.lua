--- Adapters (accel.peft) of layers that a plan has cut, before or after the adapters came. For a layer with sharded outputs every rank has
--- its rows of B, or of IA3's vector. For one with sharded inputs it has its columns of A, whose products are summed over the ranks. The
--- rest of an adapter is the same on all ranks, with the same gradients. Called by tensor_parallel.lua and accelerator/changes.lua.
local class = require "accel.util.class"
local placements = require "accel.parallel.placements"
local raise = require "accel.util.raise"
local styles = require "accel.parallel.styles"

local M = {}

local function refuse(name, what, why)
  raise("parallelize_module: '%s' has %s, and tensor parallelism shards it: %s; leave the layer out of target_modules and modules_to_save, or"
    .. " out of the plan", name, what, why)
end

--- A low-rank adapter of a layer of this style.
local function cut_lora(region, name, layer, style, placement)
  for _, adapter in ipairs(layer.names) do
    local a, b, drop = layer.lora_A[adapter], layer.lora_B[adapter], layer.lora_dropout[adapter]
    if layer.lora_magnitude_vector[adapter] then refuse(name, "an adapter with use_dora", "its norms are of whole rows") end
    if style == "colwise" and not placements.of[b.weight] then
      styles.apply(region, "colwise", name .. ".lora_B", b, { pieces = placement.pieces })
    elseif style == "rowwise" and not placements.of[a.weight] then
      styles.apply(region, "rowwise", name .. ".lora_A", a, {})
      if drop then styles.apply(region, "colwise", name .. ".lora_dropout", drop, {}) end
    end
  end
end

--- A vector that multiplies outputs, or inputs.
local function cut_ia3(region, layer, style, placement)
  for _, adapter in ipairs(layer.names) do
    local l = layer.ia3_l[adapter]
    if style == "colwise" and not layer.is_feedforward then placements.cut(l, region.axis, 1, placement.pieces)
    elseif style == "rowwise" and layer.is_feedforward then placements.cut(l, region.axis, 2) end
  end
end

local function has_cut(module)
  for _, p in ipairs(module:parameters()) do
    if placements.of[p] then return true end
  end
  return false
end

--- Cuts the adapters of a model that are not cut so far. Values of adapters are the same on all ranks before.
---@param region accel.parallel.Region
---@param model accel.nn.Module
function M.follow(region, model)
  local AdapterLayer, Wrapper = package.loaded["accel.peft.layer"], package.loaded["accel.peft.modules_to_save"]
  if not AdapterLayer then return end
  for name, module in pairs(model:named_modules()) do
    if class.isinstance(module, Wrapper) and has_cut(module.original_module) then
      refuse(name, "a copy of modules_to_save", "the copy would be of a part")
    elseif class.isinstance(module, AdapterLayer) then
      local style = region.style_of[module.base_layer]
      if style then
        if region.sequence then refuse(name, "an adapter", "with sequence_parallel its gradients would be of a part of the sequence") end
        local placement = placements.of[module.base_layer.weight]
        if module.places then refuse(name, "an adapter of its type", "only LoRA's and IA3's follow a cut layer")
        elseif module.lora_A then cut_lora(region, name, module, style, placement)
        elseif module.ia3_l then cut_ia3(region, module, style, placement)
        else refuse(name, "an adapter", "a rank has some of its rows") end
      end
    end
  end
end

return M
