--- data.DataLoader{dataset=, batch_size=, shuffle=, drop_last=, seed=, collate_fn=}: batches in an order
--- that depends on (seed, epoch) alone.
---
---   for batch in loader() do local x, y = batch[1], batch[2] ... end
---
--- Each loader() is a pass; the next one has the next epoch's order, also when this one was left by break.
--- state_dict tells the place inside a pass, so that a resumed run continues with the very next batch.
local class = require "accel.util.class"
local Random = require "accel.util.random"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

---@class accel.data.DataLoader
---@field epoch integer
local DataLoader = class("accel.data.DataLoader")

---@param opts table dataset, batch_size, shuffle, drop_last, seed, collate_fn
function DataLoader:init(opts)
  local o = options("DataLoader", opts, {
    dataset = options.none, batch_size = 1, shuffle = false, drop_last = false, seed = 0,
    collate_fn = options.none,
  })
  local dataset = o.dataset
  if type(dataset) ~= "table" or (dataset.get == nil and dataset.get_batch == nil) or dataset.len == nil then
    raise "DataLoader: dataset must have the methods len and get (or get_batch)"
  end
  if math.type(o.batch_size) ~= "integer" or o.batch_size < 1 then
    raise("DataLoader: batch_size must be a positive integer, got %s", tostring(o.batch_size))
  end
  self.dataset, self.batch_size, self.shuffle = dataset, o.batch_size, o.shuffle
  self.drop_last, self.seed, self.collate_fn = o.drop_last, o.seed, o.collate_fn
  self.epoch, self.position = 0, 0
end

--- Batches in a pass.
function DataLoader:len()
  local n = self.dataset:len()
  return self.drop_last and n // self.batch_size or -(-n // self.batch_size)
end

DataLoader.__len = function(self) return self:len() end

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

--- A pass over the data.
function DataLoader.__call(self)
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
