--- calculate_per_token_loss of a MegatronLMPlugin: the loss of an update is the sum over all tokens that count, of all micro-batches, data
--- ranks and calls that an update accumulates, over their number; without it the mean of the means of micro-batches. Used by parallelism.lua.
local accel = require "accel"
local class = require "accel.util.class"
local dist = require "accel.dist"
local gradients = require("accel.optim.core").gradients
local raise = require "accel.util.raise"

--- Labels that count of a micro-batch; nil where its arguments have none.
local function count(args, shifts)
  for i = 1, args.n do
    local t = args[i]
    if type(t) == "table" and getmetatable(t) == nil then
      local own = t.shift_labels or t.labels
      if accel.is_tensor(own) and own.ndim == 2 then
        if shifts and not t.shift_labels and not t.loss_mask then own = own:narrow(2, 2, own.shape[2] - 1) end
        return own:ne(-100):sum():to "f64"
      end
    end
  end
end

--- Weighs the losses of a pipeline's micro-batches, and its gradients.
---
--- A call's own gradients come out as those of the mean over its tokens. Over the calls of one update all are left divided by the tokens of
--- the first call that has some, and complete ones are multiplied by these over the tokens of all: sums over tokens would not fit fp16.
---@class accel.accelerator.TokenWeights
---@field tokens number counted in this update, of all data ranks
---@field divisor number? tokens that the gradients there are divided by
local Weights = class "accel.accelerator.TokenWeights"

---@param model accel.nn.Module
---@param axis accel.parallel.Axis over which gradients are averaged
---@param steps fun(): integer calls of an update, by which each call's gradients are divided
function Weights:init(model, axis, steps)
  local config = type(model.config) == "table" and model.config or {}
  self.model, self.axis, self.steps = model, axis, steps
  self.shifts = config.model_type ~= "bert" and config.model_type ~= "t5"
  self.tokens, self.divisor = 0, nil
end

--- Before the backwards of a call. new: whether an update begins with it.
---@param new boolean
function Weights:begin(new)
  if new then self.tokens, self.divisor = 0, nil end
end

--- The factors of the micro-batches' mean losses, by which the mean over micro-batches and data ranks becomes that over tokens, 0 where there
--- are none: those of the loss that the call gives, and those of its gradients. nil in evaluation where a batch has no labels. A collective.
---@param micro table[] arguments of the micro-batches
---@param learns boolean
---@return number[]? of_loss
---@return number[]? of_gradients
function Weights:of(micro, learns)
  local counts = {}
  for m, args in ipairs(micro) do
    counts[m] = count(args, self.shifts)
    if not counts[m] and not learns then return nil end
    if not counts[m] then
      raise("MegatronLMPlugin: calculate_per_token_loss counts labels [B, T] among the arguments of %s, and there are none",
        class.of(self.model).__name)
    end
  end
  local each = accel.stack(counts, 1):to "cpu"
  local all = each:sum():reshape(1)
  if self.axis.size > 1 then dist.all_reduce(all, { group = self.axis.group }) end
  local n, shares = all:item(), #micro * self.axis.size
  local of_loss = (each * (shares / math.max(n, 1))):tolist()
  if not learns then return of_loss end
  self.tokens = self.tokens + n
  if n > 0 then self.divisor = self.divisor or n end
  return of_loss, (each * (shares * self.steps() / (self.divisor or 1))):tolist()
end

--- When gradients are complete: divided by the tokens of all calls of the update so far.
---@param params accel.Tensor[]
function Weights:finish(params)
  if not self.divisor or self.divisor == self.tokens then return end
  local factor = self.divisor / self.tokens
  self.divisor = self.tokens
  local _ <close> = accel.no_grad()
  local owners = package.loaded["accel.shard.owners"]
  for _, grad in ipairs((gradients(owners and owners.pieces(params) or params))) do
    if grad then grad:mul_(factor) end
  end
end

return Weights
