--- This machine's speed, measured: a dry run's times are based on these rates. The machine's maximum number of concurrent ranks measure
--- at the same moment, so that contention between ranks is included. A curve is a list of { size, seconds }: of products flops, of all
--- else bytes.
local accel = require "accel"
local cost = require "accel.profiler.cost"

local M = {}

local function sync()
  local dist = require "accel.dist"
  if dist.is_initialized() and dist.get_world_size() > 1 then dist.barrier() end
end

-- A run lasts so many seconds at least: 50 ticks of the CPU clock, which has microseconds.
local RUN <const> = 50e-6

--- Seconds of fn: the least of some runs, after one to warm up. Other programs make a run longer, never shorter, and a job's prediction
--- assumes that its cores are free. For one thread without waits, CPU time gives this directly: a product outlasts the time slice of a
--- loaded machine. A run calls a short fn many times. runs: how many, since ranks must agree on the number of collectives.
---@param fn fun()
---@param runs? integer
---@param clock? fun(): number seconds
---@return number
function M.time(fn, runs, clock)
  fn()
  sync()
  clock = clock or (not runs and accel.num_threads() == 1 and os.clock or accel.clock)
  local n, least, calls, start = 0, math.huge, 1, accel.clock()
  repeat
    local t = clock()
    for _ = 1, calls do fn() end
    t = clock() - t
    if not runs and t < RUN and calls < 1 << 20 then
      calls = t > 0 and math.min(8 * calls, math.ceil(1.5 * calls * RUN / t)) or 8 * calls
    elseif t > 0 or not runs then
      n, least = n + 1, math.min(least, t / calls)
    else
      n = n + 1
    end
  until runs and n == runs or not runs and n >= 5 and accel.clock() - start > 0.006
  return least
end

