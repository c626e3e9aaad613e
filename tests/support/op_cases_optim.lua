-- Cases of the optimizers' ops and of what works on lists of gradients. They write their lists and give nothing
-- back, so the lists are the results.
local c = require "op_cases"
local case, real, range, big = c.case, c.real, c.range, c.big
local accel = require "accel"

local L = {}

-- A one-element tensor beside t.
local function on(t, x) return accel.full({ 1 }, x, { dtype = t.dtype, device = t.device }) end

local function copies(t)
  local a = {}
  for i, x in ipairs(t) do a[i] = x:clone() end
  return a
end

-- A step of n lists, the inputs being the tensors of one parameter after another: call(f, lists, x) with copies
-- of them and any one tensor x. reads: which lists are only read (the second when not said).
local function stepped(n, call, reads)
  reads = reads or { [2] = true }
  return { grad = false, ints = false, loss = 4, call = function(f, ...)
    local t, lists, out = copies { ... }, {}, {}
    for i = 1, #t do
      local k = (i - 1) % n + 1
      lists[k] = lists[k] or {}
      table.insert(lists[k], t[i])
      if not reads[k] then out[#out + 1] = t[i] end
    end
    for _, x in ipairs { call(f, lists, t[1]) } do out[#out + 1] = x end
    return table.unpack(out)
  end }
end

-- Parameters of shapes (3, 2), (5), () and (0, 3), and one large one. kinds: a spec per list, made for a shape.
local function cases(label, kinds, call, more)
  local small, large = {}, {}
  for _, shape in ipairs { { 3, 2 }, { 5 }, {}, { 0, 3 } } do
    for _, kind in ipairs(kinds) do small[#small + 1] = kind(table.unpack(shape)) end
  end
  for _, kind in ipairs(kinds) do large[#large + 1] = kind(200, 330) end
  local how = stepped(#kinds, call)
  for key, value in pairs(more or {}) do how[key] = value end
  return { case(label, small, how), big(how, table.unpack(large)) }
end
local function join(...)
  local all = {}
  for _, list in ipairs { ... } do table.move(list, 1, #list, #all + 1, all) end
  return all
end
local function positive(...) return range(0.1, 1, ...) end

local adam = { real, real, real, positive }
for _, op in ipairs { "adam_step_", "adamw_step_" } do
  L[op] = join(
    cases("two", adam, function(f, l, x)
      f(l[1], l[2], l[3], l[4], on(x, 0.1), on(x, 3), { weight_decay = 0.1 })
    end),
    cases("amsgrad", { real, real, real, positive, positive }, function(f, l, x)
      f(l[1], l[2], l[3], l[4], on(x, 0.1), on(x, 3), { weight_decay = 0.1, maximize = true, max_exp_avg_sqs = l[5] })
    end),
    cases("scaled", adam, function(f, l, x)
      f(l[1], l[2], l[3], l[4], on(x, 0.1), on(x, 3), { weight_decay = 0.1, inv_scale = on(x, 0.25), found_inf = on(x, 0) })
    end),
    cases("left out", adam, function(f, l, x)
      local step = on(x, 3)
      f(l[1], l[2], l[3], l[4], on(x, 0.1), step, { inv_scale = on(x, 0.25), found_inf = on(x, 1) })
      return step
    end))
end

L.sgd_step_ = join(
  cases("momentum", { real, real, real }, function(f, l, x)
    f(l[1], l[2], l[3], on(x, 0.1), { momentum = 0.9, nesterov = true, weight_decay = 0.1 })
  end),
  cases("first", { real, real, real }, function(f, l, x)
    f(l[1], l[2], l[3], on(x, 0.1), { momentum = 0.9, dampening = 0.5, maximize = true, first = true })
  end),
  cases("scaled", { real, real, real }, function(f, l, x)
    f(l[1], l[2], l[3], on(x, 0.1), { momentum = 0.9, weight_decay = 0.1, inv_scale = on(x, 0.25), found_inf = on(x, 0) })
  end),
  cases("left out", { real, real, real }, function(f, l, x)
    f(l[1], l[2], l[3], on(x, 0.1), { momentum = 0.9, found_inf = on(x, 1) })
  end),
  cases("plain", { real, real }, function(f, l, x) f(l[1], l[2], {}, on(x, 0.1)) end))

L.adagrad_step_ = cases("two", { real, real, positive }, function(f, l, x)
  f(l[1], l[2], l[3], on(x, 0.1), on(x, 3), { lr_decay = 0.1, weight_decay = 0.1 })
end)

local function rmsprop(options)
  return function(f, l, x)
    local o = { momentum_buffers = options.momentum and l[4] or nil, weight_decay = 0.1 }
    o.grad_avgs = options.centered and l[options.momentum and 5 or 4] or nil
    o.momentum = options.momentum
    f(l[1], l[2], l[3], on(x, 0.01), on(x, 3), o)
  end
end
local function small(...) return range(-0.2, 0.2, ...) end -- running means, so that no variance is negative
local function wide(...) return range(0.5, 1, ...) end
L.rmsprop_step_ = join(
  cases("plain", { real, real, positive }, rmsprop {}),
  cases("momentum", { real, real, positive, real }, rmsprop { momentum = 0.9 }),
  cases("centered", { real, real, wide, small }, rmsprop { centered = true }),
  cases("both", { real, real, wide, real, small }, rmsprop { momentum = 0.9, centered = true }))

L.adamax_step_ = cases("two", adam, function(f, l, x)
  f(l[1], l[2], l[3], l[4], on(x, 0.1), on(x, 3), { weight_decay = 0.1 })
end)

L.nadam_step_ = join(
  cases("two", adam, function(f, l, x)
    f(l[1], l[2], l[3], l[4], on(x, 0.5), on(x, 0.1), on(x, 3), { weight_decay = 0.1 })
  end),
  cases("decoupled", adam, function(f, l, x)
    f(l[1], l[2], l[3], l[4], on(x, 0.5), on(x, 0.1), on(x, 3),
      { weight_decay = 0.1, decoupled_weight_decay = true, momentum_decay = 0.1 })
  end))

local function radam(step)
  return function(f, l, x)
    f(l[1], l[2], l[3], l[4], on(x, 0.1), on(x, step), { weight_decay = 0.1, decoupled_weight_decay = step > 3 })
  end
end
L.radam_step_ = join(cases("first", adam, radam(3)), cases("rectified", adam, radam(9)))

-- The large one has no sign to lose in a rounding.
local function lion(f, l, x) f(l[1], l[2], l[3], on(x, 0.1), { weight_decay = 0.1 }) end
L.lion_step_ = {
  cases("two", { real, real, real }, lion)[1], cases("two", { real, real, wide }, lion)[2],
}

L.adadelta_step_ = cases("two", { real, real, positive, positive }, function(f, l, x)
  f(l[1], l[2], l[3], l[4], on(x, 0.1), on(x, 3), { weight_decay = 0.1 })
end)

L.rprop_step_ = cases("two", { real, real, real, positive }, function(f, l, x)
  f(l[1], l[2], l[3], l[4], on(x, 3))
end)

L.asgd_step_ = join(
  cases("early", { real, real, real }, function(f, l, x)
    f(l[1], l[2], l[3], on(x, 0.1), on(x, 3), on(x, 0.1), on(x, 1), { lambd = 0.1, weight_decay = 0.1 })
  end),
  cases("averaging", { real, real, real }, function(f, l, x)
    f(l[1], l[2], l[3], on(x, 0.1), on(x, 3), on(x, 0.1), on(x, 0.25), { lambd = 0.1 })
  end))

-- Factored states: two matrices and a vector.
local function adafactor_with(scale_parameter)
  return function(f, p, g, r, cv, q, h, v)
    local t = copies { p, g, r, cv, q, h, v }
    local options = { eps1 = 1e-3, weight_decay = 0.1, scale_parameter = scale_parameter }
    f({ t[1], t[5] }, { t[2], t[6] }, { t[3] }, { t[4] }, { t[7] }, on(p, 0.1), on(p, 3), options)
    return t[1], t[3], t[4], t[5], t[7]
  end
end
local adafactor <const> = adafactor_with(nil)
local function factored(n, m, k)
  return real(n, m), real(n, m), positive(n, 1), positive(1, m), real(k), real(k), positive(k)
end
L.adafactor_step_ = {
  case("matrix and vector", { factored(3, 4, 5) }, { grad = false, ints = false, loss = 8, call = adafactor }),
  case("steps of lr", { factored(3, 4, 5) }, { grad = false, ints = false, loss = 8, call = adafactor_with(false) }),
  case("three dims", { real(2, 3, 4), real(2, 3, 4), positive(2, 3, 1), positive(2, 1, 4), real(), real(), positive() },
    { grad = false, ints = false, loss = 8, call = adafactor }),
  big({ grad = false, call = adafactor }, factored(150, 1100, 40000)),
}

L.adamw_schedule_free_step_ = cases("two", { real, real, real, positive }, function(f, l, x)
  f(l[1], l[2], l[3], l[4], on(x, 0.1), on(x, 3), on(x, 0.5), on(x, 0.1), { weight_decay = 0.1, warmup_steps = 8 })
end)
L.sgd_schedule_free_step_ = cases("two", { real, real, real }, function(f, l, x)
  f(l[1], l[2], l[3], on(x, 0.1), on(x, 3), on(x, 0.5), on(x, 0.1), { weight_decay = 0.1, r = 1 })
end)

L.muon_step_ = cases("two", { real, real }, function(f, l, x)
  local scales = {}
  for i = 1, #l[1] do scales[i] = 0.5 * i end
  f(l[1], l[2], scales, on(x, 0.1), { weight_decay = 0.1 })
end)

-- In the dtype of the matrix; its singular values are of one size, because small ones are blown up.
local function iterated(f, x) return f(x, { dtype = x.dtype, steps = 2 }) end
L.newton_schulz = {
  case("wide", { range(0.2, 1, 2, 5) }, { ints = false, loss = 40, call = iterated, roundings = 40 }),
  case("tall", { range(0.2, 1, 5, 2) }, { ints = false, loss = 40, call = iterated, roundings = 40 }),
  case("no steps", { real(3, 3) }, { ints = false, loss = 4, roundings = 4, call = function(f, x)
    return f(x, { dtype = x.dtype, steps = 0 })
  end }),
}

L.foreach_lerp_ = join(
  cases("near", { real, real }, function(f, l) f(l[1], l[2], 0.3) end),
  cases("far", { real, real }, function(f, l) f(l[1], l[2], 0.9) end))

-- ---- gradients ----
local function clip(norm)
  return { grad = false, ints = false, loss = 4, wide_result = true, call = function(f, a, b)
    a, b = a:clone(), b:clone()
    return f({ a, b }, 1.5, norm), a, b
  end }
end
L.clip_grad_norm_ = {
  case("2", { real(3, 2), real(5) }, clip(2)),
  case("1", { real(3, 2), real(5) }, clip(1)),
  case("inf", { real(3, 2), real(5) }, clip(math.huge)),
  case("empty", { real(0), real(5) }, clip(2)),
  big(clip(2), real(200, 330), real(500)),
}
L.clip_grad_value_ = join(
  cases("half", { real }, function(f, l) f(l[1], 0.5) end), cases("zero", { real }, function(f, l) f(l[1], 0) end))

-- ---- loss scaling ----
L.amp_foreach_unscale_ = cases("quarter", { real }, function(f, l, x)
  local found = on(x, 0)
  f(l[1], found, on(x, 0.25))
  return found
end)
local function update(found)
  return { grad = false, ints = false, call = function(f, scale)
    local s, tracker = scale:abs():mul(64):clone(), on(scale, 2)
    f(s, tracker, on(scale, found), 2, 0.5, 3)
    return s, tracker
  end }
end
L.amp_update_scale_ = { case("grows", { real() }, update(0)), case("falls", { real(1) }, update(1)) }

-- Codes, or values, of zeros beside every parameter: the states come back as results, too.
local function blockwise(f, l, x, o, coded)
  local s = { {}, {}, {}, {}, {}, {} }
  for i, p in ipairs(l[1]) do
    for k = 1, 6, 2 do
      s[k][i] = accel.zeros(p.shape, { dtype = coded and "u8" or "f32", device = p.device })
      s[k + 1][i] = accel.zeros(coded and (p:numel() + 255) // 256 or 0, { device = p.device })
    end
  end
  o.state2, o.absmax2, o.state3, o.absmax3 = s[3], s[4], s[5], s[6]
  f(l[1], l[2], s[1], s[2], on(x, 0.1), on(x, 0), o)
  local out = {}
  if not coded then
    for _, t in ipairs(s[1]) do out[#out + 1] = t end
  end
  return table.unpack(out)
end
L.blockwise_step_ = {}
for _, rule in ipairs { "adam", "momentum", "lion", "rmsprop", "adagrad", "ademamix" } do
  for _, coded in ipairs { true, false } do
    L.blockwise_step_ = join(L.blockwise_step_, cases(rule .. (coded and "" or ", f32"), { real, real }, function(f, l, x)
      return blockwise(f, l, x, { rule = rule, beta3 = 0.99, alpha = 2, weight_decay = 0.1 }, coded)
    end, { wide_result = true }))
  end
end
L.blockwise_step_stochastic_ = cases("adam", { real, real }, function(f, l, x)
  return blockwise(f, l, x, { weight_decay = 0.1 }, true)
end, { wide_result = true, random = true })

return L
