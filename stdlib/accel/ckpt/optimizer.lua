--- An optimizer's part of a checkpoint: state tensors under the names of their parameters, `state.<parameter>.<key>`, and
--- plain data with the options of the groups. A stored state fits an optimizer that holds the same parameters in the same
--- groups, in any order. Used by stdlib/accel/accelerator/checkpoint_content.lua and checkpoint_load.lua.
local raise = require "accel.util.raise"
local tree = require "accel.ckpt.tree"

local M = {}

--- The names of an optimizer's parameters, by group. A parameter that no model holds is "param_<group>_<index>", counted
--- from 0. If an optimizer holds parameters of several models, names of model k > 0 begin with "model_<k>.".
---@param optimizer table
---@param known table<accel.Tensor, {name: string, model: integer}> of the models, counted from 0
---@param groups? accel.Tensor[][] parameters by group [the optimizer's]
---@return string[][] names
function M.names(optimizer, known, groups)
  local first, several = nil, false
  if not groups then
    groups = {}
    for g, group in ipairs(optimizer.param_groups) do groups[g] = group.params end
  end
  for _, params in ipairs(groups) do
    for _, p in ipairs(params) do
      local k = known[p]
      if k then
        first = first or k.model
        several = several or k.model ~= first
      end
    end
  end
  local names = {}
  for g, params in ipairs(groups) do
    names[g] = {}
    for i, p in ipairs(params) do
      local k = known[p]
      if not k then names[g][i] = ("param_%d_%d"):format(g - 1, i - 1)
      elseif several and k.model > 0 then names[g][i] = ("model_%d.%s"):format(k.model, k.name)
      else names[g][i] = k.name end
    end
  end
  return names
end

--- Whether a state has the form that PyTorch's optimizers give theirs: state by index, groups with lists of indices.
local function is_indexed(dict)
  if type(dict.state) ~= "table" or type(dict.param_groups) ~= "table" then return false end
  for _, group in ipairs(dict.param_groups) do
    if type(group) ~= "table" or type(group.params) ~= "table" then return false end
  end
  return true
end

--- The plain part of an optimizer's state, and its tensors by `take`, with their parameters. nil if a state of another
--- form does not identify them.
---@param optimizer table
---@param names string[][]
---@param take fun(name: string, tensor: accel.Tensor, parameter: accel.Tensor?)
---@param whole? string[][] of the groups' parameters on all ranks, if this one holds shards of some of them
---@return table plain
function M.split(optimizer, names, take, whole)
  local dict = optimizer:state_dict()
  if not is_indexed(dict) then return { other = tree.split(dict, "other", take) } end
  local plain = { groups = {}, state = {}, rest = {} }
  for g, group in ipairs(dict.param_groups) do
    local own = {}
    for key, value in next, group do
      if key ~= "params" then own[key] = tree.split(value, ("group.%d.%s"):format(g - 1, key), take) end
    end
    own.params = (whole or names)[g]
    plain.groups[g] = own
    for i, index in ipairs(group.params) do
      local name, parameter = names[g][i], optimizer.param_groups[g].params[i]
      local entry = dict.state[index]
      if entry ~= nil then
        plain.state[name] = tree.split(entry, "state." .. name, function(at, t) take(at, t, parameter) end)
      end
    end
  end
  for key, value in next, dict do
    if key ~= "state" and key ~= "param_groups" then plain.rest[key] = tree.split(value, "rest." .. key, take) end
  end
  return plain
end

--- The reason why a stored optimizer cannot be loaded into one whose parameters have these names. nil if it fits.
---@param plain table
---@param names string[][]
---@return string?
function M.misfit(plain, names)
  if plain.other ~= nil then return nil end
  if #plain.groups ~= #names then
    return ("%d parameter groups are stored, here are %d"):format(#plain.groups, #names)
  end
  for g, own in ipairs(names) do
    local stored, here, missing, unexpected = {}, {}, {}, {}
    for _, name in ipairs(plain.groups[g].params) do stored[name] = true end
    for _, name in ipairs(own) do
      here[name] = true
      if not stored[name] then missing[#missing + 1] = "'" .. name .. "'" end
    end
    for _, name in ipairs(plain.groups[g].params) do
      if not here[name] then unexpected[#unexpected + 1] = "'" .. name .. "'" end
    end
    local problems = {}
    if #missing > 0 then problems[1] = "missing " .. table.concat(missing, ", ") end
    if #unexpected > 0 then problems[#problems + 1] = "unexpected " .. table.concat(unexpected, ", ") end
    if #problems > 0 then return ("parameter group %d: %s"):format(g - 1, table.concat(problems, "; ")) end
  end
end

--- The state dict that a stored optimizer becomes here, with the tensors that `find` returns.
---@param optimizer table
---@param plain table
---@param names string[][]
---@param find fun(name: string, parameter: accel.Tensor?): accel.Tensor
---@return table
function M.join(optimizer, plain, names, find)
  if plain.other ~= nil then return tree.join(plain.other, find) end
  local dict = tree.join(plain.rest, find)
  dict.state, dict.param_groups = {}, {}
  local own, index, named = optimizer:state_dict(), nil, true
  if not is_indexed(own) then raise "load_state: an optimizer whose state had groups has none here" end
  for g, group in ipairs(plain.groups) do
    local made = {}
    for key, value in next, group do
      if key ~= "params" then made[key] = tree.join(value, find) end
    end
    made.params = {}
    for i, name in ipairs(names[g]) do
      index = own.param_groups[g].params[i]
      named = named and not name:find "^param_%d+_%d+$"
      made.params[i] = index
      local parameter = optimizer.param_groups[g].params[i]
      if plain.state[name] ~= nil then
        dict.state[index] = tree.join(plain.state[name], function(at) return find(at, parameter) end)
      end
    end
    dict.param_groups[g] = made
  end
  if named then dict.numbering = own.numbering end -- names are in no order
  return dict
end

return M
