--- Updates on the host during the backward: as soon as the gradient of a unit is reduced and in host memory, a separate thread updates the
--- unit's pieces. The optimizer's step does the rest and waits for these. Of units whose gradients come as the backward ends (an embedding
--- is the last and the largest) the thread steps on one half and the optimizer's step on the other. Asked for by
--- nn.parallel.FullyShardedDataParallel(net, { offload = { parameters = "host", optimizer = "host", overlap = true } }).
---
--- Features that cannot work with a step in the middle of a backward: clipping by the norm of all gradients, loss scaling, gradients of
--- several backwards. Each raises an error. The numbers equal the same training without overlap, bit for bit.
local accel = require "accel"
local class = require "accel.util.class"
local raise = require "accel.util.raise"

local WHO <const> = "offload: overlap"

local LARGE <const> = 1 << 14 -- elements: less is not worth halving

--- Elements [from, to) of a flat tensor.
local function range(t, from, to)
  if from == 0 and to == t:numel() then return t end
  return accel.unscoped(function() return t:detach():narrow(1, from + 1, to - from) end)
end

---@class accel.offload.Overlap
local Overlap = class("accel.offload.Overlap")

function Overlap:init()
  self.place = setmetatable({}, { __mode = "k" }) -- piece -> { optimizer, group, step_group, at }
  self.done, self.running, self.seconds = {}, 0, { busy = 0.0, wait = 0.0 }
end

--- A step group that was stepped on: from the next backward on its pieces are updated early.
function Overlap:learn(optimizer, group, step_group)
  local stepper, name = optimizer:_stepper()
  if not stepper then return end
  self.stepper = stepper
  for at, piece in ipairs(step_group.params) do
    self.place[piece] = { optimizer = optimizer, name = name, group = group, step_group = step_group, at = at }
  end
end

--- The gradient of a unit's own part is in host memory: begins the update of its pieces, if all of them are known.
---@param unit accel.shard.Unit
---@param grad accel.Tensor
---@param all boolean whether every parameter of the unit has a gradient
---@param last boolean? the backward is over: half of the elements are left to the optimizer's step
function Overlap:begin(unit, grad, all, last)
  for _, piece in ipairs(unit.pieces) do
    if piece and self.done[piece] then
      raise("%s: the unit '%s' got a second backward before the optimizer stepped; run one backward for each step, or set overlap = false",
        WHO, unit.name)
    end
  end
  if not all then return end
  local jobs = {}
  for i, piece in ipairs(unit.pieces) do
    local place = piece and self.place[piece]
    if piece and not place then return end
    if place then
      local job = jobs[place.step_group]
      if not job then
        local group = {}
        for key, value in next, place.group do group[key] = key ~= "params" and value or nil end
        job = { optimizer = place.name, group = group, grads = {}, lists = { params = {} }, shared = {}, lr =
          accel.full({}, group.lr, { dtype = "f64", device = "cpu" }) }
        for _, name in ipairs { "step", table.unpack(place.optimizer.numbers) } do
          local t = place.step_group[name]
          job.shared[name] = t and t:clone()
        end
        for _, name in ipairs(place.optimizer.buffers) do job.lists[name] = {} end
        jobs[place.step_group], jobs[#jobs + 1] = job, job
      end
      local n = piece:numel()
      local count = last and n >= LARGE and n // 2 or n
      table.insert(job.lists.params, range(piece, 0, count))
      table.insert(job.grads, range(unit:piece_of(grad, i), 0, count))
      for _, name in ipairs(place.optimizer.buffers) do
        local t = place.step_group[name][place.at]
        if t then table.insert(job.lists[name], range(t, 0, count)) end
      end
      self.done[piece] = { shared = job.shared, lr = place.group.lr, count = count }
    end
  end
  if #jobs == 0 then return end
  self.worker = self.worker or accel.worker.start(self.stepper, {})
  for _, job in ipairs(jobs) do
    assert(self.worker:send(job))
    self.running = self.running + 1
  end
end

--- Raises if parameters were updated already: changes of their gradients come too late.
---@param what string
function Overlap:refuse(what)
  if next(self.done) == nil then return end
  raise("%s: parts of the model were updated in the backward, before the norm of all gradients was known; set overlap = false in offload", what)
end

--- Waits for all updates that were begun.
function Overlap:wait()
  while self.running > 0 do
    local ok, answer, message = self.worker:receive(3600)
    if not ok or math.type(answer) ~= "float" then raise("%s: the thread failed: %s", WHO, tostring(message or answer)) end
    self.seconds.busy = self.seconds.busy + answer
    self.running = self.running - 1
  end
end

--- The step of a step group: updates the remaining pieces.
---@param rest fun(step_group: table, grads: accel.Tensor[]) steps on a part of the group
function Overlap:step(optimizer, group, step_group, grads, rest)
  local from = accel.clock()
  if optimizer.inv_scale or optimizer.found_inf then
    self:wait()
    raise("%s: the gradients must be scaled or clipped, but parts of the model were updated in the backward; set overlap = false", WHO)
  end
  local left, left_grads, last, early = { params = {} }, {}, nil, 0
  for _, name in ipairs(optimizer.buffers) do left[name] = {} end
  for i, piece in ipairs(step_group.params) do
    local done = self.done[piece]
    if done then
      early, last = early + 1, done.shared
      if done.lr ~= group.lr then
        self:wait()
        raise("%s: the learning rate changed between the backward (%g) and the step (%g); change it after the step", WHO, done.lr, group.lr)
      end
      self.done[piece] = nil
    end
    local first, n = done and done.count or 0, piece:numel()
    if first < n then
      table.insert(left.params, range(piece, first, n))
      left_grads[#left_grads + 1] = range(grads[i], first, n)
      for _, name in ipairs(optimizer.buffers) do
        local t = step_group[name][i]
        if t then table.insert(left[name], range(t, first, n)) end
      end
    end
  end
  local began = accel.clock()
  if early == 0 then rest(step_group, grads)
  elseif #left.params > 0 then
    local shared = {}
    for name in next, last do shared[name] = step_group[name]:clone() end
    rest(setmetatable(left, { __index = function(_, key) return shared[key] or step_group[key] end }), left_grads)
  end
  self.seconds.busy = self.seconds.busy + accel.clock() - began
  self:wait()
  for name, t in next, last or {} do step_group[name]:copy_(t) end
  self:learn(optimizer, group, step_group)
  self.seconds.wait = self.seconds.wait + accel.clock() - from
end

return Overlap
