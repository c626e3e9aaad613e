-- batch_norm, group_norm and instance_norm against their formulas in plain ops at sizes where they cut their work
-- differently; running statistics; what bad arguments say.
local accel = require "accel"
package.path = arg[0]:match("^(.*)/host/ops/norm/[^/]*$") .. "/support/?.lua;" .. package.path
local numbers = require "numbers"

local function close(got, want, bar, what, floor)
  local e, why = numbers.distance(numbers.flat(got), numbers.flat(want), floor)
  assert(e <= bar, ("%s: error %.3g, bar %.3g%s"):format(what, e, bar, why and " (" .. why .. ")" or ""))
end

local function make(seed, shape, dtype)
  local u, v = numbers.uniform(seed), {}
  for i = 1, numbers.numel(shape) do v[i] = 4 * u() - 1 end
  return numbers.tensor(v, shape, dtype or "f64")
end

-- Results and gradients of f and plain on the same leaves.
local function compare(what, inputs, f, plain, bar)
  local function run(fn)
    local t = {}
    for i, x in ipairs(inputs) do
      t[i] = x:detach()
      t[i].requires_grad = true
    end
    local y = fn(table.unpack(t))
    return y, accel.grad(y, t, { grad_outputs = make(99, y.shape, y.dtype) })
  end
  local y, g = run(f)
  local z, h = run(plain)
  close(y, z, bar, what)
  for i = 1, #h do close(g[i], h[i], bar, what .. ", gradient " .. i, 1e-2) end
end

local function per_channel(t, x)
  local s = {}
  for d = 1, #x.shape do s[d] = d == 2 and x.shape[2] or 1 end
  return t:view(s)
end

-- Mean and mean square deviation over dims, kept.
local function moments(x, dims)
  local m = x:mean(dims, { keepdim = true })
  return m, ((x - m) * (x - m)):mean(dims, { keepdim = true })
end

local function all_but_channels(x)
  local dims = { 1 }
  for d = 3, #x.shape do dims[#dims + 1] = d end
  return dims
end

-- One set of runs, several pieces of one, runs of several blocks, columns in one and in many pieces and tiles.
local shapes = {
  { 4, 3 }, { 2500, 3 }, { 70, 600 }, { 5, 4, 3 }, { 200, 90, 3 }, { 3, 2, 23 }, { 3, 2, 24 }, { 37, 2, 40, 41 },
  { 2, 3, 50, 61 }, { 30, 40, 7, 7 }, { 2, 2, 2, 3, 5 },
}
for _, shape in ipairs(shapes) do
  local label = " (" .. table.concat(shape, ", ") .. ")"
  local x, c = make(1, shape), shape[2]
  local w, b = make(2, { c }), make(3, { c })
  compare("batch_norm in training" .. label, { x, w, b },
    function(a, p, q) return a:batch_norm { weight = p, bias = q, training = true, eps = 1e-3 } end,
    function(a, p, q)
      local m, v = moments(a, all_but_channels(a))
      return (a - m) * (v + 1e-3):rsqrt() * per_channel(p, a) + per_channel(q, a)
    end, 1e-10)
  local mean, var = make(4, { c }), make(5, { c }):abs() + 0.1
  compare("batch_norm in evaluation" .. label, { x, w, b },
    function(a, p, q) return a:batch_norm(mean, var, p, q) end,
    function(a, p, q)
      local m, v = per_channel(mean, a), per_channel(var, a)
      return (a - m) * (v + 1e-5):rsqrt() * per_channel(p, a) + per_channel(q, a)
    end, 1e-12)
  for _, groups in ipairs { 1, 2, c } do
    if c % groups == 0 and x:numel() > shape[1] * groups then
      compare(("group_norm %d%s"):format(groups, label), { x, w, b },
        function(a, p, q) return a:group_norm(groups, p, q, { eps = 1e-3 }) end,
        function(a, p, q)
          local r = a:reshape(shape[1], groups, -1)
          local m, v = moments(r, 3)
          return ((r - m) * (v + 1e-3):rsqrt()):view(shape) * per_channel(p, a) + per_channel(q, a)
        end, 1e-10)
    end
  end
end

-- A small deviation on a large mean, which f32 cannot hold.
for _, shape in ipairs { { 64, 3 }, { 4, 3, 30, 30 } } do
  local x = make(7, shape, "f32") + 1000
  local wide = x:to("f64")
  close(x:batch_norm { training = true }, wide:batch_norm { training = true }, 2e-6, "batch_norm of a large mean")
  close(x:group_norm(1), wide:group_norm(1), 2e-6, "group_norm of a large mean")
end

-- Parameters and statistics of other dtypes.
do
  local x, w = make(8, { 6, 4, 5 }, "bf16"), make(9, { 4 }, "f32")
  local m, v = accel.zeros({ 4 }, { dtype = "f64" }), accel.ones(4)
  w.requires_grad, x.requires_grad = true, true
  local y = x:batch_norm(m, v, w, { training = true })
  assert(y.dtype == "bf16" and m.dtype == "f64" and v.dtype == "f32")
  y:sum():backward()
  assert(w.grad.dtype == "f32" and x.grad.dtype == "bf16")
  close(m, x:detach():to("f64"):mean { dim = { 1, 3 } } * 0.1, 1e-7, "running mean in f64")
