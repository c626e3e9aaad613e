--- State of every optimizer: a run that saves, is made anew and loads has the bits of one that goes on, at any
--- step, in any dtype, with parameters that miss gradients and groups that come later; what is in a state; what
--- is refused.
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local optim = accel.optim

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

-- Classes with options that use every part of their state; the last column: its parameters are matrices.
local settings = {
  { "SGD", { lr = 0.1, momentum = 0.9, dampening = 0.2, weight_decay = 0.1 } }, { "SGD", { lr = 0.1 } },
  { "Adam", { lr = 0.1, amsgrad = true } }, { "AdamW", { lr = 0.1, weight_decay = 0.1 } },
  { "Adagrad", { lr = 0.1, lr_decay = 0.2, initial_accumulator_value = 0.5 } },
  { "RMSprop", { lr = 0.1, momentum = 0.9, centered = true } }, { "Adamax", { lr = 0.1 } },
  { "NAdam", { lr = 0.1, weight_decay = 0.1 } }, { "RAdam", { lr = 0.1, betas = { 0.9, 0.9 } } },
  { "Lion", { lr = 0.1 } }, { "SparseAdam", { lr = 0.1 } }, { "Adadelta", {} }, { "Rprop", { lr = 0.1 } },
  { "Adan", { lr = 0.1, weight_decay = 0.1 } },
  { "ASGD", { lr = 0.1, lambd = 0.1, t0 = 2 } }, { "Adafactor", { lr = 0.1 } },
  { "AdamWScheduleFree", { lr = 0.1, warmup_steps = 3, r = 1.0, train_mode = true } },
  { "SGDScheduleFree", { lr = 0.1, warmup_steps = 3, train_mode = true } }, { "Muon", { lr = 0.1 }, true },
  { "AdamW8bit", { lr = 0.1, min_8bit_size = 4 } }, { "Lion8bit", { lr = 0.1, min_8bit_size = 5, weight_decay = 0.1 } },
  { "AdEMAMix8bit", { lr = 0.1, min_8bit_size = 0, t_alpha = 4, t_beta3 = 5 } }, { "SGD8bit", { lr = 0.1, momentum = 0.9 } },
}
local STEPS = 6

local function leaf(seed, shape, dtype)
  accel.manual_seed(seed)
  local t = accel.randn(shape, { dtype = "f64" }):to(dtype):clone()
  t.requires_grad = true
  return t
end

--- The bytes of all parameters after the steps; the optimizer is replaced before step `at`. Parameter 2 misses
--- steps 2 and 3, parameter 4 comes with a group of its own in step 3.
local function run(class, options, matrices, dtype, at)
  local shapes = matrices and { { 4, 3 }, { 2, 5 }, { 3, 3 }, { 3, 4 } } or { { 4, 3 }, { 5 }, { 2, 2, 3 }, {} }
  local p = {}
  for i, shape in ipairs(shapes) do p[i] = leaf(i, shape, dtype) end
  local function make(n)
    local o = optim[class]({ p[1], p[2], p[3] }, options)
    if n > 3 then o:add_param_group { params = { p[4] }, lr = 0.05 } end
    return o
  end
  local o = make(3)
  for s = 1, STEPS do
    if s == 3 then o:add_param_group { params = { p[4] }, lr = 0.05 } end
    if s == at then
      local saved = o:state_dict()
      o = make(s >= 3 and 4 or 3)
      o:load_state_dict(saved)
    end
    for i, shape in ipairs(shapes) do
      accel.manual_seed(100 * s + i)
      local g = accel.randn(shape, { dtype = "f64" }):to(dtype)
      p[i].grad = not (i == 2 and (s == 2 or s == 3)) and g or nil
    end
    o:step()
  end
  local bytes = {}
  for i, t in ipairs(p) do bytes[i] = t:detach():contiguous():to_bytes() end
  return table.concat(bytes), o
end

