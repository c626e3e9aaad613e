--- Sequences of different lengths in one tensor.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local unpad_arguments = arguments("unpad_sequence", { "batch_first", false })
local parse = arguments("pad_sequence", { "batch_first", false }, { "padding_value", 0 },
  { "padding_side", "right" })

--- Tensors (L_i, ...) as one (L, N, ...), or with batch_first = true (N, L, ...), L the largest length. The rest is
--- padding_value (0), on padding_side "right" or "left".
--- example: accel.nn.utils.rnn.pad_sequence({ accel.ones(2), accel.ones(1) }, true) --> { { 1, 1 }, { 1, 0 } }
---@param sequences accel.Tensor[]
---@param ... any batch_first, padding_value, padding_side by position or in one table
---@return accel.Tensor
function M.pad_sequence(sequences, ...)
  local o = parse(...)
  check.word("pad_sequence", "padding_side", o.padding_side, { "left", "right" })
  if type(sequences) ~= "table" or #sequences == 0 then
    raise("pad_sequence: expected a list of tensors, got %s", type(sequences) == "table" and "an empty one"
      or check.shown(sequences))
  end
  local first, longest = sequences[1].shape, 0
  for i, s in ipairs(sequences) do
    local shape = s.shape
    local same = #shape == #first and #shape >= 1
    for d = 2, #shape do same = same and shape[d] == first[d] end
    if not same then
      raise("pad_sequence: sequence %d of shape %s differs from the first, %s, in more than its length", i,
        tensors.shape_string(s), tensors.shape_string(sequences[1]))
    end
    longest = math.max(longest, shape[1])
  end
  local rows = {}
  for i, s in ipairs(sequences) do
    local missing = s.shape
    missing[1] = longest - missing[1]
    if missing[1] == 0 then
      rows[i] = s
    else
      local fill = accel.full(missing, o.padding_value, { dtype = s.dtype, device = s.device })
      rows[i] = accel.cat(o.padding_side == "right" and { s, fill } or { fill, s }, 1)
    end
  end
  return accel.stack(rows, o.batch_first and 1 or 2)
end

--- The sequences of a padded tensor. lengths are numbers or an integer tensor.
--- example: #accel.nn.utils.rnn.unpad_sequence(accel.ones(3, 2), { 3, 1 })[2] --> 1
---@param padded accel.Tensor
---@param lengths integer[]|accel.Tensor
---@param ... any batch_first = false, by position or in a table
---@return accel.Tensor[]
function M.unpad_sequence(padded, lengths, ...)
  local o = unpad_arguments(...)
  if tensors.is_tensor(lengths) then lengths = lengths:tolist() end
  local out = {}
  for i, n in ipairs(lengths) do out[i] = padded:select(o.batch_first and 1 or 2, i):narrow(1, 1, n) end
  return out
end

return M
