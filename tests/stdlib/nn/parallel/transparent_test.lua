-- Moving a prepared model: to the dtype and the device that it has it is nothing, on any number of ranks and under every strategy, and training
-- goes on; elsewhere it raises where the model is wrapped, and the model stays as it was.
--   accel-run tests/stdlib/nn/parallel/transparent_test.lua
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../../support/ranks.lua")
local nn = accel.nn

if ranks.start { 1, 2 } then return end
local P = ranks.size

local F, D = accel.FullyShardedDataParallelPlugin, accel.DeepSpeedPlugin
local KINDS <const> = {
  ddp = function() return {} end,
  bf16 = function() return { mixed_precision = "bf16" } end,
  fsdp1 = function() return { fsdp_plugin = F {} } end,
  fsdp2 = function() return { fsdp_plugin = F { fsdp_version = 2 } } end,
  offload = function() return { fsdp_plugin = F { cpu_offload = true } } end,
  zero1 = function() return { deepspeed_plugin = D { zero_stage = 1 } } end,
  zero3 = function() return { deepspeed_plugin = D { zero_stage = 3 } } end,
  pipeline = function() return { megatron_lm_plugin = accel.MegatronLMPlugin { pp_degree = P, num_micro_batches = 2 } } end,
  tensors = function() return P > 1 and { parallelism_config = accel.ParallelismConfig { tp_size = P } } or {} end,
}

local take = ranks.sample.one_of(3)
for kind, make in accel.pairs(KINDS) do
  local function train(moves)
    accel.AcceleratorState._reset_state(true)
    local a = accel.Accelerator(make())
    accel.manual_seed(3)
    local model = accel.models.GPT2 { vocab_size = 9, n_positions = 16, n_embd = 8, n_layer = 2, n_head = 2, resid_pdrop = 0, embd_pdrop = 0,
      attn_pdrop = 0 }
    local optimizer = accel.optim.SGD(model:parameters(), { lr = 0.1 })
    local loader = accel.data.DataLoader(accel.data.TensorDataset(accel.ones(4, 1)), { batch_size = 2 })
    model, optimizer, loader = a:prepare(model, optimizer, loader)
    local ids, losses = accel.randint(0, 9, { 2, 6 }, { generator = accel.Generator(1) }), {}
    for step = 1, 3 do
      if moves then
        assert(model:to(a.device) == model and model:float() == model and model:to "float32" == model and model:train() == model)
        assert(model:to { dtype = "f32", device = "cpu" } == model)
        if P > 1 then
          for _, to in ipairs { "bf16", "meta", "double" } do ranks.fails("be moved or converted", model.to, model, to) end
        end
      end
      local loss = model(ids, { labels = ids })
      a:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
      losses[step] = loss:item()
    end
    return losses
  end
  local taken = take()
  local want, got = taken and train(false) or {}, taken and train(true)
  for i, loss in ipairs(want) do assert(got[i] == loss, ("%s, step %d: %.9g, not %.9g"):format(kind, i, got[i], loss)) end
end

-- on one rank, where nothing is wrapped, the optimizer goes along
if P == 1 then
  for _, kind in ipairs { "ddp", "fsdp1", "zero1", "tensors" } do
    local function train(late)
      accel.AcceleratorState._reset_state(true)
      local a = accel.Accelerator(KINDS[kind]())
      accel.manual_seed(3)
      local model = nn.Linear(3, 2)
      if not late then model:double() end
      local optimizer = accel.optim.AdamW(model:parameters(), { lr = 0.1 })
      model, optimizer = a:prepare(model, optimizer)
      if late then model:double() end
      for _ = 1, 3 do
        a:backward(model(accel.ones(2, 3, { dtype = "f64" })):pow(2):sum())
        optimizer:step()
        optimizer:zero_grad()
      end
      return model.weight
    end
    local want, got = train(false), train(true)
    assert(got.dtype == "f64" and got:equal(want), kind .. ": a model that was converted after prepare does not learn")
  end
end

-- a model that a script wraps, and names of dtypes
local m = nn.parallel.DistributedDataParallel(nn.Linear(2, 1):bfloat16())
assert(m:to "bfloat16" == m and m:bfloat16() == m and m:to(m.weight.device) == m)
ranks.fails("'weight' is bf16 on cpu", m.to, m, "f32")
ranks.fails("'gpu9' is neither a dtype nor a device", m.to, m, "gpu9") -- as without the wrapper
