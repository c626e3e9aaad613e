--- Methods of Accelerator: gradient accumulation, when gradients are averaged over ranks, uneven inputs, autocast.
local accel = require "accel"
local Module = require "accel.nn.module"
local check = require "accel.util.check"
local check_self = require "accel.accelerator.check_self"
local class = require "accel.util.class"
local forward_precision = require "accel.amp.forward_precision"
local guard = require "accel.util.guard"
local raise = require "accel.util.raise"
local uneven_inputs = require "accel.accelerator.uneven_inputs"

local M = {}

--- Ends nothing: for a block at whose end there is nothing to restore.
local nothing = setmetatable({ close = function() end }, { __close = function() end })

local function is_function(x)
  if type(x) == "function" then return true end
  local meta = type(x) ~= "table" and getmetatable(x)
  return type(meta) == "table" and meta.__call ~= nil
end

--- Whether x averages its gradients over ranks.
local function reduces(x) return type(x) == "table" and rawget(x, "reducer") ~= nil end

local function models_only(who, ...)
  for i = 1, select("#", ...) do
    local x = select(i, ...)
    if type(x) ~= "table" or type(x.parameters) ~= "function" then
      raise("%s: expected a model, got %s", who, check.shown(x))
    end
  end
end

--- Drops the rest of an abandoned update.
local function drop(self)
  for _, optimizer in ipairs(self._prepared.optimizers) do optimizer.optimizer:zero_grad() end
  self._update:discard()
end

