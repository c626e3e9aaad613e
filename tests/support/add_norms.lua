--- add_layer_norm and add_rms_norm against an addition and the norm of it, bit by bit: on the CPU
--- (tests/host/ops/norm/add_norm_test.lua) and on the CUDA device (tests/cuda/norm_suite.lua).
local accel = require "accel"
local numbers = require "numbers"

local M = {}

M.dtypes = { "f32", "f64", "bf16", "f16" }

local function bits(t) return t:detach():to("cpu"):contiguous():to_bytes() end

local function agree(got, want, what, bar)
  assert(numbers.same_shape(got.shape, want.shape) and got.dtype == want.dtype, what .. ": another shape or dtype")
  if bits(got) == bits(want) then return end
  local e, why = numbers.distance(numbers.flat(got:to "cpu"), numbers.flat(want:to "cpu"))
  assert(e <= (bar or -1), ("%s: differs by %.3g%s"):format(what, e, why and " (" .. why .. ")" or ""))
end

--- The call that is tested: y and sum of op "layer" or "rms" over the last dims of shape.
function M.fused(op, x, residual, shape, w, b)
  if op == "rms" then return accel.add_rms_norm(x, residual, shape, w, { eps = 1e-4 }) end
  return accel.add_layer_norm(x, residual, shape, w, b, { eps = 1e-4 })
end

--- What it stands for. Of a sum that does not lie in one run the device's norm is worked out by another kernel.
function M.plain(op, x, residual, shape, w, b)
  local sum = (residual + x):contiguous()
  if op == "rms" then return accel.rms_norm(sum, shape, w, { eps = 1e-4 }), sum end
  return accel.layer_norm(sum, shape, w, b, { eps = 1e-4 }), sum
end

--- Results, and for gradients by y, by sum and by both those of every input. In 16 bits the two parts of a gradient meet
--- before they are rounded.
---@param what string for messages
---@param op "layer"|"rms"
---@param x accel.Tensor
---@param residual accel.Tensor
---@param shape integer[]
---@param w? accel.Tensor
---@param b? accel.Tensor
---@param lay? fun(t: accel.Tensor): accel.Tensor? how the gradients lie that arrive; their kernels round in other ways
function M.compare(what, op, x, residual, shape, w, b, lay)
  local leaves, at = {}, {}
  local function leaf(t)
    if not t then return nil end
    if not at[t] then
      at[t] = t:detach()
      at[t].requires_grad = true
      leaves[#leaves + 1] = at[t]
    end
    return at[t]
  end
  local a, r, u, v = leaf(x), leaf(residual), leaf(w), leaf(b)
  local got, want = { M.fused(op, a, r, shape, u, v) }, { M.plain(op, a, r, shape, u, v) }
  for j, name in ipairs { "y", "sum" } do agree(got[j], want[j], what .. ": " .. name) end
  local eps = numbers.EPS[got[2].dtype]
  local cots, bar = {}, (eps > 1e-4 or lay) and (eps > 1e-4 and 2 or 16) * eps or nil
  for j = 1, 2 do
    local flat = numbers.distinct(got[j]:numel(), -1, 1, 40 + j)
    cots[j] = numbers.tensor(flat, got[j].shape, got[j].dtype):to(x.device)
    cots[j] = lay and lay(cots[j]) or cots[j]
  end
  for label, uses in accel.pairs { y = { 1 }, sum = { 2 }, both = { 1, 2 } } do
    local function gradients(outs)
      local o, c = {}, {}
      for i, j in ipairs(uses) do o[i], c[i] = outs[j], cots[j] end
      return accel.grad(o, leaves, { grad_outputs = c, allow_unused = true, retain_graph = true })
    end
    local g, h = gradients(got), gradients(want)
    for i = 1, #leaves do
      local name = ("%s: gradient %d by %s"):format(what, i, label)
      assert((g[i] == nil) == (h[i] == nil), name)
      if g[i] then agree(g[i], h[i], name, (label == "both" or lay) and bar or nil) end
    end
  end
end

--- Values for an input; seed: other ones.
function M.values(shape, dtype, seed)
  return numbers.tensor(numbers.distinct(numbers.numel(shape), -3, 2, seed), shape, dtype)
end

--- Every pair of dtypes, with weights of the sum's dtype and of f32, and without.
function M.dtype_mixes(shape, device)
  local n = { shape[#shape] }
  for _, dx in ipairs(M.dtypes) do
    for _, dr in ipairs(M.dtypes) do
      local x, r = M.values(shape, dx, 1):to(device), M.values(shape, dr, 2):to(device)
      local sum = (r + x).dtype
      for _, op in ipairs { "layer", "rms" } do
        for _, dw in ipairs { sum, sum ~= "f64" and "f32" or false, "none" } do
          if dw then
            local w = dw ~= "none" and M.values(n, dw, 3):to(device) or nil
            local b = w and op == "layer" and M.values(n, dw, 4):to(device) or nil
            local text = ("%s, x %s (%s), residual %s, weight %s"):format(op, dx, table.concat(shape, ", "), dr, dw)
            M.compare(text, op, x, r, n, w, b)
          end
        end
      end
    end
  end
end

--- x and residual lying otherwise, one and both.
function M.layouts(shape, dtype, device)
  local n = { shape[#shape] }
  local x, r = M.values(shape, dtype, 1):to(device), M.values(shape, dtype, 2):to(device)
  local w = M.values(n, dtype, 3):to(device)
  for _, name in ipairs(numbers.layout_names) do
    local lay = numbers.layouts[name]
    for _, op in ipairs { "layer", "rms" } do
      M.compare("x " .. name, op, lay(x), r, n, w)
      M.compare("residual " .. name, op, x, lay(r), n, w)
      M.compare("both " .. name, op, lay(x), lay(r), n, lay(w))
      M.compare("gradients " .. name, op, x, r, n, w, nil, lay)
    end
  end
end

return M
