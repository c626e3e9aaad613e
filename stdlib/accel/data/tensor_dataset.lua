--- data.TensorDataset(t1, t2, ...): sample i is {t1[i], t2[i], ...}. Batches are gathered by one
--- index_select per tensor.
local accel = require "accel"
local Dataset = require "accel.data.dataset"
local fingerprint = require "accel.data.fingerprint"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- example: accel.data.TensorDataset(accel.tensor { 5, 6, 7 }, accel.tensor { 0, 1, 0 }):get(2) --> { 6, 1 }
---@class accel.data.TensorDataset : accel.data.Dataset
local TensorDataset = Dataset:extend("accel.data.TensorDataset")

---@param ... accel.Tensor with equal first dimensions
function TensorDataset:init(...)
  self.tensors = { ... }
  if #self.tensors == 0 then raise "TensorDataset: give at least one tensor" end
  for i, t in ipairs(self.tensors) do
    if not tensors.is_tensor(t) then raise("TensorDataset: argument %d is a %s, not a tensor", i, type(t)) end
    if #t.shape == 0 then raise("TensorDataset: tensor %d has no dimensions", i) end
    if t.shape[1] ~= self.tensors[1].shape[1] then
      raise("TensorDataset: tensor %d has %d samples, the first has %d", i, t.shape[1],
        self.tensors[1].shape[1])
    end
  end
  self.n = self.tensors[1].shape[1]
end

function TensorDataset:len() return self.n end

--- Shapes, and some rows of integers, for states of loaders: accel.data.fingerprint.
---@return string
function TensorDataset:fingerprint() return fingerprint.tensors(self.tensors) end

--- For workers: the same tensors.
function TensorDataset:worker_spec() return { module = "accel.data.tensor_dataset", args = self.tensors } end

function TensorDataset:get(i)
  self:check_position(i)
  local sample = {}
  for k, t in ipairs(self.tensors) do sample[k] = t:select(1, i) end
  return sample
end

---@param positions integer[]
function TensorDataset:get_batch(positions)
  local ids, n, integer = {}, self.n, math.type
  for k, i in ipairs(positions) do
    if integer(i) ~= "integer" or i < 1 or i > n then self:check_position(i) end -- the check of its object costs more than the loop
    ids[k] = i - 1
  end
  local batch = {}
  for k, t in ipairs(self.tensors) do
    batch[k] = t:index_select(1, accel.tensor(ids, { dtype = "i64", device = t.device }))
  end
  return batch
end

return TensorDataset
