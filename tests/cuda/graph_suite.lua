-- accel.graph on the device: a recorded step gives the bits of one that is not, over many steps with dropout, a schedule and a loss scale that
-- skips steps; the stand-in tells that the same kernels were recorded in the same order, and how often they ran. What cannot be recorded says why.
-- Runs as ops_suite.lua does.
local accel = require "accel"
local here = arg[0]:match("^(.*)/[^/]*$")
package.path = here .. "/../support/?.lua;" .. package.path
local suite = require "cuda_suite"
local temporary = suite.temporary
local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run "

-- arg: dtype, steps, "graph" or "plain", optimizer, where gradients are dropped. Prints losses, weights, rates and the loss scale in all digits.
local TRAIN <const> = [[
local accel = require "accel"
local dtype, steps, how, optimizer, zero = arg[1], tonumber(arg[2]), arg[3], arg[4], arg[5]
accel.manual_seed(7)
local model = accel.models.GPT2 { vocab_size = 61, n_positions = 8, n_embd = 16, n_layer = 1, n_head = 2, resid_pdrop = 0.1,
  embd_pdrop = 0.1, attn_pdrop = 0.1 }
local params = model:parameters()
local opt = optimizer == "sgd" and accel.optim.SGD(params, { lr = 0.05, momentum = 0.9 }) or accel.optim.AdamW(params, { lr = 3e-3 })
local schedule = accel.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
local scaler = accel.amp.GradScaler { enabled = dtype == "f16", init_scale = 2.0 ^ 22, growth_interval = 3 }
local generator = accel.Generator(3)
local function step(batch)
  if zero == "first" then opt:zero_grad() end
  local loss
  do
    local _ <close> = accel.autocast { dtype = dtype == "f32" and "bf16" or dtype, enabled = dtype ~= "f32" }
    loss = accel.cross_entropy(model(batch.x):reshape(-1, 61), batch.y)
  end
  scaler:scale(loss):backward()
  scaler:unscale_(opt)
  local norm = accel.nn.utils.clip_grad_norm_(params, 1.0, { optimizer = opt })
  scaler:step(opt)
  scaler:update()
  if zero == "last" then opt:zero_grad() end
  return loss, norm
end
local call = how == "graph" and accel.graph(step) or step
local losses = {}
for i = 1, steps do
  local tokens = accel.randint(0, 61, { 3, 9 }, { generator = generator })
  local loss, norm = call { x = tokens:narrow(2, 1, 8):contiguous(), y = tokens:narrow(2, 2, 8):reshape(-1) }
  losses[#losses + 1], losses[#losses + 2] = loss:detach(), norm
  if zero == "outside" then opt:zero_grad() end
  schedule:step()
  if i == steps // 2 then -- weights that were cast outside are cast anew inside
    local _ <close> = accel.no_grad()
    local _ <close> = accel.autocast { enabled = dtype ~= "f32" }
    model(tokens:narrow(2, 1, 8):contiguous())
  end
end
for _, loss in ipairs(losses) do io.write(("%.17g "):format(loss:item())) end
for name, p in model:named_parameters() do io.write(("%s %.17g "):format(name, p:detach():double():sum():item())) end
print(("%.17g %s"):format(opt.param_groups[1].lr, scaler:get_scale()))
if how == "graph" then
  io.stderr:write(("recorded %d replays %d %s\n"):format(call.recorded, call.replays, call.reason or ""))
end
]]
local script <close> = temporary(TRAIN)
local log <close> = temporary ""

local STEPS <const> = 12
for _, case in ipairs { "f32 12 %s adamw last", "f32 12 %s sgd first", "bf16 12 %s adamw outside", "f16 12 %s adamw last" } do
  local function train(how)
    return suite.output(("env -u ACCEL_DEVICE CUDA_TWIN_GRAPHS=%s %s --device cuda %s %s"):format(log.path, run, script.path, case:format(how)))
  end
  local plain, ok = train "plain"
  assert(ok, plain)
  local text, good = train "graph"
  assert(good, text)
  local told = assert(text:match "recorded [^\n]*\n", text)
  text = text:gsub("recorded [^\n]*\n", "")
  assert(text == plain, ("%s: other bits\n%s\n%s%s"):format(case, plain, text, told))
  assert(told:find(("recorded 1 replays %d \n"):format(STEPS - 3)), told)
  if case:find "f16" and not case:find "bf16" then
    assert(tonumber(text:match "(%S+)%s*$") < 2 ^ 22, "no step was left out: " .. text)
  end
  if suite.emulated then
    local f <close> = assert(io.open(log.path))
    local lines = f:read "a"
    assert(lines:find "^graph 1 kernels %d+ copies %d+ fills %d+ same\n", ("%s: %s"):format(case, lines))
    local _, runs = lines:gsub("run 1 of %d+\n", "")
    assert(runs == STEPS - 2 and lines:find(("run 1 of %d\n$"):format(runs)), ("%s: %s"):format(case, lines))
  end
end

-- An Accelerator in fp16: its optimizer leaves steps out on the device, counts them there, and its schedule, outside, goes by these counts.
do
  local accelerated <close> = temporary [[
local accel = require "accel"
local a = accel.Accelerator { mixed_precision = "fp16", kwargs_handlers = { accel.GradScalerKwargs { init_scale = 2.0 ^ 22, growth_interval = 3 } } }
accel.manual_seed(7)
local model = accel.models.GPT2 { vocab_size = 61, n_positions = 8, n_embd = 16, n_layer = 1, n_head = 2, resid_pdrop = 0.1 }
local opt = accel.optim.AdamW(model:parameters(), { lr = 3e-3 })
local schedule = accel.optim.lr_scheduler.CosineAnnealingLR(opt, 12)
model, opt, schedule = a:prepare(model, opt, schedule)
local function step(x)
  local loss = model(x, { labels = x })
  a:backward(loss)
  local norm = a:clip_grad_norm_(model:parameters(), 1.0)
  opt:step()
  opt:zero_grad()
  return loss, norm
end
local call, generator = arg[1] == "graph" and accel.graph(step) or step, accel.Generator(3)
for i = 1, 12 do
  local loss, norm = call(accel.randint(0, 61, { 3, 8 }, { generator = generator, device = "cpu" }):to(a.device))
  schedule:step()
  print(loss:item(), norm:item(), opt.param_groups[1].lr, opt.step_was_skipped, opt.applied, opt.skipped)
  if i == 8 then a:save_state(arg[2]) end
  if i == 10 then a:load_state(arg[2]) end -- counts go on from there
end
print(opt.applied, opt.skipped, a.scaler:get_scale())
if arg[1] == "graph" then io.stderr:write(("recorded %d %s\n"):format(call.recorded, call.reason or "")) end
]]
  local folder = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/graph_state"
  local function train(how)
    os.execute(("rm -rf '%s'"):format(folder))
    return suite.output(("env -u ACCEL_DEVICE %s --device cuda %s %s '%s'"):format(run, accelerated.path, how, folder))
  end
  local plain, ok = train "plain"
  local text, good = train "graph"
  assert(ok and good, plain .. text)
  local told = assert(text:match "recorded [^\n]*\n", text)
  assert(told:match "recorded [12] \n", told)
  local function numbers(t) return (t:gsub("recorded [^\n]*\n", ""):gsub("%-nan", "nan"):gsub("%s+", " ")) end
  assert(numbers(text) == numbers(plain), plain .. text)
  assert(plain:find "true" and plain:find "false", "no step was left out, or all were")
end

-- ---- in this process ----
local cuda = "cuda"
local warned = {}
local function fresh(fn)
  local w = accel.ones({ 3 }, { device = cuda, requires_grad = true })
  local opt = accel.optim.SGD({ w }, { lr = 0.5 })
  local step = accel.graph(function(x) return fn(w, opt, x) end)
  return step, w, opt
end
local function train(w, opt, x)
  local loss = (w * x):sum()
  loss:backward()
  opt:step()
  opt:zero_grad()
  return loss
end
local function ones(n) return accel.ones({ n or 3 }, { device = cuda }) end
local _warn = warn
warn = function(text) warned[#warned + 1] = text end -- luacheck: ignore

-- Every set of shapes is recorded for itself; results are copies.
do
  local step, w = fresh(train)
  local kept, want = {}, 3.0
  for i = 1, 12 do
    kept[i] = step(i % 2 == 0 and ones() or accel.ones({ 1 }, { device = cuda }))
    want = want - 1.5
  end
  for i, loss in ipairs(kept) do assert(loss:item() == 3 - 1.5 * (i - 1), i) end
  assert(w:sum():item() == want - 0.0 and step.recorded == 2 and step.replays == 6 and step.reason == nil, tostring(step))
  assert(not kept[12].requires_grad and #warned == 0)
end

-- A rate that changes by hand, weight decay that changes: the first is in device memory, the second asks for another recording.
do
  local step, w, opt = fresh(train)
  for i = 1, 10 do
    opt.param_groups[1].lr = 1 / i
    if i == 6 then opt.param_groups[1].weight_decay = 0.25 end
    step(ones())
  end
  local v = 1.0
  for i = 1, 10 do v = v - (1 / i) * (1 + (i >= 6 and 0.25 or 0) * v) end
  assert(math.abs(w:mean():item() - v) < 1e-5 and step.recorded == 2, w:mean():item() - v)
end

-- States that are loaded, parameters that cease to learn and learn again.
local function copied(value)
  if accel.is_tensor(value) then return value:clone() end
  if type(value) ~= "table" then return value end
  local out = {}
  for name, each in next, value do out[name] = copied(each) end
  return out
end
for _, what in ipairs { "nothing", "load", "freeze" } do
  local function losses(how)
    accel.manual_seed(2)
    local model = accel.nn.Linear(4, 4):to(cuda)
    local opt = accel.optim.AdamW(model:parameters(), { lr = 0.1 })
    local step = function(x)
      local loss = model(x):square():mean()
      loss:backward()
      opt:step()
      opt:zero_grad()
      return loss
    end
    if how == "graph" then step = accel.graph(step) end
    local x, list, saved = accel.arange(8, { device = cuda }):to "f32":view { 2, 4 } * 0.1, {}, nil
    for i = 1, 12 do
      if i == 5 then saved = copied(opt:state_dict()) end
      if what == "load" and i == 8 then opt:load_state_dict(saved) end
      if what == "freeze" and (i == 6 or i == 10) then model.bias:requires_grad_(i == 10) end
      list[i] = ("%.17g"):format(step(x):item())
    end
    return table.concat(list, " "), step
  end
  local want, _ = losses "plain"
  local got, graph = losses "graph"
  assert(got == want, ("%s: %s\n%s\n%s"):format(what, want, got, tostring(graph)))
  assert(graph.recorded == ({ nothing = 1, load = 2, freeze = 3 })[what] and graph.replays > 2, what .. ": " .. tostring(graph))
end

-- Gradients that stay: they are there after a replay, and accumulate.
do
  local step, w = fresh(function(w, _, x)
    local loss = (w * x):sum()
    loss:backward()
    return loss
  end)
  for i = 1, 8 do
    step(ones())
    assert(w.grad and w.grad:sum():item() == 3 * i, i)
  end
  assert(step.recorded >= 1 and step.replays > 0, tostring(step))
  for _ = 1, 3 do
    w.grad = nil
    step(ones())
    assert(w.grad:sum():item() == 3)
  end
end

-- Other seeds, draws outside: dropout goes on as without it.
do
  local function losses(call)
    accel.manual_seed(5)
    local list = {}
    for i = 1, 10 do
      if i == 7 then accel.manual_seed(6) end
      if i % 3 == 0 then accel.rand({ 2 }, { device = cuda }) end
      list[i] = call(ones(64)):item()
    end
    return table.concat(list, " ")
  end
  local function step(x)
    local y = accel.dropout(x, 0.5):sum()
    accel.step()
    return y
  end
  local graph = accel.graph(step)
  local want, got = losses(step), losses(graph)
  assert(want == got and graph.replays > 0 and not graph.reason, want .. "\n" .. got .. "\n" .. tostring(graph))
end

-- Tensors that are made of the host's numbers inside are made anew by every replay.
do
  local step, w = fresh(function(w, opt, x)
    return train(w, opt, x * accel.tensor({ 1.0, 2, 3 }, { device = cuda }) + accel.arange(3, { device = cuda }))
  end)
  for _ = 1, 6 do step(ones()) end
  assert(accel.equal(w:to "cpu", accel.tensor { 1 - 3.0, 1 - 9, 1 - 15 }) and step.replays == 3, tostring(step))
end

-- What cannot be recorded.
local function refused(words, fn, ...)
  local n = #warned
  local step, w = fresh(fn)
  local other, v = nil, accel.ones({ 3 }, { device = cuda, requires_grad = true })
  local plain_opt = accel.optim.SGD({ v }, { lr = 0.5 })
  other = function(x) return fn(v, plain_opt, x) end
  for _ = 1, 5 do
    step(...)
    other(...)
  end
  assert(accel.equal(w, v), words .. ": other weights")
  assert(step.reason and step.reason:find(words, 1, true), ("%s: %s"):format(words, step.reason))
  assert(#warned == n + 1 and warned[n + 1]:find(words, 1, true), "one warning")
end
refused("item()", function(w, opt, x)
  local loss = train(w, opt, x)
  loss:item()
  return loss
end, ones())
refused("a tensor of the CPU", (function()
  local there = accel.tensor({ 1.0, 2, 3 }, { device = "cpu" })
  return function(w, opt, x) return train(w, opt, x * there:to(cuda)) end
end)(), ones())
refused("runs on the cpu", function(w, opt, x)
  local _ = accel.ones(3, { device = "cpu" }) + 1
  return train(w, opt, x)
end, ones())
refused("generator of its own", (function()
  local g = accel.Generator(1)
  return function(w, opt, x)
    return train(w, opt, x + accel.rand({ 3 }, { device = cuda, generator = g }) * 0)
  end
end)(), ones())
refused("the host waits", function(w, opt, x)
  accel.synchronize(cuda)
  return train(w, opt, x)
end, ones())
do
  local n = #warned
  local step = accel.graph(function(x) return x + 1 end)
  assert(step(accel.ones(2, { device = "cpu" })):sum():item() == 4 and step.reason:find("cpu records no steps", 1, true) and #warned == n + 1)
  local picky = accel.graph(function(x) return x:sum() end, { shapes = 2 })
  for i = 1, 3 do assert(picky(ones(i)):item() == i) end
  assert(picky.reason:find "more than 2 sets of argument shapes")
  -- arguments that look alike are not the same: models of one shape, numbers of the same 14 digits, objects of one address after another
  local models = { accel.nn.Linear(3, 2), accel.nn.Linear(3, 2) }
  for _, model in ipairs(models) do model:to(cuda) end
  local both = accel.graph(function(model, x) return model(x):sum() end)
  local exact = accel.graph(function(x, k) return x * k end)
  local one, object = accel.ones({ 1 }, { device = cuda, dtype = "f64" }), {}
  object.__index = object
  local fresh_ones = accel.graph(function(o) return o.x * 1 end, { shapes = 100 })
  for i = 1, 10 do
    local model, k = models[i % 2 + 1], i % 2 == 0 and 0.3 or 0.1 + 0.2
    assert(both(model, ones()):item() == model(ones()):sum():item() and exact(one, k):item() == k, i)
    for _ = 1, 5 do assert(fresh_ones(setmetatable({ x = one * i }, object)):item() == i, i) end
    collectgarbage()
  end
  assert(both.recorded == 2 and exact.recorded == 2 and both.replays + exact.replays == 8, tostring(both) .. tostring(exact))
  local counter, total = accel.graph(function(x) return x:add_(1):sum() end), ones()
  for i = 1, 5 do assert(counter(total):item() == 3 * (i + 1), i) end
  assert(total:sum():item() == 18 and counter.reason:find "an argument is written in place", tostring(counter))
  local moody = accel.graph(function(x, k) return x * k end)
  assert(moody(ones(), 2):sum():item() == 6 and moody(ones(), 3):sum():item() == 9)
end
-- A scheduler inside; errors of the function are its own.
do
  local n = #warned
  local w = accel.ones({ 3 }, { device = cuda, requires_grad = true })
  local opt = accel.optim.SGD({ w }, { lr = 0.5 })
  local schedule = accel.optim.lr_scheduler.StepLR(opt, 1, 0.5)
  local step = accel.graph(function(x)
    train(w, opt, x)
    schedule:step()
  end)
  for _ = 1, 4 do step(ones()) end
  assert(step.reason:find "a scheduler steps" and #warned == n + 1 and math.abs(w[1]:item() - 0.0625) < 1e-6)
  local calls = 0
  local broken = accel.graph(function(x)
    calls = calls + 1
    if calls == 3 then error "mine" end
    return train(w, opt, x)
  end)
  for i = 1, 5 do
    local ok, message = pcall(broken, ones())
    assert(ok == (i ~= 3) and (ok or tostring(message):find "mine"), i)
  end
  assert(broken.recorded == 1 and not broken.reason and opt._steps == 8, tostring(broken))
end
warn = _warn -- luacheck: ignore
suite.finish()
