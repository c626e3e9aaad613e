--- PowerSGD: gradients of matrices are sent as two thin ones, whose product approximates them. The error is added to
--- the next gradient (error feedback).
---
--- For a gradient M [n, m], seen as a matrix by its first dim, and a random or the last Q [m, r] that is the same on
--- all ranks: P = M Q, summed over ranks and orthogonalised. Q = M' P, averaged. M is replaced by P Q'. That takes (n +
--- m) r numbers instead of n m. Vectors, and matrices for which it would not pay, are averaged as they are.
local Future = require "accel.dist.hooks.future"
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local dist = require "accel.dist"
local options = require "accel.util.options"
local orthogonalize = require "accel.dist.hooks.orthogonalize"

local M = {}

--- PowerSGD's state from one backward to the next. Options, with their defaults: process_group;
--- matrix_approximation_rank = 1 (r); start_powerSGD_iter = 1000, backward passes that are averaged plainly first;
--- min_compression_rate = 2, the factor by which a matrix must shrink; use_error_feedback = true; warm_start = true
--- (continue from the last Q instead of a random one); orthogonalization_epsilon = 0, added to norms of columns before
--- dividing by them; random_seed = 0, the same on all ranks; batch_tensors_with_same_shape = false (matrices of one
--- shape are multiplied together).
--- example: accel.dist.hooks.PowerSGDState { matrix_approximation_rank = 2 }.matrix_approximation_rank --> 2
---@class accel.dist.hooks.PowerSGDState
---@field iter integer backward passes so far
local State = class("accel.dist.hooks.PowerSGDState")

---@param opts? table options by name
function State:init(opts)
  local who = "PowerSGDState"
  local o = options(who, opts, {
    process_group = options.none, matrix_approximation_rank = 1, start_powerSGD_iter = 1000, min_compression_rate = 2,
    use_error_feedback = true, warm_start = true, orthogonalization_epsilon = 0, random_seed = 0,
    batch_tensors_with_same_shape = false,
  })
  check.positive(who, "matrix_approximation_rank", o.matrix_approximation_rank)
  check.count(who, "start_powerSGD_iter", o.start_powerSGD_iter)
  check.number(who, "min_compression_rate", o.min_compression_rate, 0)
  check.number(who, "orthogonalization_epsilon", o.orthogonalization_epsilon, 0)
  check.integer(who, "random_seed", o.random_seed)
  for key, value in next, o do self[key] = value end
  self.iter, self.memory = 0, {}
  self.generator = accel.Generator(self.random_seed)
  self.numbers_before, self.numbers_after = 0, 0
end

--- How many times fewer numbers were sent than without compression, and both numbers, since it began.
---@return number rate
---@return integer before
---@return integer after
function State:compression_stats()
  return self.numbers_after > 0 and self.numbers_before / self.numbers_after or 0, self.numbers_before,
    self.numbers_after
end

--- The state of a bucket: {q =, error =}, recreated when its parameters change.
---@param bucket table a bucket of gradients
function State:of(bucket)
  local at, layout = bucket:index(), bucket:layout()
  local m = self.memory[at]
  if not m or m.layout ~= layout then
    m = { layout = layout }
    self.memory[at] = m
  end
  return m
end

--- Counts a sent bucket, and its numbers if it was compressed.
---@param bucket table a bucket of gradients
---@param before integer? numbers of the bucket
---@param after integer? numbers that were sent
function State:sent(bucket, before, after)
  if before then
    self.numbers_before, self.numbers_after = self.numbers_before + before, self.numbers_after + after
  end
  if bucket:is_last() then self.iter = self.iter + 1 end
end

--- Adds the error of this bucket's last approximation, and keeps a copy of the sum, since t is overwritten later.
---@param memory table of the bucket
---@param t accel.Tensor flat
---@return fun(approximation: accel.Tensor) lost to be called when the approximation is there
function State:feed_back(memory, t)
  if not self.use_error_feedback then return function() end end
  if memory.error then
    t:add_(memory.error)
  else
    memory.error = accel.unscoped(accel.empty_like, t)
  end
  memory.error:copy_(t)
  return function(approximation) -- an overflow, of a loss that is scaled too far, is not fed back
    memory.error:copy_(memory.error:sub_(approximation):nan_to_num { posinf = 0, neginf = 0 })
  end
end

--- Begins with an orthonormal q: the last one, or if there is none, normal numbers that are the same on all ranks.
---@param q accel.Tensor the same on all ranks
---@param fresh boolean nothing is in it yet
function State:begin(q, fresh)
  if fresh or not self.warm_start or not q:isfinite():all():item() then self:randomize(q) end
  orthogonalize(q, self.orthogonalization_epsilon)
end

--- Fills q with normal numbers, the same on all ranks.
---@param q accel.Tensor filled in place
function State:randomize(q) q:copy_(accel.randn(q.shape, { generator = self.generator })) end

--- Makes the columns of p orthonormal: a mean over ranks, whose sum the epsilon is meant for.
---@param p accel.Tensor a matrix, changed in place
function State:basis(p) orthogonalize(p, self.orthogonalization_epsilon / dist.get_world_size(self.process_group)) end

--- Whether and how the next bucket is compressed. Otherwise it is averaged plainly.
function State:started() return self.iter >= self.start_powerSGD_iter end

M.PowerSGDState = State

local function columns(p) return p:numel() // math.max(1, p.shape[1]) end

