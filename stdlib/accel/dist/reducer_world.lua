--- deterministic = "world": micro-batches, counted and summed in an order that does not depend on the number of ranks
--- (accel.dist.counter). Part of accel.dist.Reducer and of accel.shard.Engine, which install it.
local accel = require "accel"
local Blocks = require "accel.dist.blocks"
local Counter = require "accel.dist.counter"
local dist = require "accel.dist"
local raise = require "accel.util.raise"

--- This rank's share of the micro-batches, and how ranks add up.
local function share(self)
  local m = self.o.micro_batches
  self.blocks = nil
  if m then
    if m < self.size then
      raise("%s: micro_batches = %d is below the number of ranks, %d; every rank needs one", self.who, m, self.size)
    end
    self.blocks = Blocks(m, self.o.group, self.o.replicas)
  end
  self.exchange = self.size > 1 and self.blocks and not self.blocks.even and self.blocks or nil
end

return function(Reducer)
  --- The counter of micro-batches in flat tensors. With a fixed number of them in an update, ranks can have any share.
  ---@param flats table<string, accel.Tensor>
  function Reducer:count_in(flats)
    share(self)
    self.counter = Counter(flats, self.blocks and self.blocks.first)
  end

  --- The world has other ranks (accel.accelerator.elastic): this rank has another share of the micro-batches.
  function Reducer:regroup()
    self.size = dist.get_world_size(self.o.group)
    share(self)
    self.counter:reset()
    self.counter.first = self.blocks.first
  end

  --- Drops the update under way. Until `void` is false again, forwards and backwards leave no gradients.
  function Reducer:void_update()
    self.counter:reset()
    if self.statistics then self.statistics:discard() end
    self.expects, self.unreduced, self.incomplete, self.void = false, false, false, true
  end

  function Reducer:resume_updates()
    if self.statistics then self.statistics:discard() end
    self.void = false
  end

  --- Whether micro-batch n of this rank is the last one that it may take, and has to average.
  local function check_share(self, n, sync)
    local c, count = self.counter, self.blocks.count
    if sync == (n == count) then return end
    c:reset()
    raise("%s: with micro_batches = %d this rank has %d micro-batch(es) of each update, and the last of them averages; got %s %d", self.who,
      self.o.micro_batches, count, sync and "the average after" or "no average after", n)
  end

  --- Before a forward.
  function Reducer:begin_micro_batch(sync)
    local c = self.counter
    self.came = {} -- in this micro-batch
    if c.n == 0 then self.touched = {} end -- in any of this update
    if self.blocks then return check_share(self, c.n + 1, sync) end
    if sync and self.size > 1 and not c:is_power() then
      local n = c.n + 1
      c:reset()
      raise('%s: with deterministic = "world" the sum of every rank is a subtree of the whole, which takes 1, 2, 4, 8,'
        .. " ... micro-batches on each of %d ranks, got %d", self.who, self.size, n)
    end
  end

  --- A gradient is about to be accumulated: ->grad from an earlier update does not belong to this one.
  function Reducer:before_grad(i)
    if self.came[i] or self.detached or self.void then return end
    self.came[i], self.touched[i] = true, true
    self.params[i].grad = nil
  end

  function Reducer:end_micro_batch()
    for i, p in ipairs(self.params) do
      self:collect(i)
      p.grad = nil -- the next micro-batch overwrites
    end
    self.counter:add()
  end

  --- 1 / the number of micro-batches of all ranks, which have to have the same number each, unless it is fixed.
  function Reducer:world_scale()
    local n = self.counter.n + 1
    self.micro_batches = n -- of each rank, for those who undo the mean
    if self.blocks then
      self.micro_batches = self.o.micro_batches / self.size
      return 1 / self.o.micro_batches
    end
    if self.size > 1 then
      local t = accel.tensor({ n, -n }, { dtype = "i64", device = "cpu" })
      dist.all_reduce(t, { op = "max", group = self.o.group })
      if self.o.replicas then dist.all_reduce(t, { op = "max", group = self.o.replicas }) end
      local most, least = t[1]:item(), -t[2]:item()
      if most ~= least then
        self:recover()
        self.counter:reset()
        raise('%s: deterministic = "world" needs the same number of micro-batches on all ranks; got %d,'
          .. " elsewhere from %d to %d", self.who, n, least, most)
      end
    end
    return 1 / (n * self.size)
  end
end
