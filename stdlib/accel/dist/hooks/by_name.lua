--- by_name(hook, wrapper, state_option): a hook by the words of Accelerate's DistributedDataParallelKwargs.
local check = require "accel.util.check"
local no_effect = require "accel.util.no_effect"

local hooks = { "no", "fp16", "bf16", "power_sgd", "batched_power_sgd", "int8", "int4" }
local wrappers = { "no", "fp16", "bf16" }

local made = { -- word -> hook, maker of its state
  no = { "allreduce_hook" }, fp16 = { "fp16_compress_hook" }, bf16 = { "bf16_compress_hook" },
  power_sgd = { "powerSGD_hook", "PowerSGDState" }, batched_power_sgd = { "batched_powerSGD_hook", "PowerSGDState" },
  int8 = { "int8_all_gather_hook", "QuantizedState" }, int4 = { "int4_reduce_scatter_hook", "QuantizedState" },
}

--- State and hook for register_comm_hook: `model:register_comm_hook(hooks.by_name("power_sgd", "bf16", {
--- matrix_approximation_rank = 2 }))`. hook "no" with wrapper "no" is a plain all-reduce.
--- example: select("#", accel.dist.hooks.by_name("fp16")) --> 2
---@param hook string "no", "fp16", "bf16", "power_sgd", "batched_power_sgd", "int8" or "int4"
---@param wrapper? string "no", "fp16" or "bf16": the dtype to convert gradients to first
---@param state_option? table options of the hook's state
---@return any state
---@return fun(state: any, bucket: accel.dist.GradBucket): any hook
return function(hook, wrapper, state_option, ...)
  check.surplus("by_name", ...)
  local M = require "accel.dist.hooks"
  local names = made[check.word("by_name", "hook", hook, hooks)]
  wrapper = check.word("by_name", "wrapper", wrapper or "no", wrappers)
  local state, fn = nil, M[names[1]]
  if names[2] then state = M[names[2]](state_option)
  elseif state_option ~= nil and next(state_option) ~= nil then
    no_effect.once("by_name", "state_option", ("with hook = '%s', which has no state; leave it out"):format(hook))
  end
  if wrapper ~= "no" then fn = M[wrapper .. "_compress_wrapper"](fn) end
  return state, fn
end
