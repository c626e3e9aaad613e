--- Plans that a model could be trained by on so many ranks, in the order in which it pays to look at them: by formulas on sizes alone
--- (accel.parallel.traffic). What a plan takes in the end a dry run tells. Used by accel-run plan.
local plans = require "accel.cli.plan_config"
local traffic = require "accel.parallel.traffic"

local M = {}

--- What a rank computes and sends in a second where nothing is said: FLOP/s in f32 and in 16 bits, bytes/s inside a machine. Figures of
--- one H100 with NVLink, and of one CPU core; they decide between plans, and are printed with the result.
M.hardware = { cuda = { single = 50e12, half = 400e12, near = 200e9 }, cpu = { single = 0.1e12, half = 0.1e12, near = 5e9 } }

local function divisors(n)
  local out = {}
  for k = 1, n do out[#out + 1] = n % k == 0 and k or nil end
  return out
end

--- Micro-batches of an update: how rows, global_batch of them, divide into `rows` on every rank of data parallelism.
local function micro_batches(o, dp, rows)
  local per = o.global_batch // dp
  return o.global_batch % dp == 0 and per % rows == 0 and per // rows or nil
end

--- Bytes and seconds of a plan by formulas. d: accel.parallel.TrafficModel.
---@param d table
---@param plan table tp, pp, cp, dp, zero, rows, micro_batches, sequence, recompute
---@param o table as of M.candidates
---@return number bytes
---@return number seconds
function M.estimate(d, plan, o)
  local tp, pp, cp, dp, zero, m = plan.tp or 1, plan.pp or 1, plan.cp or 1, plan.dp, plan.zero or 0, plan.micro_batches or 1
  local half = o.mixed_precision ~= "no"
  local w, data = half and 2 or 4, dp * cp
  local _, rows, params = traffic.of(d, { tp = tp, pp = pp, cp = cp, dp = dp, zero = zero, micro_batches = m, rows = plan.rows,
    tokens = o.tokens, width = w, sequence = plan.sequence == 1, stage = 0 })
  local function share(least) return zero >= least and data or 1 end
  local bytes = params * (4 / share(3) + 4 / share(2) + 8 / share(1) + (half and o.accelerator and 2 / share(3) or 0))
  local n = plan.rows * o.tokens // cp
  -- of a layer: 17 hidden vectors a token, of which tensor parallelism cuts 12, with sequences all (Korthikanti et al. 2022)
  local kept = plan.recompute == "full" and 1 or plan.sequence == 1 and 17 / tp or 5 + 12 / tp
  bytes = bytes + n * d.hidden * w * kept * (d.layers / pp) * math.min(pp, m) + n * d.vocab / tp * (w + 4)
  local block, whole = traffic.block(d)
  local tokens = o.global_batch * o.tokens
  local flops = 6 * tokens * (d.layers * (block + whole) + d.vocab * d.hidden) + 6 * tokens * d.layers * o.tokens * d.hidden
  if plan.recompute == "full" then flops = flops * 4 / 3 end
  local near, far, seconds = o.near, o.ranks > o.local_ranks and o.bandwidth or o.near, 0
  for _, row in ipairs(rows) do
    local inside = row.what:find "parallelism: [bo]" or row.what:find "embedding" or row.what:find "head"
    seconds = seconds + (row.kind == "all_reduce" and 2 or row.kind == "recv" and 0 or 1) * row.bytes / (inside and near or far)
  end
  return bytes, (flops / o.ranks / o.rate + seconds) * (1 + traffic.bubble { pp = pp, micro_batches = m })
end

--- All plans of a model on o.ranks ranks that can be written down, the fastest that should fit first, then those that should not by
--- their bytes. o: ranks, local_ranks, global_batch, tokens, mixed_precision, accelerator, limit (bytes), rate, near, bandwidth, heads (what
--- tp divides), micro (rows, given), tp, pp, cp, zero (given).
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
  for _, tp in ipairs(divisors(o.ranks)) do
    local heads = true
    for _, n in ipairs(o.heads) do heads = heads and n % tp == 0 end
    if heads and tp <= o.local_ranks and (not o.tp or o.tp == tp) then
      for _, pp in ipairs(divisors(o.ranks // tp)) do
        for _, cp in ipairs((o.cp or 1) > 1 and { o.cp } or { 1 }) do
          local dp = o.ranks // tp // pp // cp
          if pp <= d.layers and tp * pp * cp * dp == o.ranks and (not o.pp or o.pp == pp) and o.tokens % (2 * cp) == 0 then
            for rows = 1, o.global_batch do
              local m = (rows & rows - 1 == 0 or rows == o.micro) and (not o.micro or o.micro == rows) and micro_batches(o, dp, rows)
              if m and (pp == 1 or m >= pp) then
                for zero = 0, (dp * cp > 1) and 3 or 0 do
                  for _, recompute in ipairs { "none", "full" } do
                    local sequence = tp > 1 and o.tokens % tp == 0 and cp == 1 and 1 or nil
                    local megatron = pp > 1 or tp * cp > 1 and zero < 2 or recompute == "full" and zero < 2
                    if not o.zero or o.zero == zero then
                      add { tp = tp > 1 and tp or nil, pp = pp > 1 and pp or nil, cp = cp > 1 and cp or nil, zero = zero > 0 and zero or nil,
                        dp = dp, rows = rows, micro_batches = megatron and m or nil, accumulate = m, sequence = megatron and sequence or nil,
                        recompute = recompute == "full" and "full" or nil }
                    end
                  end
                end
              end
            end
          end
        end
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

--- Seconds of an update by what a dry run saw of a rank. times: updates have so many times as many forwards as the one that was seen, and
--- send `growth` times as much.
---@param report table
---@param o table rate, near, bandwidth
---@param times number
---@param growth number
---@return {total: number, compute: number, communication: number, idle: number, sent: integer}
function M.time(report, o, times, growth)
  local out = { compute = report.flops * times / o.rate, communication = 0, sent = 0 }
  for _, c in ipairs(report.collectives) do
    out.sent = out.sent + growth * c.sent
    out.communication = out.communication + growth * c.sent / (c.remote and o.bandwidth or o.near)
  end
  out.sent = math.floor(out.sent)
  local busy = out.compute + out.communication
  out.idle = busy * (report.pipeline and report.pipeline.bubble or 0)
  out.total = busy + out.idle
  return out
end

return M
