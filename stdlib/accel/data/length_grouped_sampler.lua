--- data.LengthGroupedSampler(batch_size, source, {mega_batch_mult =, model_input_name = "input_ids", seed =}): a random
--- order in which neighbours are of similar length, so that little of a batch is padding. The shuffled positions are
--- cut into groups of mega_batch_mult batches, each sorted from long to short. The longest sample of all comes first,
--- so that a batch that does not fit in memory fails at once.
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local Sampler = require("accel.data.samplers").Sampler
local tensors = require "accel.util.tensors"

--- example: local lengths = { 3, 9, 1, 5 }
---   return accel.data.LengthGroupedSampler(2, lengths, { mega_batch_mult = 2 }):order(0) --> { 2, 4, 1, 3 }
---@class accel.data.LengthGroupedSampler : accel.data.Sampler
---@field lengths integer[]
local LengthGroupedSampler = Sampler:extend("accel.data.LengthGroupedSampler")

local function length_of(sample, name, i)
  local sequence = type(sample) == "table" and sample[name] or nil
  if tensors.is_tensor(sequence) and #sequence.shape > 0 then return sequence.shape[1] end
  if type(sequence) == "table" then return #sequence end
  raise("LengthGroupedSampler: sample %d has no sequence '%s'; give model_input_name, or a list of lengths", i,
    name)
end

--- Lengths of the samples: from a list, a tensor or a data set, of which every sample is read once.
local function lengths_of(source, name)
  if tensors.is_tensor(source) and #source.shape == 1 then return source:tolist() end
  if type(source) ~= "table" then
    raise("LengthGroupedSampler: expected a list of lengths or a data set, got %s", check.shown(source))
  end
  local lengths = {}
  if source.len ~= nil and source.get ~= nil then
    for i = 1, source:len() do lengths[i] = length_of(source:get(i), name, i) end
  else
    for i, n in ipairs(source) do
      lengths[i] = check.number("LengthGroupedSampler", ("lengths[%d]"):format(i), n, 0)
    end
  end
  return lengths
end

---@param batch_size integer of the loader
---@param source integer[]|accel.Tensor|table lengths, or a data set whose samples hold a sequence
---@param opts? {mega_batch_mult: integer?, model_input_name: string?, seed: integer?}
function LengthGroupedSampler:init(batch_size, source, opts)
  local o = options("LengthGroupedSampler", opts, {
    mega_batch_mult = options.none, model_input_name = "input_ids", seed = options.none,
  })
  self.batch_size = check.positive("LengthGroupedSampler", "batch_size", batch_size)
  self.lengths = lengths_of(source, o.model_input_name)
  -- at least four groups if there are enough batches
  self.mega_batch_mult = o.mega_batch_mult
      and check.positive("LengthGroupedSampler", "mega_batch_mult", o.mega_batch_mult)
    or math.max(1, math.min(50, #self.lengths // (4 * self.batch_size)))
  self:set_seed(o.seed)
end

function LengthGroupedSampler:len() return #self.lengths end

function LengthGroupedSampler:order(epoch, seed)
  local lengths, order, place = self.lengths, {}, {}
  for i = 1, #lengths do order[i] = i end
  self:random(epoch, seed):shuffle(order)
  for k, i in ipairs(order) do place[i] = k end -- decides among equal lengths: the sort is not stable
  local function before(a, b)
    if lengths[a] ~= lengths[b] then return lengths[a] > lengths[b] end
    return place[a] < place[b]
  end
  local size, out, longest = self.batch_size * self.mega_batch_mult, {}, 1
  for first = 1, #order, size do
    local group = table.move(order, first, math.min(first + size - 1, #order), 1, {})
    table.sort(group, before)
    table.move(group, 1, #group, first, out)
    if lengths[out[first]] > lengths[out[longest]] then longest = first end
  end
  if #out > 0 then out[1], out[longest] = out[longest], out[1] end
  return out
end

return LengthGroupedSampler
