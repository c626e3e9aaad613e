--- ctc_loss: connectionist temporal classification (Graves et al. 2006). The forward recursion in logarithms, one step of a few ops
--- for each time. Gradients come from the ops.
local accel = require "accel"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local LOW <const> = -1e30 -- the logarithm of an impossible path, finite so that gradients are

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

--- Targets as lists of classes by row, from [N, S], or from all rows one after the other.
local function rows_of(targets, lengths)
  local rows, at = {}, 0
  local two, flat = targets.ndim == 2, targets:tolist()
  for b, n in ipairs(lengths) do
    local row = {}
    for i = 1, n do
      if two then row[i] = flat[b][i] else row[i] = flat[at + i] end
    end
    at, rows[b] = at + n, row
  end
  return rows
end

--- The log of the sum of exponentials of tensors of one shape.
local function add(...)
  return accel.logsumexp(accel.stack({ ... }, 1), 1)
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
  local dev, dtype = log_probs.device, log_probs.dtype
  local rows, widest = rows_of(targets, target_lengths), 0
  for _, row in ipairs(rows) do widest = math.max(widest, #row) end
  -- the target with blanks between. skips[s]: a path may come from two positions before
  local width, ext, skips, ends = 2 * widest + 1, {}, {}, {}
  for b, row in ipairs(rows) do
    ext[b], skips[b], ends[b] = {}, {}, {}
    for s = 1, width do
      local class = s % 2 == 0 and row[s // 2] or nil
      if class and (math.type(class) ~= "integer" or class < 0 or class >= C or class == o.blank) then
        raise("ctc_loss: target %s of row %d must be a class in 0 .. %d other than blank %d", check.shown(class), b, C - 1, o.blank)
      end
      ext[b][s] = class or o.blank
      skips[b][s] = s % 2 == 0 and s > 2 and row[s // 2] ~= nil and row[s // 2] ~= row[s // 2 - 1] and 0 or LOW
      ends[b][s] = (s == 2 * #row + 1 or s == 2 * #row and #row > 0) and 0 or LOW
    end
  end
  local like = { dtype = dtype, device = dev }
  local classes = accel.tensor(ext, { dtype = "i64", device = dev })
  local may_skip, may_end = accel.tensor(skips, like), accel.tensor(ends, like)
  local lengths = accel.tensor(input_lengths, { dtype = "i64", device = dev }):unsqueeze(2)
  local low = accel.full({ N, 2 }, LOW, like)
  local first = accel.full({ N, width }, LOW, like)
  first:narrow(2, 1, math.min(2, width)):fill_(0)
  local alpha
  for t = 1, T do
    local p = log_probs:select(1, t):gather(2, classes)
    local new
    if not alpha then
      new = p + first
      alpha = accel.where(lengths:ge(1), new, first:narrow(2, 1, 1) + accel.full({ 1, width }, LOW, like):index_fill(2, accel.tensor { 0 }, 0))
    else
      local padded = accel.cat({ low, alpha }, 2)
      new = add(alpha, padded:narrow(2, 2, width), padded:narrow(2, 1, width) + may_skip) + p
      alpha = accel.where(lengths:ge(t), new, alpha)
    end
  end
  local loss = -accel.logsumexp(alpha + may_end, 2)
  local impossible = loss:gt(-LOW / 2)
  loss = loss:masked_fill(impossible, o.zero_infinity and 0 or math.huge)
  if o.reduction == "none" then return single and loss:reshape {} or loss end
  if o.reduction == "sum" then return loss:sum() end
  local by = accel.tensor(target_lengths, like):clamp(1)
  return (loss / by):mean()
end

return M
