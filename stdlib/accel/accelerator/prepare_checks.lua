--- Checks of accelerator:prepare before it wraps anything. Parameters trained in mixed precision must be f32 if ranks divide them.
--- Optimizers must belong to prepared models. Options that several ranks refuse are refused on one as well. Used by prepare.lua.
local foreign = require "accel.accelerator.foreign"
local listed = require "accel.util.listed"
local sharding = require "accel.accelerator.sharding"

local M = {}

--- Optimizers have parameters of prepared models alone. Calls with both check it, in either order. Other optimizers are checked in their
--- first step.
---@param self accel.Accelerator
---@param given table packed arguments of prepare
---@param kinds (string|false)[]
function M.optimizers(self, given, kinds)
  if not foreign.divides(self) then return end
  local models = {}
  for i = 1, given.n do models[#models + 1] = kinds[i] == "model" and given[i] or nil end
  for i = 1, #models > 0 and given.n or 0 do
    if kinds[i] == "optimizer" and given[i].param_groups then foreign.check(self, given[i], ("prepare: argument %d"):format(i), models) end
  end
end

M.note = foreign.note

-- Precision --------------------------------------------------------------------------------------

--- Whether mixed precision holds trained parameters in f32 here: the parameters that the reference divides over ranks or gives to
--- DeepSpeed. Plain data parallelism leaves them as they are, as PyTorch does.
---@param self accel.Accelerator
---@return boolean
function M.trains_in_f32(self)
  if self.mixed_precision == "no" then return false end
  local parallel = self._parallel
  return (self.fsdp_plugin or self.deepspeed_plugin or self.megatron_lm_plugin or parallel and parallel:is_model_parallel()) and true or false
end

--- Trained parameters of 16 bits become f32, with a word on them: checkpoints grow. Those of a model that the script has wrapped are in
--- their parts already.
---@param self accel.Accelerator
---@param model accel.nn.Module
---@param wrapped boolean
function M.hold_in_f32(self, model, wrapped)
  if not M.trains_in_f32(self) then return end
  local upcast = require "accel.shard.upcast"
  if not wrapped then
    local names = upcast.model(model)
    if #names > 0 then
      self:_warn(("prepare: 16-bit parameters train in f32 and are saved in f32, because mixed_precision is \"%s\": %s;"
        .. " load the model in f32 to avoid this message"):format(self.mixed_precision, listed(names, 8)))
    end
    return
  end
  local names = upcast.rounded(model.reducer)
  if #names > 0 then
    self:_warn(("prepare: the model was wrapped before, and its 16-bit parts lose small updates: %s; wrap it with master_weights = true,"
      .. " or give prepare the model itself"):format(listed(names, 8)))
  end
end

-- One rank ---------------------------------------------------------------------------------------

--- The communication hook of a DistributedDataParallelKwargs: {state, function}, or nil.
---@param handler accel.accelerator.DistributedDataParallelKwargs?
---@return table?
function M.hook_of(handler)
  local hook, wrapper = handler and handler.comm_hook or "no", handler and handler.comm_wrapper or "no"
  if hook == "no" and wrapper == "no" then return nil end
  return { require("accel.dist").hooks.by_name(hook, wrapper, handler.comm_state_option) }
end

-- Parameters that several ranks would divide, as keys.
local divided = setmetatable({}, { __mode = "k" })

--- An optimizer that cannot update shards, such as AdamW8bit, trains on one rank, which has whole tensors. A warning reports that
--- several ranks refuse it.
---@param self accel.Accelerator
---@param optimizer accel.optim.Optimizer
function M.warn_whole(self, optimizer)
  for _, group in ipairs(next(divided) and optimizer.param_groups or {}) do
    for _, p in ipairs(group.params) do
      if divided[p] then
        local problem = require("accel.shard.owners").needs_whole(optimizer)
        if problem then self:_warn("prepare: this trains on one rank alone, several raise: " .. problem) end
        return
      end
    end
  end
end

--- Errors of several ranks are errors on one rank as well, even though nothing is wrapped.
---@param self accel.Accelerator
---@param model accel.nn.Module
function M.alone(self, model)
  M.hook_of(self.ddp_handler)
  for _, unit in ipairs(sharding.check(self, model) or {}) do
    for _, p in ipairs(unit.params) do divided[p] = true end
  end
  for _, optimizer in ipairs(self._prepared.optimizers) do M.warn_whole(self, optimizer.optimizer) end
end

return M
