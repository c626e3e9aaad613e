-- Which way convolutions take on the twin with its stand-in for cuDNN, and with what: told by the stand-in's log (CUDA_TWIN_CUDNN_LOG).
-- That its results are right is the op suite's business, which runs with it as well.
--   accel-run cudnn_calls.lua on | off | tf32 | refused
local accel = require "accel"
local mode = arg[1]
local log = os.getenv "CUDA_TWIN_CUDNN_LOG"
os.remove(log)

local function lines()
  local list, f = {}, io.open(log)
  if f then
    for line in f:lines() do list[#list + 1] = line end
    f:close()
  end
  os.remove(log)
  return list
end

-- t on the device, `skip` elements behind what a block begins at.
local skip = 0
local function move(t)
  local n = t:numel()
  local room = accel.empty({ skip + n }, { dtype = t.dtype, device = "cuda" })
  room:narrow(1, skip + 1, n):copy_(t:reshape(n))
  return room:narrow(1, skip + 1, n):view(t.shape):detach()
end

-- The lines that a convolution and its gradients leave; its result is the CPU's.
local function run(op, dtype, x_shape, w_shape, options)
  accel.manual_seed(3)
  local x, w = accel.randn(x_shape, { dtype = dtype }), accel.randn(w_shape, { dtype = dtype })
  local want = accel[op](x, w, options):to "f64"
  local gx, gw = move(x), move(w)
  gx.requires_grad, gw.requires_grad = true, true
  local y = accel[op](gx, gw, options)
  local g = accel.grad(y, { gx, gw }, { grad_outputs = move(accel.ones(y.shape, { dtype = dtype })) })
  assert(#g == 2)
  local off = (y:detach():to("cpu"):to "f64" - want):abs():max():item()
  assert(off < (dtype == "bf16" and 0.1 or 1e-4), ("%s of %s is off by %g"):format(op, dtype, off))
  return table.concat(lines(), "; ")
end
local function expect(want, ...)
  local got = run(...)
  assert(got == want, ("expected '%s', got '%s'"):format(want, got))
end

local function three(rest) return ("forward %s; data %s; filter %s"):format(rest, rest, rest) end
if mode == "off" or mode == "refused" then
  -- what was refused once is not asked for again
  expect(mode == "off" and "" or "refused forward; refused data; refused filter", "conv2d", "f32", { 2, 3, 5, 5 }, { 4, 3, 3, 3 }, { padding = 1 })
  expect("", "conv2d", "f32", { 2, 3, 5, 5 }, { 4, 3, 3, 3 }, { padding = 1 })
else
  local math = mode == "tf32" and 0 or 3
  expect(three("dims=4 type=0 groups=1 math=" .. math), "conv2d", "f32", { 2, 3, 5, 5 }, { 4, 3, 3, 3 }, { padding = 1 })
  expect(three("dims=4 type=0 groups=2 math=" .. math), "conv1d", "f32", { 2, 4, 9 }, { 6, 2, 3 }, { stride = 2, groups = 2 })
  expect(three "dims=5 type=1 groups=1 math=0", "conv3d", "f64", { 1, 2, 3, 4, 5 }, { 2, 2, 2, 2, 2 }, { dilation = { 1, 2, 1 } })
  expect(three "dims=4 type=9 groups=1 math=1", "conv2d", "bf16", { 2, 3, 5, 5 }, { 4, 3, 3, 3 }, {})
  -- a transposed convolution is the others' gradient
  expect(("data %s; forward %s; filter %s"):gsub("%%s", "dims=4 type=0 groups=1 math=" .. math), "conv_transpose2d", "f32", { 1, 3, 4, 4 },
    { 3, 2, 3, 3 }, { stride = 2, padding = 1, output_padding = 1 })
  -- a result that is longer than cuDNN's formula gives is ours, its gradient is a convolution that is cut
  expect("forward dims=4 type=0 groups=1 math=" .. math, "conv_transpose1d", "f32", { 1, 2, 4 }, { 2, 2, 2 }, { dilation = 3, output_padding = 2 })
  -- wherever operands begin
  skip = 1
  expect(three("dims=4 type=0 groups=1 math=" .. math), "conv2d", "f32", { 2, 3, 5, 5 }, { 4, 3, 3, 3 }, { padding = 1 })
  expect(three "dims=4 type=9 groups=1 math=1", "conv2d", "bf16", { 2, 3, 5, 5 }, { 4, 3, 3, 3 }, {})
end
