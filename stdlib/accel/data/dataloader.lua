--- data.DataLoader(dataset, {batch_size=, shuffle=, drop_last=, seed=, collate_fn=}), or one table with
--- `dataset` in it: batches in an order that depends on (seed, epoch) alone.
---
---   for batch in loader() do local x, y = batch[1], batch[2] ... end
---
--- Each loader() is a pass; the next one has the next epoch's order, also when this one was left by break.
--- state_dict tells the place inside a pass, so that a resumed run continues with the very next batch.
local check = require "accel.util.check"
local class = require "accel.util.class"
local Random = require "accel.util.random"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- example: local loader = accel.data.DataLoader(accel.data.TensorDataset(accel.arange(5)), { batch_size = 2 })
---   local sizes = {} for batch in loader() do sizes[#sizes + 1] = batch[1].shape[1] end return sizes --> { 2, 2, 1 }
---@class accel.data.DataLoader
---@field epoch integer
local DataLoader = class("accel.data.DataLoader")

local function is_dataset(x)
  if type(x) ~= "table" then return false end
  return x.len ~= nil and (x.get ~= nil or x.get_batch ~= nil)
end

---@param dataset table a data set, or the options with `dataset` among them
---@param opts? table batch_size, shuffle, drop_last, seed, collate_fn
function DataLoader:init(dataset, opts)
  local positional = opts ~= nil or is_dataset(dataset)
  local o = options("DataLoader", positional and opts or not positional and dataset or nil, {
    dataset = options.none, batch_size = 1, shuffle = false, drop_last = false, seed = 0,
    collate_fn = options.none,
  })
  if not positional then
    dataset = o.dataset
  elseif o.dataset ~= nil then
    raise "DataLoader: two data sets, one before the options and one in them"
  end
  if not is_dataset(dataset) then
    raise("DataLoader: dataset must have the methods len and get (or get_batch), got %s",
      check.shown(dataset))
  end
  self.dataset, self.shuffle = dataset, o.shuffle
  self.batch_size = check.positive("DataLoader", "batch_size", o.batch_size)
  self.drop_last, self.seed, self.collate_fn = o.drop_last, o.seed, o.collate_fn
  self.epoch, self.position = 0, 0
end

--- Batches in a pass.
function DataLoader:len()
  local n = self.dataset:len()
  return self.drop_last and n // self.batch_size or -(-n // self.batch_size)
end

function DataLoader.__len(self) return self:len() end

function DataLoader.__tostring(self)
  return ("DataLoader(%d samples, batch_size=%d, shuffle=%s, drop_last=%s, %d batches)"):format(
    self.dataset:len(), self.batch_size, self.shuffle, self.drop_last, self:len())
end

--- The order of an epoch: positions 1 .. n.
---@param epoch? integer default: the coming one
function DataLoader:order(epoch)
  local order = {}
  for i = 1, self.dataset:len() do order[i] = i end
  if self.shuffle then Random(self.seed, epoch or self.epoch):shuffle(order) end
  return order
end

--- Makes the coming pass that of this epoch, from its start.
function DataLoader:set_epoch(epoch) self.epoch, self.position = epoch, 0 end

--- The epoch of the pass under way (or coming) and the batches of it that were handed out.
function DataLoader:state_dict() return { epoch = self.epoch, position = self.position, seed = self.seed } end

function DataLoader:load_state_dict(state)
  if math.type(state.epoch) ~= "integer" or math.type(state.position) ~= "integer" then
    raise "DataLoader: not the state of a loader"
  end
  self.epoch, self.position, self.seed = state.epoch, state.position, state.seed or self.seed
end

function DataLoader:_batch(positions)
  local dataset, collate = self.dataset, self.collate_fn
  if dataset.get_batch and not collate then return dataset:get_batch(positions) end
  local samples = {}
  for k, i in ipairs(positions) do samples[k] = dataset:get(i) end
  return (collate or require "accel.data.collate")(samples)
end

--- A pass over the data. A `for` that got the loader itself calls it with its two control values, each round
--- anew, which would begin a pass in every round.
function DataLoader.__call(self, ...)
  if select("#", ...) > 0 then raise "DataLoader: write `for batch in loader() do`, with the brackets" end
  local order = self:order()
  local size, last, pass = self.batch_size, self:len(), {}
  self._pass = pass
  local function finish()
    if self._pass == pass then
      self._pass, self.epoch, self.position = nil, self.epoch + 1, 0
    end
  end
  local function next_batch()
    if self._pass ~= pass then
      if pass.done then return nil end
      raise "DataLoader: another pass over this loader was begun meanwhile"
    end
    local k = self.position
    if k >= last then
      pass.done = true
      finish()
      return nil
    end
    local batch = self:_batch(table.move(order, k * size + 1, math.min((k + 1) * size, #order), 1, {}))
    self.position = k + 1
    return batch
  end
  return next_batch, nil, nil, setmetatable({}, { __close = finish })
end

return DataLoader
