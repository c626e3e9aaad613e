--- The result of a communication hook: a tensor that is available after a collective, and the functions to run then.
---
---   local work = dist.all_reduce(t, { async_op = true })
---   return Future(work, t):and_then(function(value) return value * 0.5 end)
---
--- Nothing runs in the background but the collectives themselves: the functions run inside wait(), on the thread
--- that calls it. A reducer advances the futures of all buckets by turns, in an order that is the same on all ranks,
--- so that a function may start further collectives and return a future for them.
local class = require "accel.util.class"

--- example: accel.dist.hooks.Future(nil, 3):and_then(function(v) return v + 1 end):wait() --> 4
---@class accel.dist.hooks.Future
---@field value any
local Future = class("accel.dist.hooks.Future")

---@param work? {wait: function} the work to wait for first. nil: nothing
---@param value any its value
function Future:init(work, value) self.work, self.value, self.steps, self.n_done = work, value, {}, 0 end

--- fn(value) when the value is available. Its result is the next value, a future of it, or nil to keep it.
---@param fn fun(value: any): any
---@return accel.dist.hooks.Future self
function Future:and_then(fn)
  self.steps[#self.steps + 1] = fn
  return self
end

--- Waits for the running collective and runs its continuation, up to the next collective. Returns whether all is done.
---@return boolean
function Future:advance()
  local work = self.work
  self.work = nil
  if work then work:wait() end
  local step = self.steps[self.n_done + 1]
  while not self.work and step ~= nil do
    self.n_done = self.n_done + 1
    local new = step(self.value)
    if class.isinstance(new, Future) then -- its steps come before those that are left
      local left = table.move(new.steps, new.n_done + 1, #new.steps, 1, {})
      table.move(self.steps, self.n_done + 1, #self.steps, #left + 1, left)
      self.work, self.value, self.steps, self.n_done = new.work, new.value, left, 0
    elseif new ~= nil then
      self.value = new
    end
    step = self.steps[self.n_done + 1]
  end
  return self.work == nil
end

--- The value, once everything is done.
---@return any
function Future:wait()
  repeat until self:advance()
  return self.value
end

return Future
