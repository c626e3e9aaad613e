-- The schedule zero_bubble gives the bits of 1f1b: losses and parameters of every family after some steps, with tensor and sequence
-- parallelism and with recompute. (Where a weight is used twice in a stage, as T5's embedding is by the head, its parts are added in another
-- order: losses alone are compared, within 1e-5.)
--   accel-run tests/stdlib/parallel/zero_bubble_test.lua
-- tier: sampled, memory
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local cases = dofile(here .. "cases.lua")

if ranks.start { 4 } then
  ranks.run(4, { backend = "tcp", args = "tcp" }) -- messages that nobody waits for before the end of the batch, on sockets
  return
end
local on_tcp = arg[1] == "tcp"
assert(not on_tcp or accel.dist.get_backend() == "tcp")

--- Losses, and a number made of all parameters of this rank.
local function run(name, schedule, tp, recompute)
  local model = cases.model(name, 4, 0.2)
  if recompute then model:gradient_checkpointing_enable() end
  local mesh = accel.parallel.init_device_mesh("cpu", { 4 // tp, tp }, { mesh_dim_names = { "pp", "tp" } })
  if tp > 1 then accel.parallel.parallelize_module(model, mesh, nil, { sequence_parallel = name ~= "vit" }) end
  local pipeline = accel.nn.parallel.PipelineParallel(model, mesh, { num_micro_batches = 4, schedule = schedule,
    loss_fn = cases.loss(name) })
  local optimizer, losses, hash = accel.optim.AdamW(pipeline:parameters(), { lr = 1e-3 }), {}, 0
  for step = 1, 3 do
    local args = cases.batch(name, step, model)
    losses[step] = pipeline(table.unpack(args, 1, args.n)):item()
    optimizer:step()
    optimizer:zero_grad()
  end
  for _, p in ipairs(pipeline:parameters()) do
    for _, byte in ipairs { p:detach():contiguous():to_bytes():byte(1, -1) } do hash = (hash * 31 + byte) & 0xffffffff end
  end
  return losses, hash
end

local take, n = ranks.sample.one_of(6), 0
for _, name in ipairs(cases.names) do
  for _, tp in ipairs { 1, 2 } do
    for _, recompute in ipairs { false, true } do
      local wanted = take()
      if on_tcp then wanted = name == "gpt2" and not recompute end
      if wanted then
        n = n + 1
        local at = ("%s tp %d recompute %s"):format(name, tp, tostring(recompute))
        local losses, hash = run(name, "1f1b", tp, recompute)
        local got, got_hash = run(name, "zero_bubble", tp, recompute)
        if name == "t5" and tp == 2 then
          ranks.close(got, losses, at, 1e-5 * losses[1])
        else
          ranks.same(got, losses, at)
          ranks.same(got_hash, hash, at .. ": parameters")
        end
      end
    end
  end
end
assert(n >= (on_tcp and 2 or 4))

-- what is put off: the gradients of all weights of products, also of those whose inputs are shared out
if not on_tcp then
  local model = cases.model("gpt2", 4, 0)
  accel.parallel.parallelize_module(model, accel.parallel.init_device_mesh("cpu", { 4 }, { mesh_dim_names = { "tp" } }))
  local ids = cases.batch("gpt2", 1)[1]
  local deferred = require("accel.parallel.core").backward_inputs({ (model(ids, { labels = ids })) }, { accel.tensor(1.0) })
  for name, p in pairs(model:named_parameters()) do
    local of_product = name:find "c_%w+%.weight$"
    assert((p.grad == nil) == (of_product ~= nil), name .. (p.grad and " has a gradient" or " has none"))
  end
  assert(deferred:run())
  for name, p in pairs(model:named_parameters()) do assert(p.grad, name) end
end
