--- Training in fp8 under an Accelerator: losses near those of bf16, evaluation, recompute, checkpoints that go on bit for bit, states of
--- optimizers in 8 bits, two ranks.
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local gpt = dofile(ranks.tests .. "stdlib/fp8/gpt.lua")
local A, nn = accel.accelerator, accel.nn
local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/fp8"

local function says(text, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(text, 1, true), ("expected '%s', got %s"):format(text, tostring(err)))
end
local function same(a, b, what)
  for i = 1, #a do assert(a[i] == b[i], ("%s: step %d: %.9g and %.9g"):format(what, i, a[i], b[i])) end
end

local function scales_of(steps)
  local _, a = gpt { steps = steps, precision = "fp8", recipe = A.TERecipeKwargs { amax_history_len = 4 }, width = 32, layers = 1 }
  return require "accel.accelerator.recipes".stateful(a)[1]:state_dict(), a
end
if ranks.launched then
  -- amax is that of all ranks: scales are the same everywhere
  local state, a = scales_of(4)
  for _, name in ipairs { "scale_fwd", "scale_bwd", "history_fwd", "history_bwd" } do
    local all = a:gather(state[name]:reshape(1, -1))
    for r = 1, a.num_processes do assert(accel.equal(all[r], state[name]:reshape(-1)), name) end
  end
  local first = scales_of(1).scale_fwd:tolist()
  for i, v in ipairs(first) do first[i] = ("%a"):format(v) end
  if a.is_main_process then print(table.concat(first, " ")) end
  -- parameters cut over ranks: the same losses as whole ones
  local function losses(opts)
    return (gpt { steps = 3, precision = "fp8", recipe = A.TERecipeKwargs { amax_history_len = 4 }, width = 32, layers = 1, opts = opts })
  end
  local whole, cut = losses(), losses { fsdp_plugin = accel.FullyShardedDataParallelPlugin {} }
  for i, loss in ipairs(whole) do assert(math.abs(cut[i] / loss - 1) < 1e-6, ("step %d: %.9g and %.9g"):format(i, cut[i], loss)) end
  -- a rank without data does not hold up the others: amax is each rank's own then
  local b = accel.Accelerator { mixed_precision = "fp8", kwargs_handlers = { A.TERecipeKwargs {} } }
  local model = b:prepare(nn.Sequential(nn.Linear(16, 32)))
  b:join_uneven_inputs({ model }, nil, function()
    for _ = 1, b.is_main_process and 4 or 2 do b:backward(model(accel.randn(4, 16)):square():mean()) end
  end)
  assert(require "accel.accelerator.recipes".stateful(b)[1].updates == (b.is_main_process and 3 or 1))
  return
end

