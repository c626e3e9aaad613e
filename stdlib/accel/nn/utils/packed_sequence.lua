--- Sequences of different lengths without padding, for RNN, LSTM and GRU: pack_padded_sequence and its companions of
--- nn.utils.rnn. Steps of all sequences lie one after the other, those of step 1 first. Longer sequences come first, so that
--- the sequences of a step are the first of the step before.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local check = require "accel.util.check"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local rnn = require "accel.nn.utils.padding"
local tensors = require "accel.util.tensors"

local M = {}

--- Packed sequences, as pack_padded_sequence makes them. Layers return another one with the same lengths.
--- example: accel.nn.utils.rnn.pack_sequence({ accel.ones(2), accel.ones(1) }).batch_sizes --> { 2, 1 }
---@class accel.nn.utils.rnn.PackedSequence
---@field data accel.Tensor (sum of lengths, ...)
---@field batch_sizes accel.Tensor i64, on the CPU: the number of sequences that have step t
---@field sorted_indices accel.Tensor? the caller's sequences in the order of their lengths
---@field unsorted_indices accel.Tensor? the inverse
local Packed = class("accel.nn.utils.rnn.PackedSequence")
M.PackedSequence = Packed

---@param data accel.Tensor
---@param batch_sizes accel.Tensor
---@param sorted_indices? accel.Tensor
---@param unsorted_indices? accel.Tensor
function Packed:init(data, batch_sizes, sorted_indices, unsorted_indices, ...)
  check.surplus("PackedSequence", ...)
  for name, t in next, { data = data, batch_sizes = batch_sizes } do
    if not tensors.is_tensor(t) then raise("PackedSequence: %s must be a tensor, got %s", name, check.shown(t)) end
  end
  if sorted_indices and not unsorted_indices then unsorted_indices = sorted_indices:argsort() end
  self.data, self.batch_sizes = data, batch_sizes
  self.sorted_indices, self.unsorted_indices = sorted_indices, unsorted_indices
end

--- The same lengths with other data.
---@param data accel.Tensor
---@return accel.nn.utils.rnn.PackedSequence
function Packed:with(data) return Packed(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices) end

--- A copy on a device, or of another dtype.
---@param ... any see Tensor:to
---@return accel.nn.utils.rnn.PackedSequence
function Packed:to(...) return self:with(self.data:to(...)) end

--- Whether x is a PackedSequence.
---@param x any
---@return boolean
function M.is(x) return type(x) == "table" and getmetatable(x) == Packed end

local function lengths_of(who, value, n, longest)
  if tensors.is_tensor(value) then value = value:tolist() end
  if type(value) ~= "table" or #value ~= n then raise("%s: lengths must have %d numbers, one for each sequence", who, n) end
  local out = {}
  for i, length in ipairs(value) do
    out[i] = math.tointeger(length) or raise("%s: lengths[%d] must be an integer, got %s", who, i, check.shown(length))
    if out[i] < 1 or out[i] > longest then
      raise("%s: lengths[%d] is %d, but must be 1 .. %d; leave empty sequences out", who, i, out[i], longest)
    end
  end
  return out
end

local pack_arguments = arguments("pack_padded_sequence", { "batch_first", false }, { "enforce_sorted", true })

--- A padded tensor (L, N, ...), or with batch_first = true (N, L, ...), without its padding. lengths are numbers or an
--- integer tensor. With enforce_sorted = true (default) they must not increase. Otherwise the sequences are sorted, and
--- pad_packed_sequence returns them in their order.
--- example: accel.nn.utils.rnn.pack_padded_sequence(accel.tensor { { 1.0, 3 }, { 2, 0 } }, { 2, 1 }).data --> { 1, 3, 2 }
---@param input accel.Tensor
---@param lengths integer[]|accel.Tensor
---@param ... any batch_first = false, enforce_sorted = true, by position or in one table
---@return accel.nn.utils.rnn.PackedSequence
function M.pack_padded_sequence(input, lengths, ...)
  local who = "pack_padded_sequence"
  local o = pack_arguments(...)
  if not tensors.is_tensor(input) or input.ndim < 2 then raise("%s: expected a tensor (L, N, ...) of rank 2 or more", who) end
  if o.batch_first then input = input:transpose(1, 2) end
  local n = input.shape[2]
  lengths = lengths_of(who, lengths, n, input.shape[1])
  local order, sorted = {}, true
  for i = 1, n do
    order[i] = i
    sorted = sorted and (i == 1 or lengths[i] <= lengths[i - 1])
  end
  if o.enforce_sorted and not sorted then
    raise("%s: lengths must not increase; sort the sequences, or set enforce_sorted = false", who)
  end
  local sorted_indices
  if not o.enforce_sorted then
    table.sort(order, function(a, b)
      if lengths[a] ~= lengths[b] then return lengths[a] > lengths[b] end
      return a < b
    end)
    local zero_based = {}
    for i, k in ipairs(order) do zero_based[i] = k - 1 end
    sorted_indices = accel.tensor(zero_based, { dtype = "i64", device = input.device })
    input = input:index_select(2, sorted_indices)
  end
  local sizes, steps, active = {}, {}, n
  for t = 1, n > 0 and lengths[order[1]] or 0 do
    while lengths[order[active]] < t do active = active - 1 end
    sizes[t], steps[t] = active, input:select(1, t):narrow(1, 1, active)
  end
  return Packed(accel.cat(steps, 1), accel.tensor(sizes, { dtype = "i64" }), sorted_indices)
