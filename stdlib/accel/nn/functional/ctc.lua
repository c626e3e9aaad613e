--- ctc_loss: connectionist temporal classification (Graves et al. 2006). Checks of the arguments, and forms of the targets. The op ctc_loss
--- computes it.
local accel = require "accel"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

--- Lengths as a list, checked against the longest.
local function lengths_of(value, name, n, most)
  if tensors.is_tensor(value) then value = value:reshape(-1):tolist() end
  if type(value) ~= "table" or #value ~= n then raise("ctc_loss: %s must have %d lengths, one for each row", name, n) end
  for i, length in ipairs(value) do
    if math.type(length) ~= "integer" or length < 0 or length > most then
      raise("ctc_loss: %s[%d] must be an integer in 0 .. %d, got %s", name, i, most, check.shown(length))
    end
  end
  return value
end

--- Targets as (N, S): of all rows one after the other, or as they are. S is the longest of them.
local function matrix_of(targets, lengths)
  if targets.ndim == 2 then return targets:to "i64" end
  local widest, total = 0, 0
  for _, n in ipairs(lengths) do widest, total = math.max(widest, n), total + n end
  if total ~= targets:numel() then raise("ctc_loss: targets has %d classes, target_lengths add up to %d", targets:numel(), total) end
  local out, at = accel.zeros(#lengths, widest, { dtype = "i64", device = targets.device }), 0
  for b, n in ipairs(lengths) do
    if n > 0 then out:select(1, b):narrow(1, 1, n):copy_(targets:narrow(1, at + 1, n)) end
    at = at + n
  end
  return out
end

--- Classes of targets on the CPU are checked. A device would have to be waited for, and its kernel reads blanks instead.
local function check_classes(targets, lengths, C, blank)
  if targets.device ~= "cpu" then return end
  for b, row in ipairs(targets:tolist()) do
    for i = 1, lengths[b] do
      local class = row[i]
      if class < 0 or class >= C or class == blank then
        raise("ctc_loss: target %s of row %d must be a class in 0 .. %d other than blank %d", check.shown(class), b, C - 1, blank)
      end
    end
  end
end

--- The mean (or sum) over rows of -log p(target | input) for log probabilities [T, N, C] (or [T, C] for one row), as torch.nn.functional.ctc_loss.
--- "mean" divides each row's loss by its target length first, and then takes the mean. A row whose target does not fit into its input has an
--- infinite loss, with zero_infinity 0 and no gradient.
--- example: local lp = accel.log_softmax(accel.zeros(4, 1, 3), 3)
---   return accel.nn.functional.ctc_loss(lp, accel.tensor { { 1, 2 } }, { 4 }, { 2 }) --> 0.843200
---@param log_probs accel.Tensor [T, N, C] or [T, C]
---@param targets accel.Tensor i64 [N, S], or all rows one after the other [sum of target_lengths]
---@param input_lengths accel.Tensor|integer[] [N]
---@param target_lengths accel.Tensor|integer[] [N]
---@param opts? {blank: integer?, reduction: string?, zero_infinity: boolean?} blank = 0, reduction = "mean"
---@return accel.Tensor
function M.ctc_loss(log_probs, targets, input_lengths, target_lengths, opts, ...)
  local o = options("ctc_loss", opts, { blank = 0, reduction = "mean", zero_infinity = false }, ...)
  if not tensors.is_tensor(log_probs) or log_probs.ndim < 2 or log_probs.ndim > 3 then
    raise "ctc_loss: log_probs must be a tensor [T, N, C] or [T, C]"
  end
  check.word("ctc_loss", "reduction", o.reduction, { "none", "mean", "sum" })
  local single = log_probs.ndim == 2
  if single then log_probs = log_probs:unsqueeze(2) end
  local T, N, C = log_probs.shape[1], log_probs.shape[2], log_probs.shape[3]
  if o.blank < 0 or o.blank >= C then raise("ctc_loss: blank %d is not one of the %d classes", o.blank, C) end
  if single and math.type(input_lengths) == "integer" then input_lengths, target_lengths = { input_lengths }, { target_lengths } end
  input_lengths = lengths_of(input_lengths, "input_lengths", N, T)
  target_lengths = lengths_of(target_lengths, "target_lengths", N, targets.shape[targets.ndim])
  local dev = log_probs.device
  targets = matrix_of(targets, target_lengths)
  check_classes(targets, target_lengths, C, o.blank)
  local function lengths(list) return accel.tensor(list, { dtype = "i64", device = dev }) end
  local loss = accel.ctc_loss(log_probs, targets:to(dev), lengths(input_lengths), lengths(target_lengths), o)
  return single and o.reduction == "none" and loss:reshape {} or loss
end

return M
