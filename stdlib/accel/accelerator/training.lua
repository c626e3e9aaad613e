--- Methods of Accelerator between the loss and the step: backward, unscaling, clipping. update.lua owns the state of
--- the update, and is the only place that divides gradients.
local accel = require "accel"
local Update = require "accel.accelerator.update"
local check = require "accel.util.check"
local check_self = require "accel.accelerator.check_self"
local low_memory = require "accel.accelerator.low_memory"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local recording = require "accel.util.recording"
local loss_weights = require "accel.accelerator.loss_weights"
local tensors = require "accel.util.tensors"
local utils = require "accel.nn.utils"

local M = {}

-- Backward ---------------------------------------------------------------------------------------

--- The gradient that a backward starts from: 1, or the given one, times the loss scale, divided by the micro-batches of
--- an update. nil: a plain 1.
local function seed(update, loss, given, divisor)
  local scaler = update:scaler()
  if not scaler and divisor == 1 then return given end
  if given then
    if scaler then given = given * scaler:_scale_of(loss) end
    return divisor == 1 and given or given / divisor
  end
  if loss:numel() ~= 1 then return nil end -- the engine raises the error
  if not scaler then return accel.full(loss.shape, 1 / divisor, { dtype = loss.dtype, device = loss.device }) end
  local scale = scaler:_scale_of(loss) / divisor
  return loss.ndim == 0 and scale or scale:view(loss.shape)
end

--- Runs the backward with a watch on gradients that got their last factor already.
local function watched(finished, run)
  local handles = {}
  local guard = require "accel.util.guard"
  local _ <close> = guard(function()
    for _, handle in ipairs(handles) do handle:remove() end
  end)
  for p in next, finished do
    handles[#handles + 1] = p:register_post_accumulate_grad_hook(function()
      raise("backward: it adds to gradients that were unscaled or normalised already (clip_grad_norm_,"
        .. " unscale_gradients); step or zero_grad their optimizer first")
    end)
  end
  run()
end

--- Runs the backward of a loss. share: the part and the factors besides divisor. nil: the loss.
local function run_backward(update, loss, share, gradient, divisor, times, engine)
  if not share and times == 1 then return loss:backward(seed(update, loss, gradient, divisor), engine) end
  local losses, grads = share and share.losses or { loss }, {}
  for i, each in ipairs(losses) do
    local start = seed(update, each, gradient, divisor)
    if each:numel() ~= 1 and not start then return loss:backward(nil, engine) end -- the engine raises the error
    start = start or accel.ones(each.shape, { dtype = each.dtype, device = each.device })
    grads[i] = (start * (share and share.factors[i] or 1) * times):to(each.dtype)
  end
  accel.backward(losses, grads, engine)
end

local declared = {
  weight = options.none, gradient = options.none, retain_graph = options.none, create_graph = options.none,
  inputs = options.none,
}

local function backward(self, loss, opts)
  local update = self._update
  if recording.running and self.gradient_state.num_steps > 1 then
    recording.note "gradients accumulate over calls, which the accelerator counts"
  end
  if self._parallel and #self._parallel.pipelines > 0 and require("accel.accelerator.pipeline_backward").run(self, loss, opts, declared) then
    return
  end
  local weight, gradient, engine, divisor, share, times = nil, nil, nil, 1, nil, 1
  if opts ~= nil then
    local o = options("backward", opts, declared)
    weight, gradient = o.weight, o.gradient
    if weight ~= nil then
      local of_loss, of_weight = loss_weights.of_weighted(self)
      weight, times = Update.weight(weight) * of_weight, of_loss
    end
    engine = { retain_graph = o.retain_graph, create_graph = o.create_graph, inputs = o.inputs }
  end
  if weight == nil and gradient == nil and loss:numel() == 1 then
    local count = loss_weights.of_joined(self, loss)
    if count then
      weight = Update.weight(count)
      times = weight
    else
      share = loss_weights.of(self, loss)
    end
  end
  low_memory.begin(update)
  update:begin(weight ~= nil, self.gradient_state, share and share.count)
  if weight == nil then
    divisor = self.gradient_state.num_steps
    if update.joined then
      divisor, times = 1, update:micro_step(share and share.count)
    elseif divisor ~= 1 and self._prepared:counts_micro_batches() then
      divisor = 1
    end
  end
  local finished = update.n > 0 and update:finished_parameters()
  local function run() run_backward(update, loss, share, gradient, divisor, times, engine) end
  if rawget(self, "_padding") then run = loss_weights.leaving_out(run) end
  local consumer <close> = low_memory.consumer(self, update, engine)
  if finished then watched(finished, run) else run() end
  if consumer then consumer:close() end
  if self._parallel then self._parallel:reduce_experts() end
  update:add(weight)
  if self.gradient_state.random and self.gradient_state.sync_gradients then self.gradient_state.random:leave() end
  if update.joined and self.gradient_state.sync_gradients then update:settle() end
  self._resume:trains()
  local deepspeed = rawget(self, "_deepspeed")
  if deepspeed then deepspeed:after_backward() end