-- ---- losses ----
local function tail(losses) return (losses[#losses] + losses[#losses - 1] + losses[#losses - 2] + losses[#losses - 3]) / 4 end
local bf16 = gpt { steps = 50, precision = "bf16", width = 64, layers = 2 }
assert(tail(bf16) < 0.5 * bf16[1])
for _, recipe in ipairs { A.TERecipeKwargs { amax_history_len = 16, amax_compute_algo = "max" }, A.AORecipeKwargs {}, A.MSAMPRecipeKwargs {},
  A.TERecipeKwargs { use_mxfp8_block_scaling = true }, A.AORecipeKwargs { config = "rowwise" },
  A.AORecipeKwargs { config = { recipe_name = "rowwise_with_gw_hp" } } } do
  local fp8, a = gpt { steps = 50, precision = "fp8", recipe = recipe, width = 64, layers = 2 }
  assert(fp8[5] ~= bf16[5] and math.abs(tail(fp8) / tail(bf16) - 1) < 0.03,
    ("%s: %g, in bf16 %g"):format(a.fp8_backend, tail(fp8), tail(bf16)))
end

-- ---- a checkpoint goes on bit for bit, also from a step before which scales had not moved yet ----
local function settings(recipe, more)
  local o = { steps = 12, precision = "fp8", recipe = recipe, width = 32, layers = 1 }
  for key, value in accel.pairs(more or {}) do o[key] = value end
  return o
end
for i, recipe in ipairs { A.TERecipeKwargs { amax_history_len = 3, interval = 2 }, A.MSAMPRecipeKwargs {} } do
  local folder = tmp .. i
  os.execute(("rm -rf '%s'"):format(folder))
  local whole = gpt(settings(recipe, { seen = function(step, _, a) if step == 6 then a:save_state(folder) end end }))
  -- batches go by the number of the step: what came before the second load does not count
  local again = gpt(settings(recipe, { seen = function(step, _, a)
    if step == 2 or step == 6 then a:load_state(folder) end
  end }))
  same({ table.unpack(again, 7, 12) }, { table.unpack(whole, 7, 12) }, "from a checkpoint")
end

-- what is stored and what is here have to be of one kind
local te = A.TERecipeKwargs { amax_history_len = 3 }
says("the checkpoint has fp8 scales, this run has none", gpt, { steps = 1, precision = "bf16", width = 32, layers = 1,
  seen = function(_, _, a) a:load_state(tmp .. 1) end })
says("this run has fp8 scales, the checkpoint has none", gpt, { steps = 1, precision = "fp8", recipe = te, width = 32, layers = 1,
  seen = function(_, _, a) a:load_state(tmp .. 2) end })
-- a history of another length is cut
gpt { steps = 2, precision = "fp8", recipe = A.TERecipeKwargs { amax_history_len = 2 }, width = 32, layers = 1,
  seen = function(_, _, a) a:load_state(tmp .. 1) end }

-- ---- MS-AMP's level O2: states of 8 and 16 bits ----
do
  local _, _, model, optimizer = gpt(settings(A.MSAMPRecipeKwargs {}))
  local state = optimizer.state[model:parameters()[1]]
  assert(state.exp_avg.dtype == "f8_e4m3" and state.exp_avg_sq.dtype == "f16")
  local _, _, other, plain = gpt(settings(A.MSAMPRecipeKwargs { opt_level = "O1" }))
  assert(plain.state[other:parameters()[1]].exp_avg.dtype == "f32")
  says("keeps only states of Adam and AdamW", accel.fp8.compress_states, accel.optim.SGD(other:parameters(), { lr = 1 }))
  says("has already stepped", accel.fp8.compress_states, plain)
  -- two small gradients beside large ones, then none: the second moment that they leave vanishes in f16, the first does not
  local function path(compress)
    local p = accel.zeros(2, { requires_grad = true })
    local o = accel.optim.AdamW({ p }, { lr = 0.01, weight_decay = 0 })
    if compress then compress(o) end
    for step = 1, 320 do
      p.grad = accel.tensor { step % 2 == 0 and 1e3 or -1e3, step > 300 and step < 303 and 0.01 or 0.0 }
      o:step()
    end
    return p:tolist()[2]
  end
  local far, want = path(accel.fp8.compress_states), path()
  assert(far / want > 0.5 and far / want < 2, far / want)
end

-- ---- evaluation, overrides, recompute ----
local function block(recipe)
  accel.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { mixed_precision = "fp8", kwargs_handlers = { recipe } }
  accel.manual_seed(4)
  local model = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 48))
  return a:prepare(model), a, model
end
local function bf16_of(model, x)
  local _ <close> = accel.autocast()
  return accel.linear(accel.gelu(accel.linear(x, model[1].weight, model[1].bias)), model[3].weight, model[3].bias):to "f32"
end
accel.manual_seed(9)
local x = accel.randn(8, 32)
for _, during in ipairs { false, true } do
  local net, _, model = block(A.TERecipeKwargs { use_autocast_during_eval = during })
  assert(not accel.equal(net(x), bf16_of(model, x)))
  model:eval()
  local plain = accel.equal(accel.no_grad(function() return net(x) end), bf16_of(model, x))
  assert(plain == not during)
