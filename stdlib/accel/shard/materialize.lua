--- Models of which some ranks have shapes alone (the meta device), since rank 0 reads the weights and the others receive them:
--- cpu_ram_efficient_loading. A sharded unit takes memory on these ranks when it is made, one after the other, so that none of
--- them ever holds the whole model. Used by nn.parallel.FullyShardedDataParallel.
local accel = require "accel"
local core = require "accel.shard.core"
local dist = require "accel.dist"
local raise = require "accel.util.raise"

local M = {}

--- Calls each(module, name, t) for parameters and buffers on the meta device.
local function each_on_meta(model, each)
  for _, module in ipairs(model:modules()) do
    for name, t, kind in module:_fields() do
      if kind ~= "module" and t.device == "meta" then each(module, name, t) end
    end
  end
end

local function first_on_meta(model, ignored)
  local first, skip = nil, {}
  for _, t in ipairs(ignored or {}) do skip[t] = true end -- of other stages of a pipeline
  each_on_meta(model, function(_, name, t) first = first or not skip[t] and name or nil end)
  return first
end

--- Gives modules with tensors on the meta device to param_init_fn, which makes them on a real one, each once.
---@param model accel.nn.Module
---@param param_init_fn fun(module: accel.nn.Module)
function M.init(model, param_init_fn)
  local list, seen = {}, {}
  each_on_meta(model, function(module)
    if not seen[module] then seen[module], list[#list + 1] = true, module end
  end)
  for _, module in ipairs(list) do param_init_fn(module) end
end

--- The device for tensors that are on the meta device. nil if they stay, as in a dry run, since no rank has values. A
--- collective.
---@param who string
---@param model accel.nn.Module
---@param o {sync: boolean, device: string?, ignored: accel.Tensor[]?}
---@return string?
function M.device(who, model, o)
  local meta = first_on_meta(model, o.ignored)
  if dist.get_world_size() == 1 then
    if meta and next(model:parameters()) and not M.all_on_meta(model) then
      raise("%s: '%s' is on the meta device, and no rank has values for it; load the model's weights, or give param_init_fn", who,
        meta)
    end
    return nil
  end
  local all = dist.all_gather_object(meta or false)
  local any = false
  for _, name in ipairs(all) do any = any or name end
  if not any then return nil end
  if all[1] then
    if M.all_on_meta(model) then return nil end
    raise("%s: '%s' of rank 0 is on the meta device; give rank 0 values for the others, or all ranks"
      .. " param_init_fn", who, all[1])
  end
  if not o.sync then
    raise("%s: '%s' is on the meta device on some ranks; set sync_module_states = true to send them rank 0's values", who, any)
  end
  return o.device or "cpu"
end

--- Whether all parameters are on the meta device.
function M.all_on_meta(model)
  for _, p in ipairs(model:parameters()) do
    if not p.device:find "^meta" then return false end -- in a dry run others' are on one more
  end
  return true
end

--- Buffers and parameters that no unit takes get memory, and then rank 0's values (by who wraps the model).
---@param model accel.nn.Module
---@param device string
---@param owned table<accel.Tensor, any> parameters of units
---@return accel.Tensor[] parameters whose values rank 0 is to send
function M.rest(model, device, owned)
  local list = {}
  for _, p in ipairs(model:parameters()) do
    if not owned[p] then list[#list + 1] = p end
  end
  each_on_meta(model, function(_, _, t)
    if not owned[t] then
      local bytes = accel.unscoped(accel.empty, t:numel(), { dtype = t.dtype, device = device })
      if t.quant_state then bytes:quantized_like_(t) end
      core.bind(t, bytes, 0)
    end
  end)
  return list
end

return M