--- Which gradients of a bucket are compressed: groups {count =, n =, m =, r =, list = {positions}}, and the others.
local function sort_out(state, bucket)
  local groups, by_shape, plain = {}, {}, {}
  for j, p in ipairs(bucket:parameters()) do
    local n, m = p.ndim >= 2 and p.shape[1] or 0, p.ndim >= 2 and columns(p) or 0
    local r = math.min(n, m, state.matrix_approximation_rank)
    if p.ndim >= 2 and r > 0 and (n + m) * r * state.min_compression_rate < n * m then
      local key = state.batch_tensors_with_same_shape and n .. "x" .. m or #groups + 1
      local g = by_shape[key]
      if not g then
        g = { n = n, m = m, r = r, list = {} }
        by_shape[key], groups[#groups + 1] = g, g
      end
      g.list[#g.list + 1] = j
    else
      plain[#plain + 1] = j
    end
  end
  return groups, plain
end

--- Consecutive views of a flat tensor, one [count, extent, r] per group.
local function thin(t, groups, extent)
  local views, at = {}, 1
  for k, g in ipairs(groups) do
    local n = #g.list * g[extent] * g.r
    views[k] = t:narrow(1, at, n):view(#g.list, g[extent], g.r)
    at = at + n
  end
  return views
end

local function numbers(groups, extent)
  local n = 0
  for _, g in ipairs(groups) do n = n + #g.list * g[extent] * g.r end
  return n
end

--- The gradients of a group as [count, n, m].
local function stacked(g, grads)
  if #g.list == 1 then return grads[g.list[1]]:view(1, g.n, g.m) end
  local list = {}
  for k, j in ipairs(g.list) do list[k] = grads[j]:view(g.n, g.m) end
  return accel.stack(list, 1)
end

--- The bucket's data, made once per layout: groups, flat tensors to send.
local function plan(state, bucket, memory)
  local groups, plain = sort_out(state, bucket)
  local dtype, params, n_plain = bucket:buffer().dtype, bucket:parameters(), 0
  for _, j in ipairs(plain) do n_plain = n_plain + params[j]:numel() end
  memory.groups, memory.plain, memory.dtype = groups, plain, dtype
  memory.n_plain, memory.n_p, memory.n_q = n_plain, numbers(groups, "n"), numbers(groups, "m")
  for _, j in ipairs(plain) do memory.n_before = (memory.n_before or 0) + params[j]:numel() end
  for _, g in ipairs(groups) do memory.n_before = (memory.n_before or 0) + #g.list * g.n * g.m end
  accel.unscoped(function()
    if n_plain > 0 then memory.flat = bucket:scratch("plain", n_plain, dtype) end
    if memory.n_p > 0 then
      memory.p, memory.q = bucket:scratch("p", memory.n_p, dtype), bucket:scratch("q", memory.n_q, dtype)
      memory.ps, memory.qs = thin(memory.p, groups, "n"), thin(memory.q, groups, "m")
    end
  end)
  memory.planned = true
end

--- Copies gradients that are not compressed into one flat tensor, or back.
local function pack(memory, grads, back)
  local at = 1
  for _, j in ipairs(memory.plain) do
    local g = grads[j]
    local part = memory.flat:narrow(1, at, g:numel()):view(g.shape)
    if back then g:copy_(part) else part:copy_(g) end
    at = at + g:numel()
  end
end

--- Averages gradients by rank-r approximations. state: a PowerSGDState.
--- example: local m = accel.nn.parallel.DistributedDataParallel(accel.nn.Linear(8, 8)) m:register_comm_hook(
---   accel.dist.hooks.PowerSGDState { start_powerSGD_iter = 0 }, accel.dist.hooks.powerSGD_hook)
---   m(accel.ones(1, 8)):sum():backward() return m.weight.grad[1][1] --> 1
---@param state accel.dist.hooks.PowerSGDState
---@param bucket accel.dist.GradBucket
---@return accel.dist.hooks.Future
function M.powerSGD_hook(state, bucket)
  local buffer, group = bucket:buffer(), state.process_group
  local function mean(t) return dist.all_reduce(t, { op = "mean", group = group, async_op = true }) end
  if not state:started() then
    state:sent(bucket)
    return Future(mean(buffer), buffer)
  end
  local memory = state:of(bucket)
  local fresh = not memory.planned
  if fresh then plan(state, bucket, memory) end
  state:sent(bucket, memory.n_before, memory.n_plain + memory.n_p + memory.n_q)
  local lost, grads, matrices = state:feed_back(memory, buffer), bucket:gradients(), {}
  local plain = memory.flat and (pack(memory, grads) or mean(memory.flat))
  for k, g in ipairs(memory.groups) do
    local q = memory.qs[k]
    state:begin(q, fresh)
    matrices[k] = stacked(g, grads)
    memory.ps[k]:copy_(accel.bmm(matrices[k], q))
  end
  -- P is only a basis: its mean serves as well as its sum, and cannot overflow 16 bits.
  local sent = memory.p and mean(memory.p) or nil
  return Future(sent, buffer):and_then(function()
    for k in ipairs(memory.groups) do
      state:basis(memory.ps[k])
      memory.qs[k]:copy_(accel.bmm(matrices[k]:transpose(2, 3), memory.ps[k]))
    end
    return Future(memory.q and mean(memory.q) or nil, buffer)
  end):and_then(function()
    if plain then
      plain:wait()
      pack(memory, grads, true)
    end
    for k, g in ipairs(memory.groups) do
      local product = accel.bmm(memory.ps[k], memory.qs[k]:transpose(2, 3))
      for i, j in ipairs(g.list) do grads[j]:copy_(product[i]:view(grads[j].shape)) end
    end
    lost(buffer)
    return buffer
  end)
end

return M