--- Enters no_sync of each model. Returns a function that leaves them again.
local function no_sync_of(models, first, last)
  local guards = {}
  for i = first, last do
    if reduces(models[i]) then guards[#guards + 1] = models[i]:no_sync() end
  end
  if #guards == 0 then return nothing end
  if #guards == 1 then return guards[1] end
  return guard(function()
    for i = #guards, 1, -1 do guards[i]:close() end
  end)
end

local function run(scope, fn)
  local _ <close> = scope
  return fn()
end

--- Around one micro-step: `local _ <close> = accelerator:accumulate(model)`, or with a function last, which is called
--- and whose results are returned. Counts the micro-batch. On the last one of an update, or of the loader, gradients are
--- averaged over ranks. On all others, each rank only adds up the gradients of the given models (default: all prepared
--- ones), and optimizer:step(), zero_grad() and scheduler:step() of prepared objects do nothing. A block left open would
--- keep gradients apart for good, so the next one in the loop raises, even on one rank.
---@param ... any models, then perhaps a function
---@return any
function M.accumulate(self, ...)
  check_self(self, "accumulate")
  local state = self.gradient_state
  local loader = state.active_dataloader
  local pass = loader and rawget(loader, "_pass")
  local scope = self._micro_steps:begin(loader, pass)
  local join = self.num_processes > 1 and state.num_steps > 1 and self._prepared:active_join() or nil
  if state:_count(join and uneven_inputs.any_loader_ends(state, join)) then drop(self) end
  local n = select("#", ...)
  local fn = n > 0 and select(n, ...) or nil
  if not is_function(fn) then fn = nil end
  if fn then n = n - 1 end
  if fn then models_only("accumulate", table.unpack({ ... }, 1, n)) else models_only("accumulate", ...) end
  if not state.sync_gradients then scope:open(loader, pass) end
  if self.num_processes == 1 and not self._prepared:counts_micro_batches() then -- there is nothing to suppress
  elseif not state.sync_gradients and not state.sync_each_batch then
    local models = self._prepared.models
    scope.no_sync = n > 0 and no_sync_of({ ... }, 1, n) or no_sync_of(models, 1, #models)
  end
  if fn then return run(scope, fn) end
  return scope
end

--- Each rank only adds up the gradients of `model` until the block ends. `accelerator:no_sync(model, fn, ...)` does so
--- while fn runs. Nothing happens on one rank. Under DeepSpeed, a backward that ends an update raises inside, on any number of ranks.
---@param model any
---@param fn? function
---@param ... any
function M.no_sync(self, model, fn, ...)
  models_only("no_sync", model)
  local deepspeed = rawget(self, "_deepspeed")
  if deepspeed then
    local inner = reduces(model) and model:no_sync() or nothing
    deepspeed.n_no_sync = deepspeed.n_no_sync + 1
    return guard(function()
      deepspeed.n_no_sync = deepspeed.n_no_sync - 1
      inner:close()
    end, fn, ...)
  end
  if reduces(model) then return model:no_sync(fn, ...) end
  if self.memory == "low" then -- a backward inside must not step (low_memory.lua)
    local update = self._update
    update.no_syncs = update.no_syncs + 1
    return guard(function() update.no_syncs = update.no_syncs - 1 end, fn, ...)
  end
  if fn == nil then return nothing end
  return check.callable("no_sync", "fn", fn)(...)
end

--- Makes the backward inside the block average gradients, although the forwards of `model` ran inside no_sync.
---@param model any
---@param fn? function
---@param ... any
function M.trigger_sync_in_backward(_, model, fn, ...)
  models_only("trigger_sync_in_backward", model)
  if not reduces(model) then return guard(function() end, fn, ...) end
  local gradients, buffers = model.require_backward_grad_sync, model.require_forward_param_sync
  model:sync_next_backward()
  return guard(function()
    rawset(model, "require_backward_grad_sync", gradients)
    rawset(model, "require_forward_param_sync", buffers)
  end, fn, ...)
end

--- Around a loop in which ranks have different numbers of batches: those that are through answer the averaging of the
--- others. An accumulated update ends when a rank's loader does. After the block all ranks have the optimizers,
--- schedules and loss scale of one of the ranks that finished last. even_batches, if given, applies to loaders over
--- indexed data inside the block.
---@param joinables any[] the prepared model, and optionally optimizers
---@param even_batches? boolean
---@param fn? function
---@param ... any
function M.join_uneven_inputs(self, joinables, even_batches, fn, ...)
  if type(even_batches) == "table" then
    even_batches = require "accel.util.options"("join_uneven_inputs", even_batches, { even_batches = true }).even_batches
  elseif type(even_batches) == "function" then
    return self:join_uneven_inputs(joinables, nil, even_batches, fn, ...)
  end
  if type(joinables) ~= "table" then
    raise("join_uneven_inputs: expected a list of prepared models, got %s", check.shown(joinables))
  end
  local model
  for _, x in ipairs(Module.is_module(joinables) and { joinables } or joinables) do
    if self.num_processes == 1 and self._prepared:find(x) or reduces(x) then
      if model and model ~= x and self.num_processes > 1 then
        raise "join_uneven_inputs: takes one model at a time; waiting ranks cannot know the order in which several models average"
      end
      model = x
    end
  end
  if not model then raise "join_uneven_inputs: got no model that prepare() has wrapped for several ranks" end
  if self.num_processes == 1 then return guard(function() end, fn, ...) end
  local restore = {}
  if even_batches ~= nil then
    for _, loader in ipairs(self._prepared.dataloaders) do
      if loader:overrides_even_batches() then
        restore[loader] = loader:set_even_batches(even_batches)
      else
        self:_warn("join_uneven_inputs: even_batches has no effect on a loader over a stream")
      end
    end
  end
  local join = model:join()
  local joining = model.joining
  local experts = package.loaded["accel.parallel.experts"]
  local again = experts and experts.count_apart(model) or function() end
  return guard(function(failure)
    again()
    local _ <close> = guard(function()
      for loader, was in next, restore do loader:set_even_batches(was) end
    end)
    join:close(failure)
    if failure == nil and joining.last then uneven_inputs.broadcast_state(self, model, joining.last) end
  end, fn, ...)
end

--- A scope in which sequences are shared out over the ranks of cp or sp: buffers are this rank's parts along their sequence dims, in
--- place, attention goes over all ranks, and at the end the buffers are whole again, but for no_restore_buffers. Once for every step.
--- Labels are shifted before they are cut (shift_labels). If neither cp_size nor sp_size is above 1, nothing happens, and one warning
--- reports it.
---@param opts? {buffers: accel.Tensor[]?, buffer_seq_dims: integer[]?, no_restore_buffers: accel.Tensor[]?}
---@param fn? function
---@param ... any
function M.maybe_context_parallel(self, opts, fn, ...)
  if type(opts) == "function" then return M.maybe_context_parallel(self, nil, opts, fn, ...) end
  local o = require "accel.util.options"("maybe_context_parallel", opts, {
    buffers = {}, buffer_seq_dims = {}, no_restore_buffers = {},
  })
  local config = self._parallel and self._parallel.config
  if not config or config.cp_size == 1 and config.sp_size == 1 then
    self:_warn "maybe_context_parallel: context parallelism is off; it has no effect"
    return guard(function() end, fn, ...)
  end
  local kind = config.cp_size > 1 and "cp" or "sp"
  local gather = kind == "cp" and config.cp_handler.cp_comm_strategy == "allgather"
  return require("accel.parallel.context").scope(self._parallel:axis(kind), kind, gather, o, fn, ...)
end

--- The precision of this Accelerator until the block ends, or while fn runs. A handler, or its fields, switches it off.
---@param handler? table AutocastKwargs, or a table of its fields
---@param fn? function
---@param ... any
function M.autocast(self, handler, fn, ...)
  if type(handler) == "function" then return M.autocast(self, nil, handler, fn, ...) end
  local Kwargs = handler ~= nil and require "accel.accelerator.handlers".AutocastKwargs
  if Kwargs and not class.isinstance(handler, Kwargs) then
    if type(handler) ~= "table" or class.of(handler) then
      raise("autocast: expected an AutocastKwargs, or a table like { enabled = false }, got %s", check.shown(handler))
    end
    handler = Kwargs(handler)
  end
  local dtype = forward_precision.dtype(self.mixed_precision)
  if not dtype then return guard(function() end, fn, ...) end
  local enabled = true
  if handler == nil then handler = self.autocast_handler end
  if handler then enabled = handler.enabled ~= false end
  return accel.autocast({ dtype = dtype, enabled = enabled }, fn, ...)
end

return M
