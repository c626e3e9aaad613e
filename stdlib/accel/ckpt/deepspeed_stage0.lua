--- Optimizers of checkpoints that DeepSpeed wrote at stage 0. The file of the model has the state dict of one: torch's own in fp32. In 16
--- bits it is DeepSpeed's optimizer around it, with fp32 masters, one for each parameter or one flat tensor for each group. None has names:
--- parameters are numbered through the groups, so they are identified by their positions in this optimizer's groups. Called by
--- deepspeed.lua.
local accel = require "accel"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- Splits one tensor for each group into the group's parameters, in order.
local function cut(flat, g, group, shapes)
  local list, at = {}, 0
  for k, name in ipairs(group) do
    local n = tensors.count(shapes[name])
    if at + n > flat.shape[1] then break end
    list[k] = flat:narrow(1, at + 1, n):view(table.move(shapes[name], 1, #shapes[name], 1, {}))
    at = at + n
  end
  if #list ~= #group or at ~= flat.shape[1] then
    raise("parameter group %d: %d elements are stored, and its parameters here are others", g - 1, flat.shape[1])
  end
  return list
end

--- States of a group's parameters, {[k] = entry or nil}, by torch's indexes. torch numbers some frozen parameters and stores nothing
--- for them. Here they may be missing from the group.
local function by_index(state, g, indices, group)
  local kept, list = {}, {}
  for _, index in ipairs(indices) do
    if state[index] then kept[#kept + 1] = index end
  end
  local taken = #indices == #group and indices or kept
  if #taken ~= #group then
    raise("parameter group %d: %d parameters are stored, %d of them with a state, here are %d", g - 1, #indices, #kept, #group)
  end
  for k, index in ipairs(taken) do list[k] = state[index] end
  return list
end

--- The same for one flat tensor per group, whose state has flat tensors as well.
local function by_flat(entry, g, group, shapes)
  local list = {}
  for k in ipairs(group) do list[k] = {} end
  for key, value in next, entry or {} do
    local parts = accel.is_tensor(value) and value.ndim > 0 and cut(value, g, group, shapes)
    for k, own in ipairs(list) do own[key] = parts and parts[k] or value end
  end
  return list
end

--- { groups = { {names =, options =}, ... }, states = { [key] = readers by parameter }, steps = by parameter, masters = readers by parameter,
--- step =, scale = (nil: none), model = } of the file of a model.
---@param model table
---@param names string[][] of the parameters of the optimizer here, by group
---@param shapes table<string, integer[]> of the model's parameters in the file
---@return table
function M.optimizer(model, names, shapes)
  local stored = model.optimizer
  if type(stored) ~= "table" then raise "no optimizer is stored" end
  local inner = stored.optimizer_state_dict or stored
  if type(inner.state) ~= "table" or type(inner.param_groups) ~= "table" then raise "the optimizer's state is not one of torch" end
  if #inner.param_groups ~= #names then raise("%d parameter groups are stored, here are %d", #inner.param_groups, #names) end
  local out = { groups = {}, states = {}, steps = {}, masters = {}, step = model.global_steps, model = model,
    scale = stored.dynamic_loss_scale and stored.cur_scale or nil }
  for g, group in ipairs(names) do
    for _, name in ipairs(group) do
      if not shapes[name] then raise("parameter group %d: '%s' is not in the checkpoint's model", g - 1, name) end
    end
    local theirs, flat = inner.param_groups[g], (stored.fp32_groups_flat or {})[g]
    local entries = flat and by_flat(inner.state[g - 1], g, group, shapes) or by_index(inner.state, g, theirs.params, group)
    local masters = flat and cut(flat, g, group, shapes) or (stored.fp32_groups or {})[g]
    if masters and #masters ~= #group then
      raise("parameter group %d: %d parameters are stored, here are %d", g - 1, #masters, #group)
    end
    out.groups[g] = { names = group, options = theirs }
    for k, name in ipairs(group) do
      local function reader(what, t)
        if not tensors.same_sizes(t.shape, shapes[name]) then
          raise("parameter group %d: the %s at position %d has the shape [%s], but '%s' has [%s]; the optimizer's order differs", g - 1, what, k - 1,
            table.concat(t.shape, ", "), name, table.concat(shapes[name], ", "))
        end
        return { shape = t.shape, read = function() return t end }
      end
      if masters then
        local low = model.module[name]
        out.masters[name] = reader("master", masters[k])
        if not accel.equal(masters[k]:to(low.dtype), low) then
          raise("parameter group %d: the master at position %d does not match '%s'; the optimizer's order differs", g - 1, k - 1, name)
        end
      end
      for key, value in next, entries[k] or {} do
        if key == "step" then
          out.steps[name] = accel.is_tensor(value) and value:item() or value
        elseif accel.is_tensor(value) and value.ndim > 0 then
          out.states[key] = out.states[key] or {}
          out.states[key][name] = reader(key, value)
        end
      end
      out.steps[name] = entries[k] and (out.steps[name] or out.step)
    end
  end
  return out
end

return M
