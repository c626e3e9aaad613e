-- A model of 16 bits that trains in mixed precision under a plugin that shards: its losses and weights are, bit for bit, those of the same
-- values loaded in f32; frozen and quantised parameters keep their dtype; what is saved, gathered and loaded again is f32; one message
-- names the parameters. Without mixed precision DeepSpeed steps on f32, and FSDP and plain data parallelism on what they get. A checkpoint of 16 bits
-- is loaded into f32, and a checkpoint of f32 into 16 bits raises.
--   accel-run tests/stdlib/shard/upcast_test.lua
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn = accel.nn

--- One of n entries of a list, or all of them.
local function some(n, list)
  local take, taken = ranks.sample.one_of(n), {}
  for _, entry in ipairs(list) do taken[#taken + 1] = take() and entry or nil end
  return taken
end
local KINDS <const> = some(5, { "fsdp1", "fsdp2", "fsdp1 offload", "fsdp2 init", "zero0", "zero1", "zero2", "zero3", "zero2 offload",
  "zero3 init", "tp", "tp fsdp1", "megatron" })
local LATER <const> = some(3, { "fsdp2", "zero2", "tp" })
local OLD <const> = some(4, { "fsdp1", "fsdp2", "zero3", "tp" })
local INSIDE <const> = some(4, { { 1, true }, { 1, false }, { 2, true }, { 2, false } })

if not ranks.launched then
  local folder = os.getenv "ACCEL_TEST_TMP" or "/tmp"
  for _, n in ipairs { 1, 2 } do
    local _, err, status = ranks.try(n, { args = folder .. "/upcast" .. n })
    assert(status == 0, err)
    local _, times = err:gsub("16%-bit parameters train in f32", "")
    local cases = #INSIDE
    for _, list in ipairs { KINDS, LATER, OLD } do
      for _, kind in ipairs(list) do cases = cases + ((n > 1 or not kind:find "tp") and 1 or 0) end -- one rank has no mesh
    end
    assert(times == cases, ("%d ranks: %d messages of %d\n%s"):format(n, times, cases, err))
    assert(err:find 'mixed_precision is "bf16".-transformer%.h%.0%.attn' and not err:find "wte.weight", err)
  end
  return
end

local R, P = ranks.rank, ranks.size

local function options(kind, precision)
  local o, init = { mixed_precision = precision }, nil
  if kind:find "fsdp" then
    o.fsdp_plugin = accel.FullyShardedDataParallelPlugin { fsdp_version = tonumber(kind:match "fsdp(%d)"), cpu_offload = kind:find "offload" ~= nil,
      auto_wrap_policy = "SIZE_BASED_WRAP", min_num_params = 300 }
  end
  if kind:find "zero" then
    local device = kind:find "offload" and "cpu" or "none"
    o.deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = math.tointeger(kind:match "%d"), gradient_clipping = 1e9,
      offload_optimizer_device = device, zero3_save_16bit_model = kind:find "zero3" ~= nil, zero3_init_flag = false }
    if kind:find "init" then init = accel.deepspeed.zero.Init end
  end
  if kind:find "tp" then o.parallelism_config = accel.ParallelismConfig { tp_size = P } end
  if kind == "megatron" then o.megatron_lm_plugin = accel.MegatronLMPlugin { tp_degree = P, num_micro_batches = 1, gradient_clipping = 1e9 } end
  return o, init
end

local function make(dtype)
  accel.manual_seed(3)
  local model = accel.models.GPT2 { vocab_size = 9, n_positions = 16, n_embd = 8, n_layer = 2, n_head = 2, resid_pdrop = 0, embd_pdrop = 0,
    attn_pdrop = 0 }
  for _, p in ipairs(model:parameters()) do
    local _ <close> = accel.no_grad()
    p:copy_(p:to "bf16")
  end
  if dtype == "bf16" then model = model:bfloat16() end
  model.transformer.wte.weight:requires_grad_(false)
  return model
end

local IDS = accel.randint(0, 9, { 4, 6 }, { generator = accel.Generator(1) })

