--- The context of DistributedDataParallel:join: every forward informs the other ranks that this one still has inputs. A
--- rank without inputs keeps answering until no rank has any.
local accel = require "accel"
local class = require "accel.util.class"
local coalesce = require "accel.dist.coalesce"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

---@class accel.dist.Join
local Join = class("accel.dist.Join")

-- Active, averages gradients, sends buffers, exchanges use, has not waited for others, a number to add up.
local FIELDS <const> = 6

function Join:init(ddp, o)
  self.ddp, self.o, self.group, self.size = ddp, o, ddp.options.process_group, ddp.reducer.size
end

local function bit(b) return b and 1 or 0 end

--- Every rank's values: rows[r] = {...}, r from 1.
function Join:exchange(...)
  local all = accel.empty(self.size * FIELDS, { dtype = "f64", device = "cpu" })
  dist.all_gather_into_tensor(all, accel.tensor({ ... }, { dtype = "f64", device = "cpu" }), { group = self.group })
  local flat, rows = all:tolist(), {}
  for r = 1, self.size do rows[r] = table.move(flat, (r - 1) * FIELDS + 1, r * FIELDS, 1, {}) end
  return rows
end

--- The number of active ranks, the first of them (from 0), and whether field k is set on any of them.
local function active(rows)
  local n, first = 0, nil
  for r, row in ipairs(rows) do
    if row[1] == 1 then n, first = n + 1, first or r - 1 end
  end
  return n, first
end

local function any(rows, k)
  for _, row in ipairs(rows) do
    if row[k] == 1 then return true end
  end
  return false
end

local function stop(rows)
  local out = {}
  for r, row in ipairs(rows) do
    if row[1] == 0 then out[#out + 1] = r - 1 end
  end
  raise("join: rank %s has no more inputs, and throw_on_early_termination = true ends all ranks then",
    table.concat(out, ", "))
end

--- Of a rank with inputs: returns the rank whose buffers count.
function Join:forward(averages, sends, exchanges_use)
  local rows = self:exchange(1, bit(averages), bit(sends), bit(exchanges_use), 0, 0)
  local n, first = active(rows)
  if n < self.size and self.o.throw_on_early_termination then stop(rows) end
  self.ddp.reducer.divisor = not self.o.divide_by_initial_world_size and n or nil
  return first
end

--- Of a rank with inputs, on all of them at the same place: the sum of x over these ranks.
---@param x number
---@return number
function Join:sum(x)
  local sum = 0
  for _, row in ipairs(self:exchange(1, 0, 0, 0, 0, x)) do sum = sum + row[6] end
  return sum
end

--- Of a rank without: answers the others until they are through too.
function Join:shadow()
  local last = true
  while true do
    local rows = self:exchange(0, 0, 0, 0, bit(last), 0)
    local n, first = active(rows)
    if n == 0 then return self:agree(rows) end
    if self.o.throw_on_early_termination then stop(rows) end
    last = false
    if any(rows, 3) then self.ddp:_sync_buffers(first) end
    if any(rows, 2) then
      self.ddp.reducer.divisor = not self.o.divide_by_initial_world_size and n or nil
      self.ddp.reducer:shadow(any(rows, 4))
    end
  end
end

--- All are through: all take over the parameters and buffers of one that did not wait. `last` then is that rank (in
--- the group), if any did wait.
function Join:agree(rows)
  local src, waited
  for r, row in ipairs(rows) do
    if row[5] == 1 then src = r - 1 else waited = true end
  end
  self.last = waited and src or nil
  coalesce.broadcast(self.ddp.module:parameters(), src, self.group)
  coalesce.broadcast(self.ddp.module:buffers(), src, self.group)
end

---@param ddp accel.nn.parallel.DistributedDataParallel
---@param opts? table
---@param fn? function
return function(ddp, opts, fn, ...)
  local o = options("join", opts, {
    divide_by_initial_world_size = true, enable = true, throw_on_early_termination = false,
  })
  if ddp.reducer.counter then
    raise 'join: deterministic = "world" takes the same number of micro-batches on all ranks'
  end
  if ddp.joining then raise "join: this model is inside a join already" end
  if not o.enable or ddp.reducer.size == 1 then return guard(function() end, fn, ...) end
  local join = Join(ddp, o)
  rawset(ddp, "joining", join)
  return guard(function(failure)
    rawset(ddp, "joining", false)
    local _ <close> = guard(function() ddp.reducer.divisor = nil end)
    if failure == nil then join:shadow() end
  end, fn, ...)
end