end

--- Gradients of the loss, for an update of gradient_accumulation_steps backwards of means: always divided by that
--- number, and scaled in fp16.
---
--- A model's loss from labels is weighted by their number: gradients follow the mean over the labels of all ranks and micro-steps.
--- A loss that is the sum of several means (first and last tokens of answers, words and order of sentences) weighs its micro-steps by the
--- labels of the first. Rows of a loader's last batch that are padding have no part in gradients, and a loss of other kind counts by the
--- rows that a rank has. Without accumulation, a model that you never prepared has gradients of this rank's own mean.
---
--- With weight = w the loss is a sum over w tokens or samples (a number, or a tensor of one element). Gradients then follow
--- the sum of all losses of the update, divided by the sum of all weights, on all ranks and in all micro-batches, for any
--- distribution of rows. For a pipeline's loss function, the sum is over its micro-batches. They have that value from the
--- step, or from clip_grad_norm_, on. All backwards of an update have a weight, or none has. In fp16 the loss scale settles
--- lower than with means, since sums are larger.
--- example: local a, w = accel.Accelerator(), accel.zeros(1, { requires_grad = true })
---   a:backward((w * accel.tensor { 1.0, 2, 6 }):sum(), { weight = 3 }) a:unscale_gradients(a:prepare(accel.optim.SGD {
---   w })) return w.grad --> { 3 }
--- Under DeepSpeed the backward that ends an update clips, steps and drops the gradients as well (accel.deepspeed.engine).
---@param loss accel.Tensor
---@param opts? {weight: (number|accel.Tensor)?, gradient: accel.Tensor?, retain_graph: boolean?,
--- create_graph: boolean?, inputs: accel.Tensor[]?}
function M.backward(self, loss, opts, ...)
  check.surplus("backward", ...)
  if tensors.is_tensor(self) then check_self(self, "backward") end
  if not tensors.is_tensor(loss) then raise("backward: the loss must be a tensor, got %s", check.shown(loss)) end
  local elastic = rawget(self, "_elastic")
  if elastic then return elastic:backward(backward, loss, opts) end
  return backward(self, loss, opts)
end

--- The gradient that a pipeline's backward of one of n losses starts from.
function M._backward_seed(self, loss, n)
  local steps = self.gradient_state.num_steps
  return seed(self._update, loss, nil, n * steps) or accel.full(loss.shape, 1.0, { dtype = loss.dtype, device = loss.device })
end

-- Gradients --------------------------------------------------------------------------------------

--- The prepared wrapper of an optimizer.
local function prepared(self, optimizer)
  for _, own in ipairs(self._prepared.optimizers) do
    if own == optimizer or own.optimizer == optimizer then return own end
  end
  raise("unscale_gradients: expected an optimizer that was prepared here, got %s", check.shown(optimizer))
end

--- Divides gradients by the loss scale, and by the weights of their losses, now instead of at the step: before a script
--- looks at them. Call it before a script reads the gradients. It acts once per update, and does nothing while
--- gradients accumulate.
---@param optimizer? accel.accelerator.AcceleratedOptimizer|accel.accelerator.AcceleratedOptimizer[] all when nil
function M.unscale_gradients(self, optimizer, ...)
  check.surplus("unscale_gradients", ...)
  if not self.gradient_state.sync_gradients then return end
  low_memory.refuse(self._update, "unscale_gradients")
  local list = self._prepared.optimizers
  if type(optimizer) == "table" and rawget(optimizer, 1) ~= nil then
    list = optimizer
  elseif optimizer ~= nil then
    list = { optimizer }
  end
  for _, each in ipairs(list) do self._update:finish(prepared(self, each)) end
