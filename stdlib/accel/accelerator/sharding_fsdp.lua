--- Converts a FullyShardedDataParallelPlugin to the options of nn.parallel.FullyShardedDataParallel, and applies its activation
--- checkpointing to the model. Used by sharding.lua.
local accel = require "accel"
local Module = require "accel.nn.module"
local check = require "accel.util.check"
local policies = require "accel.shard.policy"
local raise = require "accel.util.raise"

local M = {}

local WHO <const> = "FullyShardedDataParallelPlugin"

--- Modules of a model whose whole name a regular expression matches.
local function matching(model, pattern)
  local names, modules, list = {}, {}, {}
  for name, module in pairs(model:named_modules()) do
    if name ~= "" then names[#names + 1], modules[#modules + 1] = name, module end
  end
  local ok, found = pcall(require "accel.text.core".fullmatch, pattern, names)
  if not ok then raise("%s: ignored_modules '%s': %s", WHO, pattern, tostring(found)) end
  for i, matches in ipairs(found) do list[#list + 1] = matches and modules[i] or nil end
  return list
end

--- The modules that an expression ignores. One plugin serves all models of an Accelerator, so that it may match in another one alone.
local function by_name(model, pattern, others)
  local list = matching(model, pattern)
  local matched = #list > 0
  for _, other in ipairs(others) do matched = matched or #matching(other, pattern) > 0 end
  if not matched then
    raise("%s: ignored_modules '%s' matches no module; give the whole name", WHO, pattern)
  end
  return list
end

--- Ignored modules are modules of this model or of another one of the Accelerator.
local function check_modules(model, list, others)
  if type(list) ~= "table" or Module.is_module(list) then
    raise("%s: ignored_modules must be a list of modules or a regular expression, got %s", WHO, check.shown(list))
  end
  local inside = {}
  for _, m in ipairs { model, table.unpack(others) } do
    for _, module in ipairs(m:modules()) do inside[module] = true end
  end
  local found, stray = false, nil
  for i, module in ipairs(list) do
    if not Module.is_module(module) then raise("%s: ignored_modules[%d]: %s", WHO, i, Module.not_a_module(module)) end
    if inside[module:_itself()] then found = true else stray = stray or i end
  end
  -- with entries that have an effect, the others may be of a model that is prepared later
  if stray and not found then
    raise("%s: ignored_modules[%d] is not a module of the model; take it from the model that you prepare", WHO, stray)
  end
end

--- Units of the model but for the whole compute their forward again in backward. offload: their inputs rest in host memory until then.
local function checkpoint_units(model, policy, ignored, offload)
  local units = policies.flat(model, policy, ignored)
  for _, unit in ipairs(units) do
    local module = unit.module
    if module ~= model:_itself() then
      local forward = module.forward
      rawset(module, "forward", function(self, ...)
        if not accel.is_grad_enabled() then return forward(self, ...) end
        local _ <close> = offload and accel.offload.activations {} or nil
        return accel.checkpoint(forward, self, ...)
      end)
    end
  end
end

---@param p accel.accelerator.FullyShardedDataParallelPlugin
---@param model accel.nn.Module
---@param policy table of accel.shard.policy
---@param others accel.nn.Module[] further models of the Accelerator, which ignored modules may belong to
---@param only_check? boolean the model stays as it is
---@return table options
function M.options(p, model, policy, others, only_check)
  local o = { fsdp_version = p.fsdp_version, auto_wrap_policy = policy, ignored_modules = p.ignored_modules }
  if type(p.ignored_modules) == "string" then o.ignored_modules = by_name(model, p.ignored_modules, others)
  elseif p.ignored_modules ~= nil then check_modules(model, p.ignored_modules, others) end
  if p.activation_checkpointing and not only_check then
    checkpoint_units(model, policy, { modules = o.ignored_modules }, p.activation_checkpointing_offload)
  end
  o.mixed_precision = p.mixed_precision_policy
  if p.fsdp_version == 2 then
    o.reshard_after_forward = p.reshard_after_forward
    return o
  end
  o.sharding_strategy, o.param_init_fn = p.sharding_strategy, p.param_init_fn
  o.backward_prefetch, o.forward_prefetch = p.backward_prefetch or "NO_PREFETCH", p.forward_prefetch
  return o
end

return M
