--- Plans that a model could be trained by on so many ranks, in the order in which it pays to look at them: by formulas on sizes alone
--- (accel.parallel.traffic). A dry run then measures the actual cost of a plan. Used by accel-run plan.
local cost = require "accel.profiler.cost"
local plans = require "accel.cli.plan_config"
local traffic = require "accel.parallel.traffic"

local M = {}

--- Default rates of a rank per second: FLOP/s in f32 and in 16 bits, bytes/s inside a machine. Figures of one H100 with NVLink, and of
--- one CPU core. They decide between plans, and are printed with the result.
M.hardware = { cuda = { single = 50e12, half = 400e12, near = 200e9, costs = cost.cuda },
  cpu = { single = 0.1e12, half = 0.1e12, near = 5e9, costs = cost.cpu } }

-- Kernels of a block in forward and backward, about: norms, products and their gradients, attention, sums. Modules before and after the
-- blocks, and the optimizer's step, count as two blocks.
local KERNELS <const> = 30

-- Collectives of a block in forward and backward if ranks share it: two each way.
local COLLECTIVES <const> = 4

--- Minimum tokens of a rank of context parallelism if cp is not given: shorter sequences are not worth the exchange.
local LONG <const> = 4096

local function divisors(n)
  local out, above = {}, {}
  for k = 1, math.floor(math.sqrt(n)) do
    if n % k == 0 then
      out[#out + 1] = k
      if k * k ~= n then table.insert(above, 1, n // k) end
    end
  end
  return table.move(above, 1, #above, #out + 1, out)
end

--- Rows of a forward that are tried: those that are given, or powers of two.
local function row_counts(o)
  if o.micro then return { o.micro } end
  local out, rows = {}, 1
  while rows <= o.global_batch do out[#out + 1], rows = rows, 2 * rows end
  return out
end

--- Micro-batches of an update: how rows, global_batch of them, divide into `rows` on every rank of data parallelism.
local function micro_batches(o, dp, rows)
  local per = o.global_batch // dp
  return o.global_batch % dp == 0 and per % rows == 0 and per // rows or nil
end

--- Bytes and seconds of a plan by formulas. d: accel.parallel.TrafficModel.
---@param d table
---@param plan table tp, pp, cp, ep, dp, zero, rows, micro_batches, sequence, schedule, recompute
---@param o table as of M.candidates
---@return number bytes
---@return number seconds
function M.estimate(d, plan, o)
  local tp, pp, cp, dp, zero, m = plan.tp or 1, plan.pp or 1, plan.cp or 1, plan.dp, plan.zero or 0, plan.micro_batches or 1
  local ep = plan.ep or 1
  local half = o.mixed_precision ~= "no"
  local w, data = half and 2 or 4, dp * cp
  local _, rows, params, experts = traffic.of(d, { tp = tp, pp = pp, cp = cp, dp = dp, ep = ep, zero = zero, micro_batches = m, rows = plan.rows,
    tokens = o.tokens, width = w, sequence = plan.sequence == 1, stage = 0 })
  local function kept_of(n, ranks)
    local function share(least) return zero >= least and ranks or 1 end
    return n * (4 / share(3) + 4 / share(2) + 8 / share(1) + (half and o.accelerator and 2 / share(3) or 0))
  end
  local bytes = kept_of(params - experts, data) + kept_of(experts, data // ep)
  local n = plan.rows * o.tokens // cp
  -- of a layer: 17 hidden vectors a token, of which tensor parallelism cuts 12, with sequences all (Korthikanti et al. 2022)
  local routed = d.experts and d.k * (2 + 3 * d.inner / d.hidden) / tp or 0 -- tokens of experts, and their hidden size
  local kept = plan.recompute == "full" and 1 or (plan.sequence == 1 and 17 / tp or 5 + 12 / tp) + routed
  bytes = bytes + n * d.hidden * w * kept * (d.layers / pp) * math.min(pp, m) + n * d.vocab / tp * (w + 4)
  local block, whole = traffic.block(d)
  if d.experts then block = block + d.k * traffic.expert(d) end -- products per token
  local tokens = o.global_batch * o.tokens
  local flops = 6 * tokens * (d.layers * (block + whole) + d.vocab * d.hidden) + 6 * tokens * d.layers * o.tokens * d.hidden
  if plan.recompute == "full" then flops = flops * 4 / 3 end
  local near, far, seconds = o.near, o.ranks > o.local_ranks and o.bandwidth or o.near, 0
  local costs, own = o.costs or cost.cuda, d.layers / pp
  for _, row in ipairs(rows) do
    local inside = row.what:find "parallelism: [bo]" or row.what:find "embedding" or row.what:find "head"
      or row.kind == "all_to_all" and tp * cp * ep <= o.local_ranks
    local divides = row.what:find "parallelism" or row.kind == "all_to_all"
    seconds = seconds + (divides and COLLECTIVES * m or 1) * own * cost.collective(costs, row.kind, divides and tp * cp * ep or dp, not inside)
    seconds = seconds + (row.kind == "all_reduce" and 2 or row.kind == "recv" and 0 or 1) * row.bytes / (inside and near or far)
  end
  local kernels = KERNELS * (own + 2) * m * (plan.recompute == "full" and 4 / 3 or 1)
  local busy = math.max(flops / o.ranks / o.rate, kernels * costs.launch) + seconds
  return bytes, busy * (1 + traffic.bubble { pp = pp, micro_batches = m, schedule = plan.schedule })
end

--- All possible plans of a model on o.ranks ranks, the fastest that should fit first, then those that should not by their bytes. o: ranks,
--- local_ranks, global_batch, tokens, mixed_precision, accelerator, limit (bytes), rate, near, bandwidth, heads (sizes that tp must
--- divide), sequences (tp cuts them), decoder (cp does), micro (rows, given), tp, pp, cp, ep, zero (given).
---@param d table accel.parallel.TrafficModel
---@param o table
---@return table[] plans with estimate (bytes), seconds
function M.candidates(d, o)
  local out = {}
  local function add(plan)
    if plans.refuse(plan) then return end
    plan.estimate, plan.seconds = M.estimate(d, plan, o)
    out[#out + 1] = plan
  end
  --- All continuations with that many ranks of each kind.
  local function with(tp, pp, cp, dp, ep)
    for _, rows in ipairs(row_counts(o)) do
      local m = micro_batches(o, dp, rows)
      for zero = o.zero or 0, m and (pp == 1 or m >= pp) and (o.zero or (dp * cp > 1 and 3 or 0)) or -1 do
        for _, recompute in ipairs { "none", "full" } do
          local megatron = pp > 1 or tp * cp * ep > 1 and zero < 2 or recompute == "full" and zero < 2
          local sequence = megatron and tp > 1 and o.sequences and o.tokens % tp == 0 and cp == 1 and 1 or nil
          for _, schedule in ipairs(pp > 1 and { "1f1b", "zero_bubble" } or { "1f1b" }) do
            add { tp = tp > 1 and tp or nil, pp = pp > 1 and pp or nil, cp = cp > 1 and cp or nil, ep = ep > 1 and ep or nil,
              zero = zero > 0 and zero or nil, dp = dp, rows = rows, micro_batches = megatron and m or nil, accumulate = m, sequence = sequence,
              schedule = schedule ~= "1f1b" and schedule or nil, recompute = recompute == "full" and "full" or nil }
          end
        end
      end
    end
  end
  local function sizes(n, given, fits)
    local list = {}
    for _, k in ipairs(divisors(n)) do
      if given and k == given or not given and (k == 1 or fits(k)) then list[#list + 1] = k end
    end
    return list
  end
  for _, tp in ipairs(sizes(o.ranks, o.tp, function(k) return k <= o.local_ranks end)) do
    local heads = tp <= o.local_ranks
    for _, n in ipairs(o.heads) do heads = heads and n % tp == 0 end
    for _, pp in ipairs(heads and sizes(o.ranks // tp, o.pp, function(k) return k <= d.layers end) or {}) do
      local cps = sizes(o.ranks // tp // pp, o.cp, function(k) return o.decoder and o.tokens // k >= LONG end)
      for _, cp in ipairs(pp <= d.layers and cps or {}) do
        local dp = o.ranks // tp // pp // cp
        local eps = sizes(dp * cp, o.ep, function(k) return d.experts ~= nil and d.experts % k == 0 end)
        for _, ep in ipairs((cp == 1 or o.tokens % (2 * cp) == 0) and eps or {}) do with(tp, pp, cp, dp, ep) end
      end
    end
  end
  table.sort(out, function(a, b)
    local fits, other = a.estimate <= o.limit, b.estimate <= o.limit
    if fits ~= other then return fits end
    if fits and a.seconds ~= b.seconds then return a.seconds < b.seconds end
    if a.estimate ~= b.estimate then return a.estimate < b.estimate end
    return plans.text(a) < plans.text(b)
  end)
  return out
end

--- Seconds of an update from a dry run of a rank: for each kernel the time of its flops, and at least its start; for each collective its
--- bytes and its messages. times: an update has that many times the measured forwards, and sends `growth` times as much.
---@param report table
---@param o table rate, near, bandwidth, costs (accel.profiler.Costs, default cuda's)
---@param times number
---@param growth number
---@return {total: number, compute: number, communication: number, idle: number, sent: integer}
function M.time(report, o, times, growth)
  local out, costs = { compute = 0, communication = 0, sent = 0, kernels = 0 }, o.costs or cost.cuda
  for _, row in ipairs(report.ops) do
    out.kernels = out.kernels + row.n * times
    out.compute = out.compute + times * row.n * math.max(costs.launch, row.flops / row.n / o.rate)
  end
  out.kernels = math.floor(out.kernels)
  for _, c in ipairs(report.collectives) do
    out.sent = out.sent + growth * c.sent
    out.communication = out.communication
      + growth * (c.sent / (c.remote and o.bandwidth or o.near) + cost.collective(costs, c.kind, c.ranks, c.remote))
  end
  out.sent = math.floor(out.sent)
  local busy = out.compute + out.communication
  out.idle = busy * (report.pipeline and report.pipeline.bubble or 0)
  out.total = busy + out.idle
  return out
end

return M
