--- Parameter groups by a MegatronLMPlugin's conditions. no_wd_decay_cond(name, parameter) selects parameters without weight decay.
--- scale_lr_cond(name, parameter) selects those with lr_mult times the learning rate of their group. Used by prepare.lua.
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

--- The groups that one is split into, by weight decay and learning rate. The first keeps its place.
local function cut(group, names, no_decay, scaled, factor, fast)
  local made, list = {}, {}
  for _, p in ipairs(group.params) do
    local name = names[p]
    if name == nil then
      raise("%s: no_wd_decay_cond and scale_lr_cond need names, and a parameter (%s) of the optimizer is in no prepared model; prepare"
        .. " its model in the same call, or before", WHO, table.concat(p.shape, ", "))
    end
    local plain, faster = no_decay and no_decay(name, p) and true or false, scaled and scaled(name, p) and true or false
    local key = (plain and 1 or 0) + (faster and 2 or 0)
    if not made[key] then
      local new = copy(group)
      if plain then new.weight_decay = 0 end
      if faster then
        fast[new], new.lr = true, new.lr * factor
        new.initial_lr = new.initial_lr and new.initial_lr * factor
      end
      made[key], list[#list + 1] = new, new
    end
    table.insert(made[key].params, p)
  end
  return list
end

--- Puts the first of the new groups into the old one's place, and the others at the end.
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

--- Fields of schedules with one rate per group, and those with other values per group.
local RATES <const>, OTHERS <const> = { "base_lr", "max_lr" }, { "base_momentum", "max_momentum" }

--- Adapts a schedule to split groups: its values for a group apply to all groups made from it, and its rates are scaled like the
--- groups'. A list that was made for the present groups is complete already.
local function follow(schedule, cuts)
  for _, part in ipairs(type(schedule.schedulers) == "table" and schedule.schedulers or {}) do follow(part, cuts) end
  if rawget(schedule, "_megatron_groups") then return end
  rawset(schedule, "_megatron_groups", true)
  local options, origins = type(schedule.options) == "table" and schedule.options or {}, cuts.origins
  local function map(list, scales)
    for _, field in ipairs(list) do
      local value, given = rawget(schedule, field), options[field]
      if type(value) == "function" and not (type(given) == "table" and #given == #origins and #origins > cuts.before) then
        rawset(schedule, field, function(group) return value(origins[group] or group) * (scales and cuts.factors[group] or 1) end)
      end
    end
  end
  map(RATES, true)
  map(OTHERS, false)
  local fn = rawget(schedule, "fn")
  if type(fn) == "table" and #fn < #origins then
    local all = {}
    for group, origin in ipairs(origins) do all[group] = fn[origin] end
    rawset(schedule, "fn", all)
  end
  if schedule.base_lrs then schedule.base_lrs = {} end
end

--- Cuts the groups of an optimizer once, before its first step.
---@param accelerator accel.Accelerator
---@param optimizer accel.optim.Optimizer
---@param models accel.nn.Module[] whose parameters it steps
function M.apply(accelerator, optimizer, models)
  local plugin = accelerator.megatron_lm_plugin
  local no_decay, scaled = plugin.no_wd_decay_cond, plugin.scale_lr_cond
  if no_decay == nil and scaled == nil or rawget(optimizer, "_megatron_groups") then return end
  if no_decay ~= nil then check.callable(WHO, "no_wd_decay_cond", no_decay) end
  if scaled ~= nil then check.callable(WHO, "scale_lr_cond", scaled) end
  local factor, names, cuts = check.number(WHO, "lr_mult", plugin.lr_mult, 0), names_of(accelerator, models), {}
  local fast = {}
  for i, group in ipairs(optimizer.param_groups) do cuts[i] = cut(group, names, no_decay, scaled, factor, fast) end
  local origins, factors = {}, {} -- by group, as place puts them
  for k = 1, 2 do
    for i, list in ipairs(cuts) do
      for j = k, k == 1 and 1 or #list do
        origins[#origins + 1] = i
        factors[#origins] = list[j] and fast[list[j]] and factor or 1
      end
    end
  end
  for i, list in ipairs(cuts) do place(optimizer, optimizer.param_groups[i], list) end
  rawset(optimizer, "_megatron_groups", { origins = origins, factors = factors, before = #cuts })
end

--- Before objects are prepared: first optimizers, with the models of the same call or earlier ones, then schedules, which begin from the
--- new rates.
---@param accelerator accel.Accelerator
---@param given table packed objects
---@param kinds table<integer, string|false>
function M.before(accelerator, given, kinds)
  local prepared, models = accelerator._prepared, {}
  for _, model in ipairs(prepared.models) do models[#models + 1] = model end
  for i = 1, given.n do
    if kinds[i] == "model" then models[#models + 1] = given[i] end
  end
  for i = 1, given.n do
    if kinds[i] == "optimizer" and not prepared:find(given[i]) then M.apply(accelerator, given[i], models) end
  end
  for i = 1, given.n do
    local schedule = given[i]
    local optimizer = kinds[i] == "scheduler" and schedule.optimizer
    local cuts = optimizer and (rawget(optimizer, "_megatron_groups") or rawget(optimizer, "optimizer")
      and rawget(optimizer.optimizer, "_megatron_groups"))
    if cuts and schedule._apply then
      follow(schedule, cuts)
      schedule:_apply()
    end
  end
end

return M