end

--- Brings the gradients of those prepared optimizers into their last form that hold any of the parameters. together:
--- one factor is to scale them all.
local function finish_for(self, params, together)
  local update = self._update
  local scaler = update:scaler()
  if not scaler and not update.weighted then return end
  local wanted = {}
  for _, p in ipairs(tensors.is_tensor(params) and { params } or params) do wanted[p] = true end
  local list = self._prepared:optimizers_of(wanted)
  for _, optimizer in ipairs(list) do update:finish(optimizer) end
  if scaler and together and #list > 1 then scaler:_share(list) end
end

local function clip_norm(self, params, max_norm, o)
  if not self.gradient_state.sync_gradients then return nil end
  low_memory.refuse(self._update, "clip_grad_norm_")
  local deepspeed = rawget(self, "_deepspeed")
  if deepspeed and deepspeed.stepped then return deepspeed:norm_instead(max_norm, o) end
  if type(params) == "table" then finish_for(self, params, true) elseif params then finish_for(self, { params }) end
  if self._parallel and self._parallel:is_model_parallel() then
    check.number("clip_grad_norm_", "max_norm", max_norm, 0)
    if o.optimizer then self:_warn "clip_grad_norm_: optimizer has no effect if ranks split a model; gradients are scaled at once" end
    return require("accel.parallel.clip").norm(tensors.is_tensor(params) and { params } or params, max_norm, o, self._parallel)
  end
  return utils.clip_grad_norm_(params, max_norm, o)
end

--- Scales gradients together so that their norm is at most max_norm, after unscaling the gradients of the optimizers that hold
--- these parameters. If gradients of one of these overflowed, all of them skip their steps, since the norm is not finite. Returns
--- the norm before, a rank-0 tensor. While gradients accumulate, it does nothing and returns nil, or in an elastic job the last norm.
--- On every rank alike. Under
--- DeepSpeed the backward has clipped and stepped: the norm of that update is returned, and nothing done.
--- example: local a, p = accel.Accelerator(), accel.ones(2, { requires_grad = true }) a:backward((p * 3):sum())
---   local norm = a:clip_grad_norm_({ p }, 1, { norm_type = 1 }) return norm, p.grad --> 6, { 0.5, 0.5 }
---@param params accel.Tensor[]|accel.Tensor
---@param max_norm number
---@param norm_type? number|{norm_type: number?, error_if_nonfinite: boolean?, optimizer: accel.optim.Optimizer?} 2
---@param ... any error_if_nonfinite = false, optimizer, as of nn.utils.clip_grad_norm_
---@return accel.Tensor?
function M.clip_grad_norm_(self, params, max_norm, norm_type, ...)
  local o = utils._clip_arguments(norm_type, ...)
  local elastic = rawget(self, "_elastic")
  if elastic then return elastic:clip(clip_norm, params, max_norm, o) end
  return clip_norm(self, params, max_norm, o)
end

--- Limits every element of the gradients to the range from -clip_value to clip_value, after unscaling. Nothing is done
--- while gradients accumulate.
---@param params accel.Tensor[]|accel.Tensor
---@param clip_value number
function M.clip_grad_value_(self, params, clip_value, ...)
  check.surplus("clip_grad_value_", ...)
  if not self.gradient_state.sync_gradients then return end
  low_memory.refuse(self._update, "clip_grad_value_")
  local deepspeed = rawget(self, "_deepspeed")
  if deepspeed and deepspeed.stepped then
    raise "clip_grad_value_: under DeepSpeed, backward has already stepped; set the configuration's gradient_clipping"
  end
  if type(params) == "table" then finish_for(self, params) elseif params then finish_for(self, { params }) end
  utils.clip_grad_value_(params, clip_value)
end

return M
