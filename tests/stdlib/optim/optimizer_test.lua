--- Optimizers: PyTorch's numbers, groups, missing gradients, state, errors.
local accel = require "accel"
local optim = accel.optim

local function close(got, want, bar)
  got = type(got) == "userdata" and got:tolist() or got
  for i = 1, #want do
    assert(math.abs(got[i] - want[i]) <= (bar or 1e-13), ("%d: %.17g, wanted %.17g"):format(i, got[i],
      want[i]))
  end
end

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local f64 = { dtype = "f64" }
local function leaf(values)
  local t = accel.tensor(values, f64)
  t.requires_grad = true
  return t
end

--- p learns each step, q only in steps 2 and 4; as torch.optim.AdamW(lr=0.1, weight_decay=0.1) does it.
local function uneven(resume_at)
  local p, q = leaf { 1, 2 }, leaf { 3 }
  local opt = optim.AdamW({ p, q }, { lr = 0.1, weight_decay = 0.1 })
  for i = 1, 4 do
    if i == resume_at then
      local state = opt:state_dict()
      opt = optim.AdamW({ p, q }, { lr = 7 })
      opt:load_state_dict(state)
    end
    p.grad = accel.tensor({ 0.5 * i, -0.25 * i }, f64)
    q.grad = i % 2 == 0 and accel.tensor({ 1.0 }, f64) or nil
    opt:step()
  end
  return p, q, opt
end

do
  local p, q, opt = uneven()
  close(p, { 0.5780854762554948, 2.3037025490286043 })
  close(q, { 2.7413000019900005 })
  local state = opt:state_dict()
  assert(state.state[0].step:item() == 4 and state.state[1].step:item() == 2)
  assert(state.param_groups[1].lr == 0.1 and state.param_groups[1].params[2] == 1)
  for at = 2, 4 do
    p, q = uneven(at)
    close(p, { 0.5780854762554948, 2.3037025490286043 }, 0)
    close(q, { 2.7413000019900005 }, 0)
  end
end

do -- groups: own rates and decay, later groups
  local a, b, c = leaf { 1 }, leaf { 1 }, leaf { 1 }
  local opt = optim.SGD({ { params = { a } }, { params = { b }, lr = 0.5 } }, { lr = 0.1 })
  opt:add_param_group { params = { c }, weight_decay = 2 }
  for _, p in ipairs { a, b, c } do p.grad = accel.tensor({ 1.0 }, f64) end
  opt:step()
  close(a, { 0.9 })
  close(b, { 0.5 })
  close(c, { 1 - 0.1 * (1 + 2) })
  opt.param_groups[1].lr = 0.2
  opt:step()
  close(a, { 0.7 })
  opt:zero_grad()
  opt:step()
  close(a, { 0.7 }, 0)
  assert(a.grad == nil and tostring(opt):find "Parameter group 2 %(1 tensors%)")
end

do -- SGD with momentum: the first step sets the buffer, also after a resume
  local function run(resume)
    local p = leaf { 1 }
    local opt = optim.SGD({ p }, { lr = 0.1, momentum = 0.9, dampening = 0.5 })
    for i = 1, 3 do
      if i == resume then
        local state = opt:state_dict()
        opt = optim.SGD({ p }, { lr = 0.1, momentum = 0.9, dampening = 0.5 })
        opt:load_state_dict(state)
      end
      p.grad = accel.tensor({ 1.0 }, f64)
      opt:step()
    end
    return p:item()
  end
  -- buffers 1, 0.9 + 0.5 = 1.4, 1.26 + 0.5 = 1.76
  close({ run() }, { 1 - 0.1 * (1 + 1.4 + 1.76) })
  assert(run(2) == run() and run(3) == run() and run(1) == run())
end

