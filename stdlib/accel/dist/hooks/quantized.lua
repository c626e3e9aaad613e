--- Hooks that send gradients as 8-bit or 4-bit integers, in blocks with a scale each (quantize_blockwise).
---
--- The all-reduce is split. In a reduce-scatter, every rank sends each other rank its part of the bucket, quantised,
--- and sums the received parts in f32. An all-gather then distributes the averaged parts, as 8-bit integers. All ranks
--- end with the same bits. int8_all_gather_hook sends 8 bits in both steps, a quarter of the bytes of f32 (and a scale
--- per block). int4_reduce_scatter_hook sends 4 bits in the first one, less than a fifth.
local Future = require "accel.dist.hooks.future"
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local dist = require "accel.dist"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

--- State of the quantising hooks. Options: process_group; block_size = 256, elements that share a scale;
--- use_error_feedback = true, add the quantisation error of both steps to the next gradient.
--- example: accel.dist.hooks.QuantizedState { block_size = 64 }.block_size --> 64
---@class accel.dist.hooks.QuantizedState
local State = class("accel.dist.hooks.QuantizedState")

---@param opts? table options by name
function State:init(opts)
  local o = options("QuantizedState", opts, {
    process_group = options.none, block_size = 256, use_error_feedback = true,
  })
  check.positive("QuantizedState", "block_size", o.block_size)
  self.process_group, self.block_size, self.use_error_feedback = o.process_group, o.block_size, o.use_error_feedback
  self.memory = {}
end

--- The sum of a list of tensors, in pairs.
local function sum(list)
  while #list > 1 do
    local half = {}
    for i = 1, #list, 2 do half[#half + 1] = list[i + 1] and list[i] + list[i + 1] or list[i] end
    list = half
  end
  return list[1]
end

