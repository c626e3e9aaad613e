-- Accelerator { memory = "low" }: bits of the same parts put together by hand, losses near those of the normal step, the peak of memory,
-- checkpoints, and every call or setting that needs the gradients which the backward has consumed.
--   accel-run tests/stdlib/accelerator/low_memory_test.lua
local accel = require "accel"
local folder = os.getenv "ACCEL_TEST_TMP" or os.tmpname() .. ".d"

local CONFIG <const> = { vocab_size = 128, n_positions = 32, n_embd = 64, n_layer = 3, n_head = 2, resid_pdrop = 0.1, embd_pdrop = 0,
  attn_pdrop = 0 }
local B <const>, T <const> = 4, 32

-- What went to stderr while fn ran: warnings of an Accelerator.
local function warnings(fn)
  local list, real = {}, accel.Accelerator._warn
  rawset(accel.Accelerator, "_warn", function(_, text) list[#list + 1] = text end)
  local ok, err = pcall(fn, list)
  rawset(accel.Accelerator, "_warn", real)
  if not ok then error(err, 0) end
  return table.concat(list, "\n")
end

local function raises(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("expected '%s', got: %s"):format(pattern, tostring(err)))
end

accel.manual_seed(7)
local DATA <const> = accel.randint(0, 128, { 4, B, T })

local function begin(opts, how)
  accel.AcceleratorState._reset_state(true)
  accel.manual_seed(1)
  local a = accel.Accelerator(opts)
  local model = accel.models.GPT2(how.config or CONFIG)
  if how.recompute then model:gradient_checkpointing_enable() end
  local params = model:parameters()
  local optimizer = how.optimizer and how.optimizer(params) or accel.optim.AdamW({ { params = params } }, { lr = 1e-2, weight_decay = 0.1 })
  local schedule = accel.optim.lr_scheduler.LinearLR(optimizer, { start_factor = 0.1, total_iters = 4 })
  local m, o, s = a:prepare(model, optimizer, schedule)
  return { a = a, model = m, optimizer = o, schedule = s, raw = optimizer, params = params, losses = {} }
end

-- Steps from first to last of what begin made.
local function go(run, first, last, how)
  for i = first, last do
    run.a:accumulate(run.model, function()
      local x = DATA[i % 4 + 1]
      local loss = run.model(x, { labels = x })
      run.a:backward(loss, how.backward)
      if how.clip then run.a:clip_grad_norm_(run.params, how.clip) end
      run.optimizer:step()
      run.schedule:step()
      run.optimizer:zero_grad()
      run.losses[#run.losses + 1] = loss:item()
    end)
  end
  return run
end

local function train(opts, how, steps) return go(begin(opts, how or {}), 1, steps or 6, how or {}) end

local function same(one, other, what)
  for i, loss in ipairs(one.losses) do
    assert(loss == other.losses[i], ("%s: step %d, losses %.9g and %.9g"):format(what, i, loss, other.losses[i]))
  end
  for i, p in ipairs(one.params) do assert(accel.equal(p, other.params[i]), ("%s: parameter %d differs"):format(what, i)) end
end

local function by_hand(params) return accel.optim.AdamW8bit({ { params = params } }, { lr = 1e-2, weight_decay = 0.1 }) end

-- ---- numbers ----
local hand = train({}, { optimizer = by_hand, recompute = true })
local low, text
text = warnings(function() low = train { memory = "low" } end)
assert(text == "", text)
same(low, hand, "low against parts put together by hand")
same(train { memory = "reduced" }, hand, "reduced")
for _, p in ipairs(low.params) do assert(p.grad == nil) end
assert(low.raw == low.optimizer.optimizer and low.optimizer.applied == 6 and low.a.step == 6 and low.schedule:get_last_lr()[1] == 1e-2)
assert(low.raw.state[low.params[1]].state1.dtype == "u8")
local bf16 = { mixed_precision = "bf16" }
same(train { memory = "low", mixed_precision = "bf16" }, train(bf16, { optimizer = by_hand, recompute = true }), "bf16")
same(train({ memory = "reduced" }, { clip = 0.1 }), train({}, { optimizer = by_hand, recompute = true, clip = 0.1 }), "clipping")

-- The documented bound against AdamW with states of 32 bits.
local normal, long = train({}, {}, 24), train({ memory = "low" }, {}, 24)
local most = 0
for i, loss in ipairs(normal.losses) do most = math.max(most, math.abs(long.losses[i] - loss) / loss) end
assert(most > 0 and most < 0.02, ("losses differ by %g of the normal step's"):format(most))
assert(normal.losses[24] < 0.8 * normal.losses[1], "the model does not learn")

-- ---- memory ----
do
  local big = { vocab_size = 256, n_positions = 32, n_embd = 256, n_layer = 6, n_head = 4, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 }
  local function peak(opts)
    local run = go(begin(opts, { config = big }), 1, 1, {})
    accel.collect()
    accel.reset_peak_memory()
    local before = accel.mem_stats().live_bytes
    go(run, 2, 3, {})
    return accel.mem_stats().peak_bytes - before
  end
  local parts = { peak {}, peak { memory = "reduced" }, peak { memory = "low" } }
  -- beside parameters and states, a step needs activations and gradients, without activations gradients, or few of either
  assert(parts[2] < 0.75 * parts[1] and parts[3] < 0.5 * parts[2], ("peaks: %d %d %d"):format(table.unpack(parts)))
end

-- ---- models that are not accel.models' ----
do
  local nn, calls = accel.nn, 0
  local Block, Net = nn.Module:extend "Block", nn.Module:extend "Net"
  function Block:init() self.linear = nn.Linear(8, 8) end
  function Block:forward(x)
    calls = calls + 1
    return self.linear(x):tanh()
  end
  function Net:init() self.blocks = nn.ModuleList { Block(), Block() } end
  function Net:forward(x)
    for _, block in ipairs(self.blocks) do x = block(x) end
    return x
  end
  accel.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { memory = "low" }
  local net = a:prepare(Net())
  net:forward(accel.ones(2, 8)):sum():backward()
  assert(calls == 4, calls)
  net:eval()
  net(accel.ones(2, 8))
  assert(calls == 6, calls)
  assert(warnings(function() a:prepare(nn.Linear(2, 2)) end):find "neither gradient_checkpointing_enable nor a ModuleList")
end

-- ---- calls that need the gradients ----
do
  local run = begin({ memory = "low" }, {})
  local x = DATA[1]
  local function backward() run.a:backward(run.model(x, { labels = x })) end
  backward()
  raises('clip_grad_norm_: memory = "low" has stepped', run.a.clip_grad_norm_, run.a, run.params, 1)
  raises('clip_grad_value_: memory = "low" has stepped', run.a.clip_grad_value_, run.a, run.params, 1)
  raises('unscale_gradients: memory = "low" has stepped', run.a.unscale_gradients, run.a)
  raises("clip_grad_norm_: the Accelerator's memory", accel.nn.utils.clip_grad_norm_, run.params, 1)
  raises("the first backward of this update has stepped", backward)
  raises("save_state: ", run.a.save_state, run.a, folder .. "/never")
  run.optimizer:step()
  assert(accel.nn.utils.clip_grad_norm_(run.params, 1):item() == 0)
  backward()
end

-- ---- settings under which gradients stay, with one message, and the numbers of "reduced" ----
local function stays(what, opts, how)
  local with, other = { memory = "low" }, { memory = "reduced" }
  for key, value in next, opts do with[key], other[key] = value, value end
  local got
  local said = warnings(function() got = train(with, how) end)
  assert(said:find("gradients stay until optimizer:step(): ", 1, true) and said:find(what, 1, true), said)
  same(got, train(other, how), what)
end
stays("accumulate", { gradient_accumulation_steps = 2 })
stays("a weight", {}, { backward = { weight = 3 } })
stays("retain_graph", {}, { backward = { retain_graph = false, create_graph = true } })
stays("AdamW8bit steps on all", {}, { optimizer = function(params)
  local made = by_hand(params)
  rawset(made, "step", function(self, ...) return getmetatable(self).step(self, ...) end)
  return made
end })
do
  local run = begin({ memory = "low" }, {})
  assert(warnings(function()
    run.a:prepare(accel.optim.SGD({ accel.ones(1, { requires_grad = true }) }, { lr = 1 }))
    go(run, 1, 1, {})
  end):find "2 optimizers are prepared")
end
accel.AcceleratorState._reset_state(true)
raises("does not support fp16", accel.Accelerator, { memory = "low", mixed_precision = "fp16" })
accel.AcceleratorState._reset_state(true)
same(train { memory = "reduced", mixed_precision = "fp16" }, train({ mixed_precision = "fp16" }, { optimizer = by_hand, recompute = true }),
  "fp16")
raises("memory must be", accel.Accelerator, { memory = "least" })

-- ---- optimizers that keep their states ----
for reason, make in accel.pairs {
  ["SGD has no form of 8 bits"] = function(params) return accel.optim.SGD(params, { lr = 1e-2, momentum = 0.9 }) end,
  ["Adam8bit decays weights"] = function(params) return accel.optim.Adam(params, { lr = 1e-3, weight_decay = 0.1 }) end,
  ["no amsgrad"] = function(params) return accel.optim.AdamW(params, { amsgrad = true }) end,
} do
  local got
  local said = warnings(function() got = train({ memory = "low" }, { optimizer = make }) end)
  assert(said:find(reason, 1, true) and not said:find "gradients stay", said)
  same(got, train({}, { optimizer = make, recompute = true }), reason)
end
do -- parameters of bf16 have no copy in f32
  local p = accel.ones({ 64, 64 }, { dtype = "bf16", requires_grad = true })
  accel.AcceleratorState._reset_state(true)
  local o = accel.Accelerator { memory = "low" }:prepare(accel.optim.Lion({ p }, { lr = 1e-3 }))
  assert(o.param_groups[1].stochastic_rounding and tostring(o.optimizer):find "Lion8bit")
end

-- ---- checkpoints ----
do
  local straight, half = train({ memory = "low" }, {}, 6), train({ memory = "low" }, {}, 3)
  half.a:save_state(folder .. "/half")
  local rest = begin({ memory = "low" }, {})
  rest.a:load_state(folder .. "/half")
  go(rest, 4, 6, {})
  table.move(rest.losses, 1, 3, 4)
  table.move(half.losses, 1, 3, 1, rest.losses)
  same(straight, rest, "resumed")
  local wide = train({}, {}, 2)
  wide.a:save_state(folder .. "/wide")
  local other = begin({ memory = "low" }, {})
  raises("stored as accel.optim.AdamW, here it is accel.optim.AdamW8bit", other.a.load_state, other.a, folder .. "/wide")
end
print "ok"
