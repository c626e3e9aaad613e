--- From a FullyShardedDataParallelPlugin to the options of nn.parallel.FullyShardedDataParallel, and what the plugin does to the
--- model itself: activation checkpointing. Used by sharding.lua.
local accel = require "accel"
local policies = require "accel.shard.policy"
local raise = require "accel.util.raise"

local M = {}

--- Modules whose whole name a regular expression matches.
local function matching(model, pattern)
  local names, modules, list = {}, {}, {}
  for name, module in pairs(model:named_modules()) do
    if name ~= "" then names[#names + 1], modules[#modules + 1] = name, module end
  end
  local ok, found = pcall(require "accel.text.core".fullmatch, pattern, names)
  if not ok then raise("FullyShardedDataParallelPlugin: ignored_modules '%s': %s", pattern, tostring(found)) end
  for i, matches in ipairs(found) do list[#list + 1] = matches and modules[i] or nil end
  return list
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
---@return table options
function M.options(p, model, policy)
  local o = { fsdp_version = p.fsdp_version, auto_wrap_policy = policy, ignored_modules = p.ignored_modules }
  if type(p.ignored_modules) == "string" then o.ignored_modules = matching(model, p.ignored_modules) end
  if p.activation_checkpointing then
    checkpoint_units(model, policy, { modules = o.ignored_modules }, p.activation_checkpointing_offload)
  end
  o.mixed_precision, o.limit_all_gathers = p.mixed_precision_policy, p.limit_all_gathers
  if p.fsdp_version == 2 then
    o.reshard_after_forward = p.reshard_after_forward
    return o
  end
  o.sharding_strategy, o.param_init_fn = p.sharding_strategy, p.param_init_fn
  o.backward_prefetch, o.forward_prefetch = p.backward_prefetch or "NO_PREFETCH", p.forward_prefetch
  return o
end

return M