end

local unpack_arguments = arguments("pad_packed_sequence", { "batch_first", false }, { "padding_value", 0.0 }, { "total_length" })

--- The inverse of pack_padded_sequence: a padded tensor and its lengths, an i64 tensor. The rest is padding_value.
--- total_length: the length of the result, at least that of the longest sequence.
--- example: local u = accel.nn.utils.rnn
---   return u.pad_packed_sequence(u.pack_sequence { accel.ones(2), accel.ones(1) }) --> { { 1, 1 }, { 1, 0 } }, { 2, 1 }
---@param sequence accel.nn.utils.rnn.PackedSequence
---@param ... any batch_first = false, padding_value = 0, total_length, by position or in one table
---@return accel.Tensor padded
---@return accel.Tensor lengths
function M.pad_packed_sequence(sequence, ...)
  local who = "pad_packed_sequence"
  local o = unpack_arguments(...)
  if not M.is(sequence) then raise("%s: expected a PackedSequence, got %s", who, check.shown(sequence)) end
  local data, sizes = sequence.data, sequence.batch_sizes:tolist()
  local n, total = sizes[1], #sizes
  if o.total_length ~= nil then
    total = check.positive(who, "total_length", o.total_length)
    if total < #sizes then raise("%s: total_length is %d, the longest sequence has %d steps", who, total, #sizes) end
  end
  local rest, lengths, steps, at = data.shape, {}, {}, 0
  table.remove(rest, 1)
  local function padding(...)
    return accel.full({ ... }, o.padding_value, { dtype = data.dtype, device = data.device })
  end
  for t, active in ipairs(sizes) do
    local step = data:narrow(1, at + 1, active)
    if active < n then step = accel.cat({ step, padding(n - active, table.unpack(rest)) }, 1) end
    steps[t], at = step, at + active
    for i = 1, active do lengths[i] = t end
  end
  local out = accel.stack(steps, 1)
  if total > #sizes then out = accel.cat({ out, padding(total - #sizes, n, table.unpack(rest)) }, 1) end
  local counts = accel.tensor(lengths, { dtype = "i64" })
  if sequence.unsorted_indices then
    out = out:index_select(2, sequence.unsorted_indices)
    counts = counts:index_select(1, sequence.unsorted_indices:to "cpu")
  end
  return o.batch_first and out:transpose(1, 2) or out, counts
end

local sequence_arguments = arguments("pack_sequence", { "enforce_sorted", true })

--- A list of tensors (L_i, ...) as a PackedSequence.
--- example: accel.nn.utils.rnn.pack_sequence({ accel.zeros(1), accel.ones(2) }, { enforce_sorted = false }).data --> { 1, 0, 1 }
---@param sequences accel.Tensor[]
---@param ... any enforce_sorted = true, by position or in a table
---@return accel.nn.utils.rnn.PackedSequence
function M.pack_sequence(sequences, ...)
  local o = sequence_arguments(...)
  local padded, lengths = rnn.pad_sequence(sequences), {}
  for i, s in ipairs(sequences) do lengths[i] = s.shape[1] end
  return M.pack_padded_sequence(padded, lengths, { enforce_sorted = o.enforce_sorted })
end

--- The tensors of a PackedSequence, without padding.
--- example: local u = accel.nn.utils.rnn return #u.unpack_sequence(u.pack_sequence { accel.ones(2), accel.ones(1) })[1] --> 2
---@param sequence accel.nn.utils.rnn.PackedSequence
---@return accel.Tensor[]
function M.unpack_sequence(sequence, ...)
  check.surplus("unpack_sequence", ...)
  local padded, lengths = M.pad_packed_sequence(sequence, { batch_first = true })
  return rnn.unpad_sequence(padded, lengths, true)
end

return M
