-- prepare: any order, any number of times, several models and optimizers; what it leaves alone; names, precision,
-- unwrapping, forgetting. The script starts itself on the ranks.
--   accel-run tests/stdlib/accelerator/prepare_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, nn, optim, data, dist = accel.accelerator, accel.nn, accel.optim, accel.data, accel.dist

if ranks.start { 1, 2, 4 } then return end
local R, P, fails = ranks.rank, ranks.size, ranks.fails

local function names(t)
  local list = {}
  for name in pairs(t) do list[#list + 1] = name end
  return table.concat(list, " ")
end
local function parts(seed)
  accel.manual_seed(seed or 3)
  local model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
  local sgd = optim.SGD(model:parameters(), { lr = 0.1 })
  local loader = data.DataLoader(data.TensorDataset(accel.randn(24, 4), accel.randn(24, 2)), { batch_size = 2, shuffle = true })
  return model, sgd, loader, optim.lr_scheduler.StepLR(sgd, 1, { gamma = 0.5 })
end

do -- order in, order out; a single object; strangers and nil; a second time
  local a = accel.Accelerator()
  local model, sgd, loader, schedule = parts()
  local was = names(model:state_dict())
  local stranger = {}
  local s, x, l, none, m, o, last = a:prepare(schedule, stranger, loader, nil, model, sgd, 7)
  assert(x == stranger and none == nil and last == 7)
  assert(s:get_last_lr()[1] == 0.1 and #l == 12 // P and nn.Module.is_module(m) and o.param_groups == sgd.param_groups)
  assert(names(m:state_dict()) == was and names(m:named_parameters()) == names(model:named_parameters()), "names change")
  case "names under wrapping"
  local s2, l2, m2, o2 = a:prepare(s, l, m, o)
  assert(s2 == s and l2 == l and m2 == m and o2 == o)
  local m3, o3, l3, s3 = a:prepare(model, sgd, loader, schedule)
  assert(m3 == m and o3 == o and l3 == l and s3 == s, "the raw object is wrapped twice")
  assert(a:prepare(m) == m and select("#", a:prepare(m)) == 1)
  assert(a:unwrap_model(m) == model and (m ~= model) == (P > 1))
  assert(select("#", a:prepare()) == 0)
  o:step()
  s:step()
  assert(s:get_last_lr()[1] == 0.05, "the schedule is not tied to the optimizer of the same call")
end

do -- a schedule prepared later finds its optimizer; one of an optimizer that is not prepared goes by all
  local a = accel.Accelerator()
  local model, sgd, _, schedule = parts()
  local other = optim.SGD({ accel.ones(1, { requires_grad = true }) }, { lr = 1 })
  local m, o = a:prepare(model, sgd)
  local s = a:prepare(schedule)
  assert(#s.optimizers == 1 and s.optimizers[1] == o)
  local t = a:prepare(optim.lr_scheduler.StepLR(other, 1))
  assert(#t.optimizers == 1 and t.optimizers[1] == o and m)
  local late = optim.lr_scheduler.StepLR(o, 1) -- made of the wrapper
  assert(a:prepare(late).optimizers[1] == o)
end

do -- the rest of an epoch, of a prepared loader or to be prepared
  local a = accel.Accelerator()
  local _, _, loader = parts()
  local rest = a:prepare(a:skip_first_batches(loader, 3))
  local l, n = a:prepare(loader), 0
  assert(#rest == 12 // P - 3 and #l == 12 // P)
  for _ in rest() do n = n + 1 end
  assert(n == 12 // P - 3 and #a:skip_first_batches(l, 1) == 12 // P - 1)
end

do -- device_placement
  local a = accel.Accelerator()
  local model, sgd = parts()
  fails("device_placement has 1 entries for 2 objects", a.prepare, a, model, sgd, { device_placement = { true } })
  local m = a:prepare(model, { device_placement = { false } })
  assert(a:unwrap_model(m) == model)
end

do -- two models, two optimizers: each its own
  local a = accel.Accelerator()
  local g, go = parts(1)
  local d, d_o = parts(2)
  local pg, pd, og, od = a:prepare(g, d, go, d_o)
  local x = accel.randn(3, 4) + R
  a:backward(pd(x):sum())
  assert(d:parameters()[1].grad and not g:parameters()[1].grad)
  local before = g:state_dict()["0.weight"]:clone()
  od:step()
  od:zero_grad()
  assert(accel.equal(g:state_dict()["0.weight"], before) and not d:parameters()[1].grad)
  a:backward((pg(x) - pd(x):detach()):pow(2):mean())
  og:step()
  assert(not accel.equal(g:state_dict()["0.weight"], before))
  local low = g:state_dict()["0.weight"]:clone()
  local high = low:clone()
  dist.all_reduce(low, { op = "min" })
  dist.all_reduce(high, { op = "max" })
  assert(accel.equal(low, high), "ranks have drifted apart")
end
case "several models and optimizers"

do -- evaluation_mode, frozen models: not wrapped
  local a = accel.Accelerator()
  local model = parts()
  assert(a:prepare_model(model, { evaluation_mode = true }) == model)
  local frozen = parts()
  frozen:requires_grad_(false)
  assert(a:prepare(frozen) == frozen)
  fails("expected a module, got 3", function() a:prepare_model(3) end)
  fails("expected an optimizer", function() a:prepare_optimizer {} end)
  fails("expected a schedule", function() a:prepare_scheduler {} end)
  fails("expected a DataLoader", function() a:prepare_data_loader {} end)
end

do -- handlers reach the wrapper
  local a = accel.Accelerator { kwargs_handlers = {
    A.DistributedDataParallelKwargs { find_unused_parameters = true, bucket_cap_mb = 1, comm_hook = "bf16" },
  } }
  local m = a:prepare((parts()))
  if P > 1 then assert(m.options.find_unused_parameters and m.options.bucket_cap_mb == 1 and m.reducer.hook) end
  A.AcceleratorState._reset_state()
  a = accel.Accelerator { kwargs_handlers = { A.DistributedDataParallelKwargs { gradient_as_bucket_view = false, static_graph = true } } }
  m = a:prepare((parts()))
  if P > 1 then assert(m.options.static_graph and m.options.gradient_as_bucket_view == false) end
  A.AcceleratorState._reset_state()
  a = accel.Accelerator { kwargs_handlers = { A.DistributedDataParallelKwargs { deterministic = "world" } } }
  m = a:prepare((parts()))
  assert(m.reducer and m.reducer.counter, "deterministic = 'world' is for one rank, too")
  a = accel.Accelerator {
    kwargs_handlers = { A.DistributedDataParallelKwargs { deterministic = "world" } },
    gradient_accumulation_plugin = A.GradientAccumulationPlugin { num_steps = 2, sync_each_batch = true },
  }
  fails("sync_each_batch", function() a:prepare((parts())) end)
end

for _, precision in ipairs { "bf16", "fp16" } do -- mixed precision
  A.AcceleratorState._reset_state()
  local a = accel.Accelerator { mixed_precision = precision }
  local model, sgd = parts()
  local inner
  local Probe = nn.Module:extend "Probe"
  function Probe:init(net) self.net = net end
  function Probe:forward(x)
    local y = self.net(x)
    inner = y.dtype
    return { y, more = { y } }, y, "text"
  end
  local half = A.Accelerator and ({ bf16 = "bf16", fp16 = "f16" })[precision]
  local m, o = a:prepare(Probe(model), sgd)
  local out, y, text = m(accel.ones(2, 4))
  assert(inner == half and out[1].dtype == "f32" and out.more[1].dtype == "f32" and y.dtype == "f32" and text == "text")
  a:backward(y:sum())
  assert(model:parameters()[1].grad.dtype == "f32" and o.step_was_skipped == false)
  a:autocast(function() assert(model(accel.ones(2, 4)).dtype == half) end)
  do
    local _ <close> = a:autocast()
    local _ <close> = a:autocast(A.AutocastKwargs { enabled = false })
    assert(model(accel.ones(2, 4)).dtype == "f32")
  end
  assert(model(accel.ones(2, 4)).dtype == "f32", "a part of the model outside of it is as it was")
  local raw = a:unwrap_model(m)
  assert(raw(accel.ones(2, 4)) and inner == half)
  raw = a:unwrap_model(m, false)
  assert(raw(accel.ones(2, 4)) and inner == "f32", "keep_fp32_wrapper = false")
  assert(names(a:get_state_dict(m)):find "net.0.weight")
  fails("unwrap_model: unknown option 'keep_fp32'", a.unwrap_model, a, m, { keep_fp32 = true })
  fails("unwrap_model: expected a module, got 3", a.unwrap_model, a, 3)
  for _ = 1, 3 do -- prepared anew: one wrapper, which comes off at once
    a:free_memory()
    m = a:prepare(raw)
    assert(m(accel.ones(2, 4))[1].dtype == "f32" and inner == half)
  end
  raw = a:unwrap_model(m, false)
  assert(raw(accel.ones(2, 4)) and inner == "f32", "prepared three times, unwrapped once")
  a:free_memory()
  a:prepare(raw)
  local mine = function() return "mine" end
  raw.forward = mine
  assert(a:unwrap_model(raw, false).forward == mine, "a forward that the script set since")
end

do -- free_memory
  A.AcceleratorState._reset_state()
  local a = accel.Accelerator { gradient_accumulation_steps = 2 }
  local model, sgd, loader, schedule = a:prepare(parts())
  a:accumulate(model, function() end)
  local gone = setmetatable({ model }, { __mode = "v" })
  model, sgd, loader, schedule = a:free_memory(model, sgd, loader, schedule)
  assert(model == nil and sgd == nil and loader == nil and schedule == nil and a.gradient_state.step == 0)
  collectgarbage()
  collectgarbage()
  assert(gone[1] == nil, "the model is still held")
  assert(select("#", a:clear(1, 2)) == 2)
end
case "memory between runs"

do -- a model that was dispatched: on several ranks only where ACCELERATE_BYPASS_DEVICE_MAP says so, and then as on one
  A.AcceleratorState._reset_state(true)
  local a = accel.Accelerator()
  local function trained(dispatched)
    accel.manual_seed(9)
    local model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    if dispatched then accel.dispatch_model(model, { ["0"] = 0, ["1"] = 0, ["2"] = "cpu" }) end
    local m, o = a:prepare(model, optim.SGD(model:parameters(), { lr = 0.1 }))
    for step = 1, 3 do
      a:backward(m(accel.full({ 2, 4 }, step + R + 0.5)):square():mean())
      o:step()
      o:zero_grad()
    end
    return m(accel.ones(1, 4)):tolist()
  end
  local want = trained(false)
  if P > 1 then fails("ACCELERATE_BYPASS_DEVICE_MAP=true", trained, true) end
  ranks.close(A.patch_environment({ accelerate_bypass_device_map = "true" }, trained, true), want, "a dispatched model", 1e-6)
  if P > 1 then
    fails("is not a truth value", function() A.patch_environment({ accelerate_bypass_device_map = "perhaps" }, trained, true) end)
  end
end