do -- reference settings of the shipped data
  local dir = os.getenv "ACCEL_TEST_SRC" .. "/tests/reference/ops/"
  local data = assert(accel.load(dir .. "optim.safetensors"))
  local file = assert(io.open(dir .. "manifest.json", "rb"))
  local manifest = accel.json.decode(file:read "a")
  file:close()
  local ran = 0
  for _, case in ipairs(manifest.optim) do
    local Class = assert(optim[case.optimizer], case.optimizer)
    do
      local params, groups = {}, {}
      while data[case.name .. "/param" .. #params] do
        local p = data[case.name .. "/param" .. #params]:to("f64"):clone()
        p.requires_grad = true
        params[#params + 1] = p
      end
      for i, g in ipairs(case.groups) do
        groups[i] = { lr = g.lr, params = {} }
        for k, index in ipairs(g.params) do groups[i].params[k] = params[index + 1] end
      end
      local opt = Class(groups, case.options)
      for step = 0, case.steps - 1 do
        for i, p in ipairs(params) do p.grad = data[("%s/grad%d_%d"):format(case.name, step,
          i - 1)]:to "f64" end
        opt:step()
        for i, p in ipairs(params) do
          local want = data[("%s/step%d_%d"):format(case.name, step, i - 1)]
          local error = (p:detach() - want):abs():max():item()
          assert(error <= 1e-10 * math.max(1e-30, want:abs():max():item()),
            ("%s step %d parameter %d: %g"):format(case.name, step, i, error))
        end
      end
      ran = ran + 1
    end
  end
  assert(ran >= 17, "settings found: " .. ran)
end

do -- clipping: norm of the whole, scaling in place
  local p, q = leaf { 0, 0 }, leaf { 0 }
  p.grad, q.grad = accel.tensor({ 3.0, 0.0 }, f64), accel.tensor({ 4.0 }, f64)
  local clip = accel.nn.utils.clip_grad_norm_
  close({ clip({ p, q }, math.huge):item() }, { 5 }, 1e-12)
  close(p.grad, { 3, 0 }, 0)
  close({ clip({ p, q }, 1.0):item() }, { 5 }, 1e-12)
  close(p.grad, { 0.6, 0 }, 1e-6)
  close(q.grad, { 0.8 }, 1e-6)
  assert(clip({ leaf { 1 } }, 1.0):item() == 0)
end

do -- a closure computes the loss again
  local p = leaf { 2 }
  local opt = optim.SGD({ p }, { lr = 0.25 })
  local loss = opt:step(function()
    opt:zero_grad()
    local l = (p * p):sum()
    l:backward()
    return l
  end)
  assert(loss:item() == 4)
  close(p, { 1 })
end

do -- clipping and unscaling in the pass of the step: the bits of scaling the gradients first
  local inf <const> = math.huge
  local function leaf(values) return accel.tensor(values, { requires_grad = true }) end -- f32
  local function run(name, make, fused, factor)
    local p, q = leaf { 1.0, -2, 3 }, leaf { 0.5 }
    local o = make { p, q }
    local norms = {}
    for k = 1, 4 do
      p.grad, q.grad = accel.tensor { 0.3 * k, -0.7, 0.1 } * factor, accel.tensor { 0.9 / k } * factor
      local before = p.grad:to_bytes()
      assert(o:fuses() == (name ~= "lion" and (name ~= "momentum" or k > 1)), name)
      norms[k] = accel.nn.utils.clip_grad_norm_({ q, p }, 0.7, fused and { optimizer = o } or nil):item()
      assert(not fused or not o:fuses() or o.inv_scale and p.grad:to_bytes() == before)
      o:step()
      assert(o.inv_scale == nil)
      o:zero_grad()
    end
    return p:to_bytes() .. q:to_bytes(), norms
  end
  for name, make in pairs {
    adamw = function(list) return optim.AdamW(list, { lr = 0.1 }) end,
    amsgrad = function(list) return optim.Adam(list, { lr = 0.1, amsgrad = true, weight_decay = 0.1, maximize = true }) end,
    sgd = function(list) return optim.SGD(list, { lr = 0.1 }) end,
    momentum = function(list) return optim.SGD(list, { lr = 0.1, momentum = 0.9, weight_decay = 0.1 }) end,
    lion = function(list) return optim.Lion(list, { lr = 0.1 }) end, -- has no such way: it is clipped at once
  } do
    for _, factor in ipairs { 1, 0.01, inf, 0 / 0 } do
      local plain, norms = run(name, make, false, factor)
      local fused, again = run(name, make, true, factor)
      assert(plain == fused, name)
      for k, norm in ipairs(norms) do assert(norm == again[k] or norm ~= norm and again[k] ~= again[k]) end
    end
  end
  do -- a step that may be left out must not be the first with momentum of a parameter that has a gradient now
    local p, frozen = leaf { 1.0 }, leaf { 1.0 }
    local o = optim.SGD({ p, frozen }, { lr = 0.1 })
    local function step(...)
      p.grad = accel.tensor { 1.0 }
      for _, q in ipairs { ... } do q.grad = accel.tensor { 1.0 } end
      local fuses = o:fuses()
      o:step()
      o:zero_grad()
      return fuses
    end
    assert(step())
    o.param_groups[1].momentum = 0.5
    assert(not step() and step() and step() and not step(frozen) and step(frozen))
    o = optim.SGD({ p, frozen }, { lr = 0.1, momentum = 0.5 })
    assert(not step() and step() and not step(frozen) and step(frozen))
  end
  -- dropped gradients take the factor along
  local p = leaf { 1.0 }
  local o = optim.SGD({ p }, { lr = 1 })
  p.grad = accel.tensor { 4.0 }
  accel.nn.utils.clip_grad_norm_(p, 1, { optimizer = o })
  o:zero_grad()
  p.grad = accel.tensor { 0.5 }
  o:step()
  close(p, { 0.5 })
  -- however they are dropped; what comes in the place of one alone has no factor, others keep theirs
  local clip, net = accel.nn.utils.clip_grad_norm_, accel.nn.Linear(1, 1)
  o = optim.SGD(net:parameters(), { lr = 1 })
  local function clipped(...)
    net.weight.grad, net.bias.grad = accel.tensor { { 3.0 } }, accel.tensor { 4.0 }
    net.weight:detach():fill_(0)
    net.bias:detach():fill_(0)
    assert(clip(net:parameters(), 1, { optimizer = o }):item() == 5)
    assert(o.inv_scale and net.bias.grad:item() == 4)
    for _, fn in ipairs { ... } do fn() end
    o:step()
    assert(o.inv_scale == nil)
    return { net.weight:item(), net.bias:item() }
  end
  local function fresh() (net(accel.ones(1)) * 0.5):sum():backward() end
  close(clipped(), { -0.6, -0.8 }, 1e-6)
  close(clipped(function() net:zero_grad() end), { 0, 0 })
  close(clipped(function() net:zero_grad() end, fresh), { -0.5, -0.5 })
  close(clipped(function() net.weight.grad = accel.tensor { { 0.25 } } end), { -0.25, -0.8 }, 1e-6)
  close(clipped(function() net.bias.grad = nil end), { -0.6, 0 }, 1e-6)
  close(clipped(function() o:add_param_group { params = p } p.grad = accel.tensor { 0.5 } end), { -0.6, -0.8 }, 1e-6)
  close(p, { 0 })
  o = optim.SGD(net:parameters(), { lr = 1 })
  fails("adds to a gradient that clip_grad_norm_ with optimizer left to that optimizer's next step", clipped, fresh)
  o:zero_grad()
  fresh()
  -- an infinite norm only measures
  p.grad = accel.tensor { inf }
  local free = optim.SGD({ p }, { lr = 1 })
  assert(clip(p, inf, { optimizer = free }):item() == inf and free.inv_scale == nil)
  free:step()
  assert(p:item() == -inf)
  p:detach():fill_(0)
  -- clipped more than once, in whatever way: as without an optimizer
  local all = net:parameters()
  for _, second in ipairs {
    function(opts) return clip(all, 0.5, opts) end, function(opts) return clip(all, 2, opts) end,
    function() return clip(all, 0.5) end, function() return clip(net.weight, 0.25) end,
    function(opts) return clip(all, 0.5, { norm_type = inf, optimizer = opts and opts.optimizer }) end,
    function() accel.nn.utils.clip_grad_value_(all, 0.125) end,
  } do
    local got, norms = {}, {}
    for i, opts in ipairs { { optimizer = o }, false } do
      got[i] = clipped(function()
        if not opts then
          o:zero_grad()
          net.weight.grad, net.bias.grad = accel.tensor { { 3.0 } }, accel.tensor { 4.0 }
          clip(all, 1)
        end
        norms[i] = second(opts or nil)
      end)
    end
    assert(got[1][1] == got[2][1] and got[1][2] == got[2][2], got[1][1])
    assert(not norms[1] or norms[1]:item() == norms[2]:item())
  end
  -- a step that raises leaves gradients that are clipped
  assert(not pcall(clipped, function() o.param_groups[1].lr = "none" end))
  o.param_groups[1].lr = 1
  assert(o.inv_scale == nil)
  close(net.bias.grad, { 0.8 }, 1e-6)
  fresh()
  o = optim.SGD({ p }, { lr = 1 })
  p.grad = accel.tensor { 4.0 }
  fails("all of them", accel.nn.utils.clip_grad_norm_, { p, leaf { 1.0 } }, 1, { optimizer = o })
  fails("all of them", accel.nn.utils.clip_grad_norm_, { leaf { 1.0 } }, 1, { optimizer = o })
  fails("optimizer must be one of accel.optim, got", accel.nn.utils.clip_grad_norm_, { p }, 1, { optimizer = 3 })
  -- what the op leaves out it leaves as it was, the count of steps too
  for _, op in ipairs { accel.adam_step_, accel.adamw_step_ } do
    local w, m, v, step = accel.ones(2), accel.zeros(2), accel.zeros(2), accel.tensor { 5.0 }
    local lr, found = accel.tensor(0.1), accel.tensor(1.0)
    op({ w }, { w * inf }, { m }, { v }, lr, step, { found_inf = found })
    close(w, { 1, 1 })
    close(m, { 0, 0 })
    assert(step:item() == 5)
    op({ w }, { w * 2 }, { m }, { v }, lr, step, { found_inf = found * 0, inv_scale = accel.tensor(0.5) })
    close(m, { 0.1, 0.1 }, 1e-7)
    assert(step:item() == 6)
  end
end

do -- errors
  fails("empty list", optim.SGD, {})
  fails("appears twice", optim.SGD, (function()
    local p = leaf { 1 }
    return { p, p }
  end)())
  fails("only leaves", optim.SGD, { leaf { 1 } * 2 })
  fails("unknown option 'momentun'; did you mean 'momentum'", optim.SGD, { leaf { 1 } }, { momentun = 0.9 })
  fails("SGD: lr must be at least 0, got %-1", optim.SGD, { leaf { 1 } }, { lr = -1 })
  fails("AdamW: lr must be a number, got %-?nan", optim.AdamW, { leaf { 1 } }, { lr = 0 / 0 })
  fails("AdamW: beta 2 must lie in %[0, 1%), got x", optim.AdamW, { leaf { 1 } }, { betas = { 0.9, "x" } })
  fails("option 'lr' must be a number", optim.SGD, { leaf { 1 } }, { lr = "0.1" })
  fails("nesterov needs", optim.SGD, { leaf { 1 } }, { nesterov = true })
  fails("beta 2 must lie", optim.AdamW, { leaf { 1 } }, { betas = { 0.9, 1.0 } })
  fails("parameter 1 is a number", optim.AdamW, { 3 })
  local opt = optim.AdamW { leaf { 1 } }
  fails("2 parameter groups given, the optimizer has 1", opt.load_state_dict, opt,
    { state = {}, param_groups = { { params = { 0 } }, { params = { 1 } } } })
  fails("has shape %(2%), the parameter %(1%)", opt.load_state_dict, opt, {
    state = { [0] = { step = 1, exp_avg = accel.zeros(2), exp_avg_sq = accel.zeros(2) } },
    param_groups = { { params = { 0 } } },
  })
  fails("step: use o:step%(%), with a colon", opt.step)
  fails("zero_grad: use o:zero_grad%(%), with a colon", opt.zero_grad)
  fails("has no 'exp_avg_sq'", opt.load_state_dict, opt,
    { state = { [0] = { step = 1, exp_avg = accel.zeros(1) } }, param_groups = { { params = { 0 } } } })
end
