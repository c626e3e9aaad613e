--- Running statistics of batch norm for deterministic = "world" with micro_batches: they move once per update, by the statistics of all
--- its micro-batches in their order, so that they do not depend on the number of ranks. Between two updates a forward leaves them as they
--- are. Used by DistributedDataParallel and FullyShardedDataParallel around the forward of their module.
local accel = require "accel"
local class = require "accel.util.class"
local dist = require "accel.dist"
local guard = require "accel.util.guard"
local norms = require "accel.nn.batch_norm"
local raise = require "accel.util.raise"
local SyncBatchNorm = require "accel.nn.sync_batch_norm"

---@class accel.nn.parallel.BatchStatistics
local Statistics = class("accel.nn.parallel.BatchStatistics")

---@param who string begins messages
---@param o {group: any, replicas: any}
function Statistics:init(who, o)
  self.who, self.group, self.replicas, self.rows, self.layers = who, o.group, o.replicas, {}, {}
end

local function counts(module)
  for _, cls in next, norms do
    if class.isinstance(module, cls) then return module.training and module.running_mean ~= nil end
  end
  return false
end

--- Before a forward: each layer is to leave the statistics of this batch alone.
local function begin(self, model)
  if #self.rows == 0 then
    self.layers = {}
    for module in model:modules() do
      if class.isinstance(module, SyncBatchNorm) and module.training then
        raise("%s: SyncBatchNorm cannot be used with micro_batches, because its batch is that of the ranks, whose number may change; use "
          .. "BatchNorm, whose batch is a micro-batch", self.who)
      end
      if counts(module) then
        self.layers[#self.layers + 1] = {
          module = module, mean = accel.unscoped(module.running_mean.clone, module.running_mean),
          var = accel.unscoped(module.running_var.clone, module.running_var),
          tracked = accel.unscoped(module.num_batches_tracked.clone, module.num_batches_tracked),
        }
      end
    end
  end
  for _, l in ipairs(self.layers) do
    l.momentum, l.module.momentum = l.module.momentum, 1.0
    l.module.num_batches_tracked:zero_()
  end
end

--- After it: they are put aside, and the running ones come back.
local function finish(self)
  local parts = {}
  for _, l in ipairs(self.layers) do
    local m = l.module
    m.momentum = l.momentum
    for _, t in ipairs { m.running_mean, m.running_var, m.num_batches_tracked:reshape(1) } do
      parts[#parts + 1] = t:detach():to { dtype = "f64", device = "cpu" }
    end
    m.running_mean:copy_(l.mean)
    m.running_var:copy_(l.var)
    m.num_batches_tracked:copy_(l.tracked)
  end
  if #parts > 0 then self.rows[#self.rows + 1] = accel.unscoped(accel.cat, parts, 1) end
end

--- The forward of a micro-batch.
---@param module accel.nn.Module
---@param ... any its arguments
function Statistics:forward(module, ...)
  local function no_grad(f, ...)
    local _ <close> = accel.no_grad()
    return f(...)
  end
  no_grad(begin, self, module)
  local _ <close> = guard(function(failure)
    no_grad(finish, self)
    if failure ~= nil then self.rows = {} end
  end)
  return module(...)
end

--- Rows of all ranks, in the order of their micro-batches.
local function gather(self, t)
  for _, group in ipairs { self.group == nil and dist.group.WORLD or self.group, self.replicas } do
    local n = dist.get_world_size(group)
    local all = accel.empty(n * t.shape[1], t.shape[2], { dtype = "f64", device = "cpu" })
    dist.all_gather_into_tensor(all, t, { group = group })
    t = all
  end
  return t
end

--- Drops the statistics of an update.
function Statistics:discard() self.rows, self.collected = {}, nil end

--- Gathers the statistics of all micro-batches. A collective, at the end of an update's last backward.
function Statistics:collect()
  self.collected = nil
  if #self.layers == 0 then return end
  local _ <close> = accel.no_grad()
  local own = accel.tensor({ { #self.rows + 0.0 } }, { dtype = "f64", device = "cpu" })
  local n_of, most = gather(self, own):reshape(-1):tolist(), 0
  for _, n in ipairs(n_of) do most = math.max(most, math.tointeger(n)) end
  if most > 0 then
    local width = 0
    for _, l in ipairs(self.layers) do width = width + 2 * l.mean:numel() + 1 end
    local block = accel.zeros(most, width, { dtype = "f64", device = "cpu" })
    for k, row in ipairs(self.rows) do block[k]:copy_(row) end
    self.collected = { all = accel.unscoped(gather, self, block), n_of = n_of, most = most }
  end
  self.rows = {}
end

--- Moves the running statistics by those that were gathered.
function Statistics:apply()
  local collected = self.collected
  self.collected = nil
  if collected then
    local _ <close> = accel.no_grad()
    local all, n_of, most, at = collected.all, collected.n_of, collected.most, 0
    for _, l in ipairs(self.layers) do
      local c, m = l.mean:numel(), l.module
      local mean, var = l.mean:to { dtype = "f64", device = "cpu" }, l.var:to { dtype = "f64", device = "cpu" }
      if mean == l.mean then mean, var = mean:clone(), var:clone() end
      local before, n = l.tracked:item(), 0
      for r, rows in ipairs(n_of) do
        for k = 1, math.tointeger(rows) do
          local row = all[(r - 1) * most + k]
          local times = row[at + 2 * c + 1]:item()
          if times > 1 then
            raise("%s: a batch norm ran %d times in one forward, and with micro_batches it can run once; use one layer for each place",
              self.who, math.tointeger(times))
          elseif times == 1 then
            n = n + 1
            local w = m.momentum or 1 / (before + n)
            mean:mul_(1 - w):add_(row:narrow(1, at + 1, c) * w)
            var:mul_(1 - w):add_(row:narrow(1, at + c + 1, c) * w)
          end
        end
      end
      m.running_mean:copy_(mean)
      m.running_var:copy_(var)
      m.num_batches_tracked:add_(n)
      at = at + 2 * c + 1
    end
  end
end

--- Both at once.
function Statistics:commit()
  self:collect()
  self:apply()
end

return Statistics
