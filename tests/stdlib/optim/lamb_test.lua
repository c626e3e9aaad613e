-- optim.Lamb: its rule in f64, written out beside it, on one rank and on pieces of a sharded model; bounds of the ratio, a norm
-- that is zero, maximize, saving; as "Lamb" of a DeepSpeed configuration.
--   accel-run tests/stdlib/optim/lamb_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local nn, Lamb = accel.nn, accel.optim.Lamb

if ranks.start { 1, 2, 3 } then
  dofile(here .. "../../support/machines.lua").run(2, 1)
  return
end

--- The rule, number by number; state: {m, v} lists.
local function reference(p, g, state, t, o)
  local w, d, u = 0, 0, {}
  for i = 1, #p do
    local gi = o.maximize and -g[i] or g[i]
    state.m[i] = o.b1 * (state.m[i] or 0) + (1 - o.b1) * gi
    state.v[i] = o.b2 * (state.v[i] or 0) + (1 - o.b2) * gi * gi
    u[i] = state.m[i] / (math.sqrt(state.v[i]) + o.eps) + o.decay * p[i]
    w, d = w + p[i] ^ 2, d + u[i] ^ 2
  end
  local r = w > 0 and d > 0 and math.max(o.min, math.min(o.max, math.sqrt(w / d))) or 1
  local size = o.lr * math.sqrt(1 - o.b2 ^ t) / (1 - o.b1 ^ t)
  for i = 1, #p do p[i] = p[i] - size * r * u[i] end
end

for _, case in ipairs {
  { lr = 0.05, decay = 0.1, max = 10, min = 0.01 }, { lr = 0.1, decay = 0, max = 0.2, min = 0.01 },
  { lr = 0.1, decay = 0, max = 10, min = 3, maximize = true }, { lr = 0.1, decay = 0.3, max = 10, min = 0.01, zero = true },
} do
  case.b1, case.b2, case.eps = 0.8, 0.95, 1e-6
  local start = case.zero and { 0, 0, 0 } or { 0.5, -1.5, 2 }
  local p, want, state = accel.tensor(start, { dtype = "f64" }), table.move(start, 1, 3, 1, {}), { m = {}, v = {} }
  local o = { lr = case.lr, betas = { 0.8, 0.95 }, eps = 1e-6, weight_decay = case.decay, max_coeff = case.max + 0.0, min_coeff = case.min + 0.0,
    maximize = case.maximize or false }
  local optimizer = Lamb({ p }, o)
  for t = 1, 7 do
    local g = { math.sin(t), math.cos(2 * t), 0.1 * t }
    p.grad = accel.tensor(g, { dtype = "f64" })
    optimizer:step()
    reference(want, g, state, t, case)
    for i = 1, 3 do assert(math.abs(p[i]:item() - want[i]) < 1e-12, ("%d %d: %.17g, not %.17g"):format(t, i, p[i]:item(), want[i])) end
    if t == 4 then
      local saved = optimizer:state_dict()
      optimizer = Lamb({ p }, o)
      optimizer:load_state_dict(saved)
    end
  end
end
ranks.fails("min_coeff must not be above max_coeff", Lamb, { accel.ones(1) }, { min_coeff = 2.0, max_coeff = 1.0 })

do -- under a configuration, at every stage
  local function train(stage)
    accel.AcceleratorState._reset_state(true)
    local a = accel.Accelerator { deepspeed_plugin = stage and accel.DeepSpeedPlugin { hf_ds_config = {
      zero_optimization = { stage = stage, stage3_param_persistence_threshold = 0, stage3_gather_16bit_weights_on_model_save = true },
      optimizer = { type = "Lamb", params = { lr = 0.02, weight_decay = 0.01, max_coeff = 5.0, bias_correction = true } },
    } } or nil }
    accel.manual_seed(4)
    local net, losses = nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 3)), {}
    local optimizer = stage and accel.DummyOptim(net:parameters())
      or Lamb(net:parameters(), { lr = 0.02, weight_decay = 0.01, max_coeff = 5.0 })
    local model
    model, optimizer = a:prepare(net, optimizer)
    for s = 1, 8 do
      local x = accel.randn(4, 6, { generator = accel.Generator(s * 8 + a.process_index) })
      local loss = model(x):pow(2):mean()
      a:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
      losses[s] = loss:item()
    end
    return losses
  end
  local want = train()
  for stage = 0, 3 do
    for s, loss in ipairs(train(stage)) do
      assert(math.abs(loss - want[s]) < 2e-6 * math.max(1, want[s]), ("stage %d, step %d: %.9g, not %.9g"):format(stage, s, loss, want[s]))
    end
  end
  accel.AcceleratorState._reset_state(true)
end
