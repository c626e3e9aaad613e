--- Fixed costs of starts: kernels, and the messages of collectives. Bytes and flops come on top. Declared here once, for accel-run plan and
--- --dry-run.
local M = {}

---@class accel.profiler.Costs
---@field launch number seconds from one small kernel to the next
---@field start number seconds until a collective moves its first byte
---@field near number seconds of a step of a collective inside a machine
---@field far number the same between machines

--- One H100. Kernels of a stream follow each other in about 2.5 us if the host keeps up (CUDA's launch rate). Collectives: the latencies
--- that NCCL plans by (src/graph/tuning.cc, trees with LL: 6.8 us, and 0.6 us a step over NVLink, 5 us over a network).
---@type accel.profiler.Costs
M.cuda = { launch = 2.5e-6, start = 6.8e-6, near = 0.6e-6, far = 5e-6 }

--- One core. An op of accel on one element takes about 0.3 us, an all-reduce of 4 bytes in shared memory about as much, a message over TCP
--- about 30 us.
---@type accel.profiler.Costs
M.cpu = { launch = 0.3e-6, start = 0.3e-6, near = 0.3e-6, far = 30e-6 }

--- Consecutive messages in a collective of that many ranks: trees, and down again if all get the sum.
---@param kind string
---@param ranks integer
---@return integer
function M.steps(kind, ranks)
  if kind == "send" or kind == "recv" then return 1 end
  if ranks <= 1 then return 0 end
  return (kind == "all_reduce" and 2 or 1) * math.ceil(math.log(ranks, 2) - 1e-9)
end

--- Seconds of a collective without its bytes.
---@param costs accel.profiler.Costs
---@param kind string
---@param ranks integer
---@param remote? boolean it goes between machines
---@return number
function M.collective(costs, kind, ranks, remote)
  local steps = M.steps(kind, ranks)
  return steps > 0 and costs.start + steps * (remote and costs.far or costs.near) or 0
end

return M
