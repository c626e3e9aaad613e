-- add_layer_norm and add_rms_norm: the bits of an addition and a norm in every dtype and layout, second derivatives,
-- autocast, what they keep, what bad arguments say.
local accel = require "accel"
package.path = arg[0]:match("^(.*)/host/ops/norm/[^/]*$") .. "/support/?.lua;" .. package.path
local add_norms = require "add_norms"
local values, fused, plain = add_norms.values, add_norms.fused, add_norms.plain

for _, shape in ipairs { { 5, 8 }, { 3, 4, 67 }, { 2, 1500 }, { 70, 16 } } do add_norms.dtype_mixes(shape, "cpu") end
for _, dtype in ipairs { "f32", "bf16" } do add_norms.layouts({ 4, 3, 37 }, dtype, "cpu") end

for _, op in ipairs { "layer", "rms" } do
  -- several dims, one row, none, rows of nothing; a bias alone
  local x, r = values({ 2, 3, 5 }, "f32", 1), values({ 2, 3, 5 }, "f32", 2)
  add_norms.compare("two dims", op, x, r, { 3, 5 }, values({ 3, 5 }, "f32", 3))
  add_norms.compare("all dims", op, x, r, { 2, 3, 5 })
  if op == "layer" then add_norms.compare("bias", op, x, r, { 5 }, nil, values({ 5 }, "f32", 3)) end
  for _, shape in ipairs { { 0, 4 }, { 3, 0 } } do
    local none, n = accel.zeros(shape), shape[2]
    add_norms.compare("empty", op, none, accel.zeros(shape), { n }, accel.zeros(n))
  end
  -- one tensor as both: its gradients add up
  add_norms.compare("x as its own residual", op, x, x, { 5 }, values({ 5 }, "f32", 3))
  -- where x alone, the residual alone or the weight alone is learnt
  for k = 1, 3 do
    local t = { x:detach(), r:detach(), values({ 5 }, "f32", 3) }
    t[k].requires_grad = true
    local function grad(f)
      local y, sum = f(op, t[1], t[2], { 5 }, t[3])
      return accel.grad((y * x):sum() + (sum * r):sum(), t[k])
    end
    assert(accel.equal(grad(fused), grad(plain)), "input " .. k)
  end
  -- first and second derivatives by one result and by both
  local double = {}
  for k, shape in ipairs { { 3, 4 }, { 3, 4 }, { 4 }, op == "layer" and { 4 } or nil } do
    double[k] = values(shape, "f64", k)
    double[k].requires_grad = true
  end
  for pick = 1, 3 do
    local function run(a, b, w, v)
      local y, sum = fused(op, a, b, { 4 }, w, v)
      if pick == 1 then return y elseif pick == 2 then return sum end
      return y * y, sum * y
    end
    assert(accel.autograd.gradcheck(run, double))
    if pick ~= 2 then assert(accel.autograd.gradgradcheck(run, double)) end
    local function without(a, b) return run(a, b) end
    assert(accel.autograd.gradcheck(without, { double[1], double[2] }))
    if pick ~= 2 then assert(accel.autograd.gradgradcheck(without, { double[1], double[2] })) end
  end
end

-- Autocast leaves both as they are: what is 16 bits wide meets an f32 stream and an f32 weight.
do
  local a, w = values({ 6, 8 }, "f32", 1), values({ 8, 8 }, "f32", 2)
  local stream, scale = values({ 6, 8 }, "f32", 3), values({ 8 }, "f32", 4)
  for _, op in ipairs { "layer", "rms" } do
    accel.autocast({ dtype = "bf16" }, function()
      local x = accel.linear(a, w)
      assert(x.dtype == "bf16")
      add_norms.compare("autocast", op, x, stream, { 8 }, scale)
      add_norms.compare("autocast, lower", op, x, x * 2, { 8 }, scale)
      add_norms.compare("autocast, residual", op, stream, x, { 8 }, scale)
    end)
  end
end

-- No more is kept for backward than by the two ops: x and the residual are free to go.
do
  local function kept(f)
    collectgarbage()
    local w = values({ 64 }, "f32", 3)
    w.requires_grad = true
    local before = accel.mem_stats().live_bytes
    local y, sum = f("layer", values({ 100, 64 }, "f32", 1) * w, values({ 100, 64 }, "f32", 2), { 64 }, w)
    collectgarbage()
    collectgarbage()
    local bytes = accel.mem_stats().live_bytes - before
    assert(y.requires_grad and sum.requires_grad)
    return bytes
  end
  assert(kept(fused) == kept(plain), ("%d bytes are kept instead of %d"):format(kept(fused), kept(plain)))
  -- a sum that is overwritten cannot serve any more
  local x = values({ 3, 4 }, "f32", 1)
  x.requires_grad = true
  local y, sum = fused("rms", x, x, { 4 })
  sum:mul_(2)
  local ok, err = pcall(y.backward, y:sum())
  assert(not ok and tostring(err):find("changed in place", 1, true), tostring(err))
end

local function refused(code, parts, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and err.code == code, tostring(err))
  for _, part in ipairs(parts) do assert(tostring(err):find(part, 1, true), tostring(err)) end
end
local z = accel.zeros
for _, f in ipairs { accel.add_layer_norm, accel.add_rms_norm } do
  local name = f == accel.add_rms_norm and "add_rms_norm" or "add_layer_norm"
  refused("shape", { name, "x has shape (2, 4)", "residual has (4)" }, f, z(2, 4), z(4), { 4 })
  refused("shape", { name, "x has shape (1, 4)", "residual has (2, 4)" }, f, z(1, 4), z(2, 4), { 4 })
  refused("shape", { "(2, 4) does not end in normalized_shape (5)" }, f, z(2, 4), z(2, 4), { 5 })
  refused("shape", { "weight has shape (3)" }, f, z(2, 4), z(2, 4), { 4 }, z(3))
  local whole, double = z({ 2, 4 }, { dtype = "i64" }), z({ 4 }, { dtype = "f64" })
  refused("dtype", { "x must be floating point, not i64" }, f, whole, z(2, 4), { 4 })
  refused("dtype", { "residual must be floating point, not i64" }, f, z(2, 4), whole, { 4 })
  refused("dtype", { "weight is f64, but residual + x is f32" }, f, z(2, 4), z(2, 4), { 4 }, double)
end
refused("dtype", { "bias is f64" }, accel.add_layer_norm, z(2, 4), z(2, 4), { 4 }, nil, z({ 4 }, { dtype = "f64" }))
