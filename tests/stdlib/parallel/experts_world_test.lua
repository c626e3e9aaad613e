-- deterministic = "world" with a mixture: routers count by micro-batch, so that weights after some updates have the bits of one rank that cut
-- the same batches into the same micro-batches, on a mesh of data ranks and without one.
--   accel-run tests/stdlib/parallel/experts_world_test.lua
-- tier: every change
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")

local MICROS <const>, ROWS <const> = 4, 2 -- of an update; of a micro-batch

local function train(meshed)
  local P = ranks.size
  local a = accel.Accelerator {
    gradient_accumulation_steps = MICROS // P,
    parallelism_config = meshed and accel.ParallelismConfig { dp_replicate_size = P } or nil,
    kwargs_handlers = { accel.DistributedDataParallelKwargs { deterministic = "world" } },
  }
  accel.manual_seed(3)
  local model = accel.models.MixtralForCausalLM { vocab_size = 33, hidden_size = 16, intermediate_size = 24, num_hidden_layers = 2,
    num_attention_heads = 4, num_key_value_heads = 4, max_position_embeddings = 16, num_local_experts = 4, num_experts_per_tok = 2,
    output_router_logits = true, router_aux_loss_coef = 0.1 }
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
  model, optimizer = a:prepare(model, optimizer)
  for step = 1, 3 do
    local ids = accel.randint(0, 33, { MICROS * ROWS, 8 }, { generator = accel.Generator(step) })
    for m = 1, MICROS // P do
      local _ <close> = a:accumulate(model)
      local part = ids:narrow(1, (ranks.rank * (MICROS // P) + m - 1) * ROWS + 1, ROWS)
      local loss = model(part, { labels = part })
      a:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
    end
  end
  local sums = {}
  for i, p in ipairs(a:unwrap_model(model):parameters()) do
    local flat = p:detach():to("f64"):reshape(-1)
    sums[i] = ("%.17g"):format((flat * accel.arange(1, flat.shape[1] + 1, { dtype = "f64" })):sum():item())
  end
  return table.concat(sums, " ")
end

if ranks.launched then
  local out = train(arg[1] == "mesh")
  if ranks.rank == 0 then print("weights " .. out) end
  return
end
local one = "weights " .. train(false) .. "\n"
for n = 2, MICROS, 2 do
  for _, how in ipairs { "plain", "mesh" } do
    ranks.same(ranks.run(n, { args = how, capture = true }), one, ("%d ranks, %s"):format(n, how))
  end
end