--- How a bucket of n elements is shared: for each rank its elements, its bytes with so many bits, its scales.
local function shares(n, size, block)
  local per, s = (((n + block - 1) // block) + size - 1) // size * block, { counts = {}, half = {}, scales = {} }
  for r = 1, size do
    local count = math.max(0, math.min(per, n - (r - 1) * per))
    s.counts[r], s.half[r], s.scales[r] = count, (count + 1) // 2, (count + block - 1) // block
  end
  return s
end

local function repeated(value, n)
  local list = {}
  for i = 1, n do list[i] = value end
  return list
end

--- The bucket's state from one backward to the next.
local function memory_of(state, bucket, size, rank, bits)
  local at = bucket:index()
  local m = state.memory[at]
  if m and m.layout == bucket:layout() then return m end
  m = { layout = bucket:layout() }
  state.memory[at] = m
  local n, block = bucket:buffer():numel(), state.block_size
  m.shares = shares(n, size, block)
  local bytes = bits == 8 and m.shares.counts or m.shares.half
  m.bytes, m.mine, m.my_scales = bytes, m.shares.counts[rank + 1], m.shares.scales[rank + 1]
  m.got_q = bucket:scratch("got q", bytes[rank + 1] * size, bits == 8 and "i8" or "u8")
  m.got_scales = bucket:scratch("got scales", m.my_scales * size, "f32")
  m.all_q = bucket:scratch("all q", n, "i8")
  m.all_scales = bucket:scratch("all scales", (n + block - 1) // block, "f32")
  accel.unscoped(function()
    local q, scales, at_q, at_s = {}, {}, 1, 1
    for r = 1, size do
      q[r] = m.all_q:narrow(1, at_q, m.shares.counts[r])
      scales[r] = m.all_scales:narrow(1, at_s, m.shares.scales[r])
      at_q, at_s = at_q + m.shares.counts[r], at_s + m.shares.scales[r]
    end
    m.parts_q, m.parts_scales = q, scales
  end)
  return m
end

--- The quantisation error of t, in the kept tensor `into`, or a new one. nil if t was not finite.
local function lost(into, t, q, scale, bits, block)
  into = into or accel.unscoped(accel.empty_like, t)
  local loss = t - accel.dequantize_blockwise(q, scale, t.shape, bits, block)
  return into:copy_(loss:nan_to_num { posinf = 0, neginf = 0 })
end

local function hook_of(name, bits)
  return function(state, bucket)
    if not class.isinstance(state, State) then
      raise("%s: the state must be a QuantizedState, got %s", name, check.shown(state))
    end
    local buffer, group, block, feeds = bucket:buffer(), state.process_group, state.block_size, state.use_error_feedback
    local size, rank = dist.get_world_size(group), dist.get_rank(group)
    local m = memory_of(state, bucket, size, rank, bits)
    if feeds and m.error then buffer:add_(m.error) end
    local q, scale = accel.quantize_blockwise(buffer, bits, block)
    if feeds then m.error = lost(m.error, buffer, q, scale, bits, block) end
    local scales = dist.all_to_all_single(m.got_scales, scale, {
      input_split_sizes = m.shares.scales, output_split_sizes = repeated(m.my_scales, size), group = group,
      async_op = true,
    })
    local sent = dist.all_to_all_single(m.got_q, q, {
      input_split_sizes = m.bytes, output_split_sizes = repeated(m.bytes[rank + 1], size), group = group,
      async_op = true,
    })
    return Future(sent, buffer):and_then(function()
      scales:wait()
      local parts, each = {}, m.bytes[rank + 1]
      for r = 1, size do
        parts[r] = accel.dequantize_blockwise(m.got_q:narrow(1, (r - 1) * each + 1, each),
          m.got_scales:narrow(1, (r - 1) * m.my_scales + 1, m.my_scales), { m.mine }, bits, block)
      end
      local mean = sum(parts):mul_(1 / size)
      if feeds and m.mean_error then mean:add_(m.mean_error) end
      local mean_q, mean_scale = accel.quantize_blockwise(mean, 8, block)
      if feeds then m.mean_error = lost(m.mean_error, mean, mean_q, mean_scale, 8, block) end
      scales = dist.all_gather(m.parts_scales, mean_scale, { group = group, async_op = true })
      return Future(dist.all_gather(m.parts_q, mean_q, { group = group, async_op = true }), buffer)
    end):and_then(function()
      scales:wait()
      buffer:copy_(accel.dequantize_blockwise(m.all_q, m.all_scales, buffer.shape, 8, block))
      return buffer
    end)
  end
end

local eight, four = hook_of("int8_all_gather_hook", 8), hook_of("int4_reduce_scatter_hook", 4)

--- Averages gradients, sent as 8-bit integers. state: a QuantizedState.
--- example: local m = accel.nn.parallel.DistributedDataParallel(accel.nn.Linear(1, 1)) m:register_comm_hook(
---   accel.dist.hooks.QuantizedState(), accel.dist.hooks.int8_all_gather_hook) m(accel.ones(1, 1)):sum():backward()
---   return m.weight.grad --> { { 1 } }
---@param state accel.dist.hooks.QuantizedState
---@param bucket accel.dist.GradBucket
---@return accel.dist.hooks.Future
function M.int8_all_gather_hook(state, bucket) return eight(state, bucket) end

--- Averages gradients, sent as 4-bit integers to the rank that sums them, whose mean is sent as 8-bit ones. state: a
--- QuantizedState.
--- example: local m = accel.nn.parallel.DistributedDataParallel(accel.nn.Linear(1, 1)) m:register_comm_hook(
---   accel.dist.hooks.QuantizedState(), accel.dist.hooks.int4_reduce_scatter_hook) m(accel.ones(1, 1)):sum():backward()
---   return m.weight.grad --> { { 1 } }
---@param state accel.dist.hooks.QuantizedState
---@param bucket accel.dist.GradBucket
---@return accel.dist.hooks.Future
function M.int4_reduce_scatter_hook(state, bucket) return four(state, bucket) end

M.QuantizedState = State
return M
