--- Parameter groups by a MegatronLMPlugin's conditions: no_wd_decay_cond(name, parameter) says which parameters have no weight decay,
--- scale_lr_cond(name, parameter) whose learning rate is lr_mult times that of their group. Used by prepare.lua.
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = {}

local WHO <const> = "MegatronLMPlugin"

--- Names of the parameters of models.
local function names_of(accelerator, models)
  local names = {}
  for _, model in ipairs(models) do
    for name, p in pairs(accelerator:unwrap_model(model):named_parameters()) do names[p] = names[p] or name end
  end
  return names
end

local function copy(group)
  local out = {}
  for key, value in next, group do out[key] = value end
  out.params = {}
  return out
end

--- The groups that one becomes, by whether it decays and whether its rate is another; the first has its place.
local function cut(group, names, no_decay, scaled, factor)
  local made, list = {}, {}
  for _, p in ipairs(group.params) do
    local name = names[p]
    if name == nil then
      raise("%s: no_wd_decay_cond and scale_lr_cond ask for names, and a parameter (%s) of the optimizer is of no prepared model; prepare"
        .. " its model in the same call, or before", WHO, table.concat(p.shape, ", "))
    end
    local plain, faster = no_decay and no_decay(name, p) and true or false, scaled and scaled(name, p) and true or false
    local key = (plain and 1 or 0) + (faster and 2 or 0)
    if not made[key] then
      local new = copy(group)
      if plain then new.weight_decay = 0 end
      if faster then
        new.lr = new.lr * factor
        new.initial_lr = new.initial_lr and new.initial_lr * factor
      end
      made[key], list[#list + 1] = new, new
    end
    table.insert(made[key].params, p)
  end
  return list
end

--- Puts the first of the groups that one became into its place, and the others behind all.
local function place(optimizer, group, list)
  for key, value in next, list[1] or {} do group[key] = value end
  local private = optimizer._private and optimizer._private[group]
  if private then private.pending = table.move(group.params, 1, #group.params, 1, {}) end
  for k = 2, #list do
    local new, options = list[k], { params = list[k].params }
    if optimizer.add_param_group then
      for key in next, optimizer.options or {} do options[key] = new[key] end
      optimizer:add_param_group(options)
      optimizer.param_groups[#optimizer.param_groups].initial_lr = new.initial_lr
    else
      table.insert(optimizer.param_groups, new)
    end
  end
end

--- Cuts the groups of an optimizer once, before its first step; its schedules begin from the new rates.
---@param accelerator accel.Accelerator
---@param optimizer accel.optim.Optimizer
---@param models accel.nn.Module[] whose parameters it steps
---@param schedules accel.optim.LRScheduler[]
function M.apply(accelerator, optimizer, models, schedules)
  local plugin = accelerator.megatron_lm_plugin
  local no_decay, scaled = plugin.no_wd_decay_cond, plugin.scale_lr_cond
  if no_decay == nil and scaled == nil or rawget(optimizer, "_megatron_groups") then return end
  if no_decay ~= nil then check.callable(WHO, "no_wd_decay_cond", no_decay) end
  if scaled ~= nil then check.callable(WHO, "scale_lr_cond", scaled) end
  local factor, names, cuts = check.number(WHO, "lr_mult", plugin.lr_mult, 0), names_of(accelerator, models), {}
  for i, group in ipairs(optimizer.param_groups) do cuts[i] = cut(group, names, no_decay, scaled, factor) end
  for i, list in ipairs(cuts) do place(optimizer, optimizer.param_groups[i], list) end
  rawset(optimizer, "_megatron_groups", true)
  for _, schedule in ipairs(schedules) do
    if schedule.optimizer == optimizer and schedule.base_lrs then
      schedule.base_lrs = {}
      schedule:_apply()
    end
  end
end

--- Before objects are prepared: optimizers among them, with the models that come with them or came before.
---@param accelerator accel.Accelerator
---@param given table packed objects
---@param kinds table<integer, string|false>
function M.before(accelerator, given, kinds)
  local prepared, models, schedules = accelerator._prepared, {}, {}
  for _, model in ipairs(prepared.models) do models[#models + 1] = model end
  for i = 1, given.n do
    if kinds[i] == "model" then models[#models + 1] = given[i] end
    if kinds[i] == "scheduler" then schedules[#schedules + 1] = given[i] end
  end
  for i = 1, given.n do
    if kinds[i] == "optimizer" and not prepared:find(given[i]) then M.apply(accelerator, given[i], models, schedules) end
  end
end

return M