end

-- ---- running statistics ----
do
  local x = accel.tensor { { 1.0, 10.0 }, { 3.0, 30.0 } }
  local m, v = accel.tensor { 1.0, 2.0 }, accel.tensor { 4.0, 8.0 }
  x:batch_norm(m, v, { training = true, momentum = 0.25 })
  close(m, accel.tensor { 1.25, 6.5 }, 1e-6, "running mean") -- 3/4 old + 1/4 of 2, 20
  close(v, accel.tensor { 3.5, 56.0 }, 1e-6, "running variance") -- 3/4 old + 1/4 of 2, 200: divided by one less
  local kept = v:clone()
  x:batch_norm(m, v)
  x:batch_norm(nil, nil, { training = true })
  x:batch_norm(m, nil, { training = true, momentum = 1 })
  close(v, kept, 0, "a variance that nobody may touch")
  close(m, accel.tensor { 2.0, 20.0 }, 1e-6, "a mean alone")
  -- they are no part of the graph, even where they are views, and the input may be one of theirs
  local both = accel.zeros(2, 2)
  x.requires_grad = true
  local y = x:batch_norm(both[1], both[2], { training = true })
  assert(not both.requires_grad and y.requires_grad)
  both:zero_()
  y:square():sum():backward()
  assert(x.grad:abs():amax():item() < 1e-3) -- sum of squares hardly moves
  -- in evaluation what was used has to stay until backward
  y = x:batch_norm(m, kept)
  m:zero_()
  local ok, err = pcall(function() y:sum():backward() end)
  assert(not ok and tostring(err):find("changed in place", 1, true), tostring(err))
end
do
  local x = accel.tensor { { { 1.0, 3.0 }, { 0.0, 4.0 } }, { { 5.0, 9.0 }, { 1.0, 1.0 } } }
  local m, v = accel.zeros(2), accel.zeros(2)
  x:instance_norm(m, v, { momentum = 0.5 })
  close(m, accel.tensor { 2.25, 0.75 }, 1e-6, "instance_norm's running mean") -- half of (2 + 7)/2, (2 + 1)/2
  close(v, accel.tensor { 2.5, 2.0 }, 1e-6, "instance_norm's running variance") -- half of (2 + 8)/2, (8 + 0)/2
  close(x:instance_norm(m, v, { use_input_stats = false }), x:batch_norm(m, v), 0, "instance_norm in evaluation")
end

-- ---- unit vectors ----
do
  local x = accel.tensor({ { 3.0, 4.0 }, { 0.0, 0.0 } })
  x.requires_grad = true
  local y = x:normalize()
  close(y, accel.tensor { { 0.6, 0.8 }, { 0.0, 0.0 } }, 1e-6, "normalize")
  y:sum():backward()
  local g = x.grad:tolist()
  assert(math.abs(g[1][1] - 0.032) < 1e-6 and math.abs(g[1][2] + 0.024) < 1e-6)
  assert(g[2][1] > 0.9e12 and g[2][1] == g[2][2]) -- one over eps
  local a, b = accel.tensor { 1.0, 0.0 }, accel.zeros(2)
  assert(accel.cosine_similarity(a, b, 1):item() == 0)
end

-- ---- errors ----
local function says(code, parts, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and err.code == code, tostring(err))
  for _, part in ipairs(parts) do
    assert(tostring(err):find(part, 1, true), ("'%s' is not in: %s"):format(part, tostring(err)))
  end
end
local z, x = accel.zeros, accel.ones(2, 6, 3)
says("shape", { "group_norm", "num_groups 4", "6 channels", "(2, 6, 3)" }, accel.group_norm, x, 4)
says("shape", { "group_norm", "num_groups 0" }, accel.group_norm, x, 0)
says("shape", { "group_norm", "weight", "(5)", "6 channels" }, accel.group_norm, x, 2, z(5))
says("shape", { "group_norm", "(samples, channels, ...)", "(6)" }, accel.group_norm, z(6), 2)
says("dtype", { "group_norm", "i64" }, accel.group_norm, accel.tensor { { 1, 2 } }, 1)
says("dtype", { "group_norm", "bias is f64, but x is f32" }, accel.group_norm, x, 1, nil, z({ 6 }, { dtype = "f64" }))
says("invalid_argument", { "batch_norm", "running_mean and running_var" }, accel.batch_norm, x)
says("invalid_argument", { "batch_norm", "running_mean and running_var" }, accel.batch_norm, x, z(6))
says("shape", { "batch_norm", "running_var has shape (5)" }, accel.batch_norm, x, z(6), z(5), { training = true })
says("shape", { "batch_norm", "more than one value per channel", "(1, 6, 1)" }, accel.batch_norm, z(1, 6, 1),
  { training = true })
says("dtype", { "batch_norm", "running_mean", "i64" }, accel.batch_norm, z(2, 1), accel.tensor { 1 }, z(1),
  { training = true })
says("shape", { "instance_norm", "more than one value", "(2, 3, 1)" }, accel.instance_norm, z(2, 3, 1))
says("invalid_argument", { "instance_norm", "use_input_stats" }, accel.instance_norm, x, { use_input_stats = false })