--- Losses of some steps and the state afterwards, on rank 0. folder: saved there and loaded again. unfreeze: the embedding learns from step
--- 3 on.
local function train(kind, precision, dtype, folder, unfreeze)
  accel.accelerator.AcceleratorState._reset_state(true)
  local o, init = options(kind, precision)
  local a = accel.Accelerator(o)
  local model = init and init(nil, make, dtype) or make(dtype)
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-4 })
  local loader = accel.data.DataLoader(accel.data.TensorDataset(IDS), { batch_size = 2 })
  model, optimizer, loader = a:prepare(model, optimizer, loader)
  local losses = {}
  local function step()
    local loss = model(IDS, { labels = IDS })
    a:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    losses[#losses + 1] = loss:item()
  end
  for i = 1, 4 do
    if unfreeze and i == 3 then model.transformer.wte.weight:requires_grad_(true) end
    step()
  end
  if folder then
    a:save_state(folder)
    step()
    a:load_state(folder)
    losses[#losses] = nil
    for _, group in ipairs(optimizer.param_groups) do
      for _, p in ipairs(group.params) do assert(p.dtype == "f32" or not p.requires_grad and p.device ~= "meta", p.dtype) end
    end
  end
  step()
  return losses, a:get_state_dict(model), a
end

local folder = arg[1]
for _, kind in ipairs(KINDS) do
  if P > 1 or not kind:find "tp" then
    local want, state = train(kind, "bf16", "f32")
    local got, own, a = train(kind, "bf16", "bf16", folder .. "-" .. kind:gsub(" ", "-"))
    for i, loss in ipairs(want) do
      assert(got[i] == loss, ("%s, rank %d of %d, step %d: %.9g, of f32 %.9g"):format(kind, R, P, i, got[i], loss))
    end
    if a.is_main_process then
      for name, t in pairs(state) do
        local mine = own[name]
        assert(mine:float():equal(t:float()), ("%s: %s differs"):format(kind, name))
        local gathered16 = kind:find "zero3" -- the key's name says so
        local frozen = name == "transformer.wte.weight" or name == "lm_head.weight"
        assert(mine.dtype == ((frozen or gathered16) and "bf16" or "f32"), ("%s: %s is %s"):format(kind, name, mine.dtype))
      end
    end
  end
end

-- what learns later becomes f32 when it does
for _, kind in ipairs(LATER) do
  if P > 1 or kind ~= "tp" then
    local want, state = train(kind, "bf16", "f32", nil, true)
    local got, own, a = train(kind, "bf16", "bf16", nil, true)
    for i, loss in ipairs(want) do assert(got[i] == loss, ("%s, unfrozen, step %d: %.9g, of f32 %.9g"):format(kind, i, got[i], loss)) end
    if a.is_main_process then
      for name, t in pairs(state) do assert(own[name]:float():equal(t:float()), ("%s, unfrozen: %s differs"):format(kind, name)) end
    end
  end
end

-- a checkpoint of a run that trained in 16 bits, by this strategy without mixed precision or by plain data parallelism
for _, kind in ipairs(OLD) do
  if P > 1 or kind ~= "tp" then
    local function fresh(how, precision)
      accel.accelerator.AcceleratorState._reset_state(true)
      local a, model = accel.Accelerator(options(how, precision)), make "bf16"
      return a, a:prepare(model, accel.optim.AdamW(model:parameters(), { lr = 1e-2 }))
    end
    local function step(a, model, optimizer)
      a:backward(model(IDS, { labels = IDS }))
      optimizer:step()
      optimizer:zero_grad()
    end
    local place = ("%s-old-%s"):format(folder, kind)
    local a, model, optimizer = fresh(kind:find "fsdp" and kind or "plain", "no")
    step(a, model, optimizer)
    a:save_state(place)
    local want = a:get_state_dict(model)
    a, model, optimizer = fresh(kind, "bf16")
    a:load_state(place)
    local got = a:get_state_dict(model)
    for name, t in pairs(a.is_main_process and got or {}) do
      assert(t:float():equal(want[name]:float()), ("%s, from 16 bits: %s differs"):format(kind, name))
    end
    step(a, model, optimizer)
    for _, group in ipairs(optimizer.param_groups) do
      for _, p in ipairs(group.params) do
        local state = optimizer.state[p]
        assert(not state or state.exp_avg.dtype == "f32", kind .. ": a state of 16 bits")
      end
    end
    a:save_state(place .. "32")
    a = fresh("plain", "no")
    local ok, why = pcall(a.load_state, a, place .. "32")
    assert(not ok and tostring(why):find("has dtype f32, here it is bf16.*; load the model in f32"), tostring(why))
  end
end

-- a checkpoint of 16 bits that was saved inside an update, with gradients of every batch or of the update
for _, case in ipairs(INSIDE) do
  local version, each = case[1], case[2]
  local function fresh(precision)
    accel.AcceleratorState._reset_state(true)
    local a = accel.Accelerator { mixed_precision = precision, fsdp_plugin = accel.FullyShardedDataParallelPlugin { fsdp_version = version },
      gradient_accumulation_plugin = accel.GradientAccumulationPlugin { num_steps = 2, sync_each_batch = each } }
    accel.manual_seed(1)
    local model = nn.Linear(4, 3):bfloat16()
    return a, a:prepare(model, accel.optim.SGD(model:parameters(), { lr = 0.5 }))
  end
  local function step(a, model, optimizer, x)
    local _ <close> = a:accumulate(model)
    a:backward(model(accel.full({ 1, 4 }, x, { dtype = "bf16" })):sum())
    optimizer:step()
    optimizer:zero_grad()
  end
  local place = ("%s-inside-%d-%s"):format(folder, version, each)
  local a, model, optimizer = fresh "no"
  local before = a:get_state_dict(model)
  before = before.weight and before.weight:float()
  step(a, model, optimizer, 1)
  a:save_state(place)
  a, model, optimizer = fresh "bf16"
  a:load_state(place)
  step(a, model, optimizer, 2)
  local state = a:get_state_dict(model) -- the gradient is the mean of 1 and 2
  assert(not a.is_main_process or state.weight:equal(before - 0.75), ("version %d, each batch %s"):format(version, each))
end

--- The weight of a bf16 layer after 40 steps of 1e-4, which bf16 rounds away at 1.
local function steps(opts, masters)
  accel.accelerator.AcceleratorState._reset_state(true)
  local a, m = accel.Accelerator(opts), nn.Linear(4, 1, { bias = false }):bfloat16()
  accel.no_grad(function() m.weight:fill_(1) end)
  local o = accel.optim.SGD(m:parameters(), { lr = 1e-4 })
  m, o = a:prepare(m, o)
  for _ = 1, 80 do
    a:backward(m(accel.ones(1, 4, { dtype = "bf16" })):sum())
    o:step()
    o:zero_grad()
  end
  local state = a:get_state_dict(m)
  local got = a.is_main_process and state.weight:float():mean():item() or nil
  assert(got == nil or (got < 0.995) == masters, ("%s: %s"):format(tostring(opts.fsdp_plugin or opts.deepspeed_plugin), got))
end
for stage = 0, 3 do
  steps({ deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = stage, gradient_clipping = 1e9, zero3_save_16bit_model = stage == 3 } }, stage > 0)
end
steps({ fsdp_plugin = accel.FullyShardedDataParallelPlugin {} }, false)
steps({}, false)
steps({ mixed_precision = "bf16" }, false)