for _, setting in ipairs(settings) do
  local class, options, matrices = table.unpack(setting)
  for _, dtype in ipairs { "f64", "f32", "bf16" } do
    local want = run(class, options, matrices, dtype)
    for at = 1, STEPS do
      assert(run(class, options, matrices, dtype, at) == want, ("%s %s resumed at step %d"):format(class, dtype, at))
    end
  end
  local _, o = run(class, options, matrices, "f32")
  local copy = o:state_dict()
  for g, group in ipairs(o.param_groups) do -- lists of options are nobody else's
    for key, value in pairs(group) do
      if type(value) == "table" then assert(copy.param_groups[g][key] ~= value and o.options[key] ~= value, key) end
    end
  end
  assert(tostring(o):find(class, 1, true))
end

do -- what PyTorch's states hold, by its names
  local function keys(class, options, shape)
    local p = accel.ones(shape or { 2, 3 })
    p.grad = p * 0.5
    local o = optim[class]({ p }, options)
    o:step()
    local names, entry = {}, o:state_dict().state[0]
    for name in pairs(entry) do names[#names + 1] = name end
    table.sort(names)
    return table.concat(names, " "), entry
  end
  assert(keys("SGD", {}) == "" and keys("SGD", { momentum = 0.9 }) == "momentum_buffer")
  assert(keys("Adam", {}) == "exp_avg exp_avg_sq step")
  assert(keys("AdamW", { amsgrad = true }) == "exp_avg exp_avg_sq max_exp_avg_sq step")
  assert(keys("Adagrad", {}) == "step sum" and keys("Adamax", {}) == "exp_avg exp_inf step")
  assert(keys("RMSprop", { momentum = 0.9, centered = true }) == "grad_avg momentum_buffer square_avg step")
  assert(keys("NAdam", {}) == "exp_avg exp_avg_sq mu_product step" and keys("Lion", {}) == "exp_avg")
  assert(keys("Rprop", {}) == "prev step step_size" and keys("Adadelta", {}) == "acc_delta square_avg step")
  assert(keys("ASGD", {}) == "ax eta mu step" and keys("Muon", {}) == "momentum_buffer")
  assert(keys("Adafactor", {}, { 3 }) == "step variance")
  local names, entry = keys("Adafactor", {}, { 4, 2, 3 })
  assert(names == "col_var row_var step" and table.concat(entry.row_var.shape, " ") == "4 2 1")
  assert(table.concat(entry.col_var.shape, " ") == "4 1 3" and entry.step:item() == 1)
end

do -- numbers may come as plain ones, and in another dtype than they are kept in
  local p = accel.ones(2, { dtype = "f64" })
  p.grad = p * 0.5
  local o = optim.NAdam({ p })
  o:load_state_dict {
    state = { [0] = { step = 3, mu_product = accel.tensor({ 0.25 }, { dtype = "f64" })[1],
      exp_avg = accel.zeros(2), exp_avg_sq = accel.zeros(2) } },
    param_groups = { { params = { 0 }, lr = 0.5 } },
  }
  local entry = o:state_dict().state[0]
  assert(entry.step:item() == 3 and entry.mu_product:item() == 0.25 and entry.exp_avg.dtype == "f64")
  assert(o.param_groups[1].lr == 0.5)
end

do -- a momentum that is switched on late starts as a first one
  for _, class in ipairs { "SGD", "RMSprop" } do
    local function stepped(late)
      local p = accel.ones(2, { dtype = "f64" })
      local o = optim[class]({ p }, { lr = 0.1, momentum = late and 0 or 0.9, weight_decay = 0.0 })
      for i = 1, 3 do
        p.grad = accel.tensor({ 1.0, -2.0 }, { dtype = "f64" })
        if late and i == 1 then p.grad = p.grad * 0 end
        if late and i == 2 then o.param_groups[1].momentum = 0.9 end
        if late or i < 3 then o:step() end
      end
      return p:tolist(), o
    end
    local late, o = stepped(true)
    assert(o:state_dict().state[0].momentum_buffer)
    if class == "SGD" then
      local want = stepped(false)
      assert(late[1] == want[1] and late[2] == want[2])
    end
  end
end

do -- errors
  local function one(class, shape, options)
    return optim[class]({ accel.ones(shape or { 2, 3 }) }, options)
  end
  local function entry(fields) return { state = { [0] = fields }, param_groups = { { params = { 0 } } } } end
  fails("has no 'mu_product'", function()
    one("NAdam", { 2 }):load_state_dict(entry { step = 1, exp_avg = accel.zeros(2), exp_avg_sq = accel.zeros(2) })
  end)
  fails("row_var of parameter 0 has shape %(2, 3%), the parameter %(2, 3%) needs %(2, 1%)", function()
    one("Adafactor"):load_state_dict(entry { step = 1, row_var = accel.zeros(2, 3), col_var = accel.zeros(1, 3) })
  end)
  fails("expected the result of state_dict, got nil", function() one("Lion"):load_state_dict() end)
  fails("Muon trains matrices", one, "Muon", { 3 })
  fails("adjust_lr_fn must be one of original, match_rms_adamw, spectral_unclamped", one, "Muon", nil,
    { adjust_lr_fn = "none" })
  fails("ns_coefficients must be three numbers", one, "Muon", nil, { ns_coefficients = { 1 } })
  fails("unknown option 'amsgrat'; did you mean 'amsgrad'", one, "Adam", nil, { amsgrat = true })
  fails("unknown option 'foreach'", one, "Adam", nil, { foreach = true })
  fails("rho must lie in", one, "Adadelta", nil, { rho = 2 })
  fails("needs 0 < etas", one, "Rprop", nil, { etas = { 1.5, 2 } })
  fails("beta2_decay must not be positive", one, "Adafactor", nil, { beta2_decay = 0.8 })
  fails("d must be at least 1", one, "Adafactor", nil, { d = 0.5 })
  fails("eps must be a number or false", one, "Adafactor", nil, { eps = { 1e-3 } })
  fails("beta 2 must lie in", one, "Lion", nil, { betas = { 0.9, 1 } })
  fails("betas must be three numbers, got 2", one, "Adan", nil, { betas = { 0.9, 0.99 } })
  fails("momentum must lie between 0 and 1", one, "SGDScheduleFree", nil, { momentum = 0 })
  fails("warmup_steps must be a positive integer", one, "AdamWScheduleFree", nil, { warmup_steps = -1 })
  fails("call optimizer:train%(%) before training", function() one("SGDScheduleFree"):step() end)
end

do -- a state that does not fit changes nothing
  local function run(bad)
    local p, q = accel.ones(2), accel.ones(3)
    local o = optim.AdamW({ p, q }, { lr = 0.1 })
    for s = 1, 3 do
      p.grad, q.grad = p * s, q * s - 1
      if bad and s == 2 then
        local state = o:state_dict()
        state.param_groups[1].lr, state.param_groups[1].initial_lr = 7, 7
        state.state[1] = { step = 1, exp_avg = accel.zeros(3), exp_avg_sq = accel.zeros(4) }
        fails("exp_avg_sq of parameter 1 has shape", o.load_state_dict, o, state)
        assert(o.param_groups[1].lr == 0.1 and o.param_groups[1].initial_lr == nil)
      end
      o:step()
    end
    return p:to_bytes() .. q:to_bytes()
  end
  assert(run(true) == run(false))
end
do -- Adafactor: the first update of a constant gradient is 1. Relative steps are max(eps2, rms(p)) times lr, others lr
  for scaled, want in pairs { [true] = 3 - 0.1 * 3, [false] = 3 - 0.1 } do
    local p = accel.full(4, 3.0, { requires_grad = true })
    p.grad = accel.full(4, 2.0)
    accel.optim.Adafactor({ p }, { lr = 0.1, scale_parameter = scaled }):step()
    local far = (p:detach() - want):abs():max():item()
    assert(far < 1e-6, ("scale_parameter = %s: off by %g"):format(tostring(scaled), far))
  end
end
case "states of all optimizers"