end
for part = 1, 3 do -- forward, input gradient, weight gradient: the others stay as they are in fp8
  local override = { false, false, false }
  override[part] = true
  local function run(recipe)
    local net, a, model = block(recipe)
    local leaf = x:clone()
    leaf.requires_grad = true
    local y = net(leaf)
    a:backward(y:square():sum())
    return { y:detach(), leaf.grad, model[3].weight.grad }, model
  end
  local got, model = run(A.TERecipeKwargs { override_linear_precision = override })
  local full = run(A.TERecipeKwargs {})
  assert(accel.equal(got[1], full[1]) == (part ~= 1))
  if part == 1 then assert(accel.allclose(got[1], bf16_of(model, x), { rtol = 0.02, atol = 0.02 })) end
  if part == 2 then assert(not accel.equal(got[2], full[2]) and accel.equal(got[3], full[3])) end
  if part == 3 then assert(accel.equal(got[2], full[2]) and not accel.equal(got[3], full[3])) end
end
do -- recompute meets the scales of its forward, and counts amax once
  local function run(f)
    local net, a, model = block(A.TERecipeKwargs { amax_history_len = 2 })
    local losses = {}
    for step = 1, 4 do
      local leaf = x * step
      leaf.requires_grad = true
      local y = f(net, leaf)
      a:backward(y:square():mean())
      losses[#losses + 1] = model[1].weight.grad:square():sum():item()
      for _, p in ipairs(model:parameters()) do p.grad = nil end
    end
    return losses
  end
  same(run(function(net, t) return accel.checkpoint(net, t) end), run(function(net, t) return net(t) end), "recomputed")
end

-- an evaluation between a checkpointed forward and its backward, in fp8 or not, changes neither what is computed again nor the scales after it
for _, in_fp8 in ipairs { false, true } do
  local function run(between, f)
    local net, a, model = block(A.TERecipeKwargs { amax_history_len = 2, use_autocast_during_eval = in_fp8 })
    local out = {}
    for step = 1, 4 do
      local leaf = x * step
      leaf.requires_grad = true
      local y = f(net, leaf)
      if between then
        local _ <close> = accel.no_grad()
        net:eval()
        local scaled = net(x * 3)
        assert(accel.equal(scaled, bf16_of(model, x * 3)) == not in_fp8)
        net:train()
      end
      a:backward(y:square():mean())
      out[#out + 1] = model[1].weight.grad:square():sum():item()
      out[#out + 1] = leaf.grad:square():sum():item()
      for _, p in ipairs(model:parameters()) do p.grad = nil end
    end
    local dict = require "accel.accelerator.recipes".stateful(a)[1]:state_dict()
    if not in_fp8 then -- an evaluation in fp8 takes down what it sees, too
      for _, v in ipairs(dict.scale_fwd:tolist()) do out[#out + 1] = v end
    end
    return out
  end
  local function checkpointed(net, t) return accel.checkpoint(net, t) end
  local function plain(net, t) return net(t) end
  same(run(true, checkpointed), run(true, plain), "recomputed after an evaluation")
  if not in_fp8 then same(run(true, checkpointed), run(false, plain), "evaluation leaves no trace") end
end

do -- a forward that could not begin leaves nothing behind
  local net, a = block(A.TERecipeKwargs { amax_history_len = 2 })
  local scaling = require "accel.accelerator.recipes".stateful(a)[1]
  a:backward(net(x):sum())
  local flush = scaling.flush
  scaling.flush = function() error "the ranks are gone" end
  says("the ranks are gone", net, x)
  scaling.flush = flush
  net(x)
  assert(scaling.updates == 1)
end

-- ---- no layer takes part: said once; a copy of a converted model computes without fp8 ----
do
  accel.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { mixed_precision = "fp8", kwargs_handlers = { te } }
  local said = {}
  a._warn = function(_, text) said[#said + 1] = text end
  a:prepare(nn.Sequential(nn.Linear(8, 8)))
  assert(#said == 1 and said[1]:find("no linear layer of accel.nn.Sequential qualifies", 1, true), said[1])
  local net, _, model = block(te)
  local copy = accel.deepcopy(model)
  assert(not accel.equal(net(x), bf16_of(model, x)) and not accel.fp8.has_fp8_layers(copy) and accel.fp8.has_fp8_layers(model))
end

-- ---- ranks: after a step of two ranks scales are those of the whole batch on one ----
local want = scales_of(1).scale_fwd:tolist()
for i, v in ipairs(want) do want[i] = ("%a"):format(v) end
assert(ranks.run(2, { capture = true }):find(table.concat(want, " "), 1, true))