--- Seconds by size. A larger size never takes less.
local function curve(sizes, make, runs)
  local out, least = {}, 0
  for _, n in ipairs(sizes) do
    local size, fn = make(n)
    least = math.max(least, M.time(fn, runs))
    out[#out + 1] = { size, least }
  end
  return out
end

local function usable(n) return type(n) == "number" and n > 0 and n < math.huge end

--- The error in measured or read rates. nil: none.
---@param rates any
---@return string?
function M.problem(rates)
  if type(rates) ~= "table" or type(rates.single) ~= "table" then return "no rates are in it" end
  for _, key in ipairs { "ranks", "threads" } do
    if not usable(rates[key]) then return key .. " must be a positive number" end
  end
  for _, group in ipairs { "single", "half", "link" } do
    for name, points in accel.pairs(rates[group] or {}) do
      local before = 0
      if type(points) ~= "table" or #points == 0 then return ("%s.%s must be a list of {size, seconds}"):format(group, name) end
      for i, p in ipairs(points) do
        if type(p) ~= "table" or not usable(p[1]) or not usable(p[2]) or p[1] <= before then
          return ("%s.%s[%d] must be {size, seconds} above zero, of growing sizes"):format(group, name, i)
        end
        before = p[1]
      end
    end
  end
  for _, group in ipairs { "single", "half" } do
    for _, name in ipairs(M.CLASSES) do
      if not (rates[group] and rates[group][name]) then return ("%s.%s is missing"):format(group, name) end
    end
  end
end

--- The curves that are asked for.
M.CLASSES = { "product", "attention", "attention_backward", "norm", "norm_backward", "softmax", "activation", "memory", "optimizer", "random" }

local SQUARES <const>, ELEMENTS <const> = { 32, 96, 256, 640 }, { 1 << 12, 1 << 16, 1 << 20, 1 << 23 }

local COLD <const>, MOST <const> = 32 << 20, 64

--- A function that gives another tensor of make() each time, as many as the caches do not hold: a step comes back to none before it has
--- been through all others.
local function cold(make)
  local list = { make() }
  for i = 2, math.min(MOST, COLD // (list[1]:numel() * list[1]:element_size())) do list[i] = make() end
  local at = 0
  return function()
    at = at % #list + 1
    return list[at]
  end
end

local function products(dtype)
  return curve(SQUARES, function(n)
    local a, b = cold(function() return accel.randn(n, n):to(dtype) end), accel.randn(n, n):to(dtype)
    return 2 * n ^ 3, function() a():matmul(b) end
  end)
end

--- Of an op on x that reads and writes it once.
local function over(dtype, op, count)
  return curve(ELEMENTS, function(n)
    local next_x = cold(function() return accel.randn(n):to(dtype) end)
    return (count or 2) * n * next_x():element_size(), function() op(next_x()) end
  end)
end

local function attention(dtype, backward)
  return curve({ 64, 128, 256 }, function(t)
    local q = accel.randn(2, 4, t, 64):to(dtype):requires_grad_(backward)
    local flops = (backward and 10 or 4) * q:numel() * t / 2
    local out = accel.scaled_dot_product_attention(q, q, q, { is_causal = true })
    if not backward then
      return flops, function() accel.no_grad(accel.scaled_dot_product_attention, q, q, q, { is_causal = true }) end
    end
    local g = accel.ones_like(out)
    return flops, function() out:backward(g, { retain_graph = true }) end
  end)
end

local function softmax(dtype)
  return curve({ 64, 1024, 8192 }, function(rows)
    local x, y = accel.randn(rows, 512):to(dtype), accel.randint(0, 512, { rows })
    return rows * 512 * x:element_size(), function() accel.cross_entropy(x, y) end
  end)
end

--- Layer norm of rows of 512, and back.
local function norm(dtype, backward)
  return curve({ 64, 1024, 8192 }, function(rows)
    local x, w, b = accel.randn(rows, 512):to(dtype):requires_grad_(backward), accel.ones(512), accel.zeros(512)
    local bytes = (backward and 3 or 2) * rows * 512 * x:element_size()
    if not backward then return bytes, function() accel.layer_norm(x, { 512 }, { weight = w, bias = b }) end end
    local out = accel.layer_norm(x, { 512 }, { weight = w, bias = b })
    local g = accel.ones_like(out)
    return bytes, function() out:backward(g, { retain_graph = true }) end
  end)
end

--- Random numbers, as dropout draws them.
local function random()
  return curve(ELEMENTS, function(n)
    local x = accel.zeros(n)
    return 8 * n, function() x:bernoulli_(0.1) end
  end)
end

local function optimizer()
  return curve({ 1 << 14, 1 << 18, 1 << 22 }, function(n)
    local p = accel.zeros(n, { requires_grad = true })
    p.grad = accel.ones(n)
    local o = accel.optim.AdamW { p }
    return 7 * 4 * n, function()
      p.grad = p.grad or accel.ones(n)
      o:step()
    end
  end)
end

--- Collectives of the ranks that measure, by payload.
local function links(size)
  local dist, out = require "accel.dist", {}
  local function of(name, fn)
    out[name] = curve({ 1 << 10, 1 << 16, 1 << 20, 1 << 24 }, function(bytes)
      local n = bytes // 4 // size
      local whole, part = accel.dist.empty(n * size), accel.dist.empty(n)
      return n * size * 4, function() fn(whole, part) end
    end, 7)
  end
  of("all_reduce", function(whole) dist.all_reduce(whole) end)
  of("all_gather", function(whole, part) dist.all_gather_into_tensor(whole, part) end)
  of("reduce_scatter", function(whole, part) dist.reduce_scatter_tensor(part, whole) end)
  of("broadcast", function(whole) dist.broadcast(whole, 0) end)
  local rank = dist.get_rank()
  of("send", function(whole)
    local got = accel.empty_like(whole)
    local works = { dist.isend(whole, (rank + 1) % size, { tag = 1 }), dist.irecv(got, (rank - 1) % size, { tag = 1 }) }
    for _, work in ipairs(works) do work:wait() end
  end)
  return out
end

--- Measures, about half a second. On rank 0 the result is written to path.
---@param path string
function M.measure(path)
  accel.set_default_device "cpu"
  accel.manual_seed(1)
  local dist = require "accel.dist"
  local size = dist.is_initialized() and dist.get_world_size() or 1
  local out = { ranks = size, threads = accel.num_threads() }
  for name, dtype in accel.pairs { single = "f32", half = "bf16" } do
    out[name] = {
      product = products(dtype), attention = attention(dtype, false), attention_backward = attention(dtype, true),
      norm = norm(dtype, false), norm_backward = norm(dtype, true), softmax = softmax(dtype), activation = over(dtype, function(x) x:gelu() end),
      memory = over(dtype, function(x) x:add(x) end, 3),
    }
  end
  out.single.optimizer, out.single.random = optimizer(), random()
  out.half.optimizer, out.half.random = out.single.optimizer, out.single.random
  if size > 1 then out.link = links(size) end
  local problem = M.problem(out)
  if problem then error("rates: " .. problem, 0) end
  if size == 1 or dist.get_rank() == 0 then assert(accel.write_file(path, accel.json.encode(out))) end
  sync()
end

--- Seconds at a size, from a curve: between two points as a power of the size, outside at the rate of the nearest one.
---@param points number[][]
---@param size number
---@return number
function M.at(points, size)
  local first, last = points[1], points[#points]
  if size <= first[1] then return first[2] end -- a small one's time is the call's
  if size >= last[1] then return last[2] * size / last[1] end
  for i = 2, #points do
    local a, b = points[i - 1], points[i]
    if size <= b[1] then
      local part = math.log(size / a[1]) / math.log(b[1] / a[1])
      return a[2] * (b[2] / a[2]) ^ part
    end
  end
end

local CURVE_OF <const> = { all_reduce = "all_reduce", reduce = "all_reduce", all_gather = "all_gather", gather = "all_gather",
  reduce_scatter = "reduce_scatter", scatter = "broadcast", broadcast = "broadcast", all_to_all = "all_gather", send = "send",
  barrier = "all_reduce" }

--- Times of a report's step on this machine: { ops =, dispatch =, communication =, idle =, total = } in seconds. ranks: on each machine.
--- cores: of it. bandwidth: bytes per second between machines, if there are several. idle: idle time of a pipeline's schedule.
---@param report table
---@param rates table
---@param o {ranks: integer, cores: integer, machines: integer, bandwidth: number}
function M.estimate(report, rates, o)
  local crowd = math.max(1, o.ranks / math.max(1, math.min(o.cores, rates.ranks * rates.threads)))
  local ops = 0
  for _, row in ipairs(report.ops) do
    local curves = rates[row.half and "half" or "single"]
    local by_flops = row.class == "product" or row.class == "mlp" or row.class:find "^attention"
    local size = (by_flops and row.flops or row.moved) / row.n
    ops = ops + row.n * M.at(curves[row.class == "mlp" and "product" or row.class], size)
    -- half of a feed-forward's reads and writes is its hidden layer, which also passes through the activation
    if row.class == "mlp" then ops = ops + row.n * M.at(curves.activation, row.moved / row.n / 2) end
  end
  local communication = 0
  for _, c in ipairs(report.collectives) do
    local name = CURVE_OF[c.kind]
    local link = name and rates.link and (rates.link[name] or name == "send" and rates.link.broadcast)
    if link and c.ranks > 1 then
      local beside = name == "send" and 1 or math.min(c.ranks, o.ranks) / rates.ranks
      communication = communication + M.at(link, c.payload) * math.max(1, beside)
    end
    if o.machines > 1 and c.remote then
      communication = communication + c.sent / o.bandwidth + cost.collective(cost.cpu, c.kind, c.ranks, true)
    end
  end
  local out = { ops = ops * crowd, dispatch = report.dispatch * crowd, communication = communication }
  local busy = out.ops + out.dispatch + out.communication
  out.idle = busy * (report.pipeline and report.pipeline.bubble or 0)
  out.total = busy + out.idle
  return out
end

return M
