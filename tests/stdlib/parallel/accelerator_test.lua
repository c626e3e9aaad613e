-- Training by accelerator:prepare on meshes: products of tensor, sequence, pipeline and data parallelism, sharding by FSDP's plugin,
-- Megatron's plugin, accumulation; losses, norms of gradients and learning rates are those of one rank, loaders give ranks that share
-- the model the same rows, metrics count every row once, and what is wrong is said.
--   accel-run tests/stdlib/parallel/accelerator_test.lua
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, R = accel.accelerator, ranks.rank

-- tp, pp, data; zero: what FSDP's plugin cuts
local layouts = {
  { 2, 1, 1, sp = true }, { 2, 1, 2 }, { 1, 2, 1 }, { 1, 2, 2 }, { 2, 2, 2, sp = true }, { 2, 1, 2, zero = "FULL_SHARD" },
  { 2, 1, 2, zero = "SHARD_GRAD_OP", sp = true }, { 1, 2, 2, zero = "FULL_SHARD" }, { 2, 2, 2, zero = "FULL_SHARD", sp = true },
  { 1, 2, 2, megatron = { use_distributed_optimizer = true } }, { 2, 2, 1, megatron = { sequence_parallelism = true } },
  { 2, 1, 2, megatron = { use_distributed_optimizer = true, recompute_activations = true } }, { 1, 1, 2, steps = 2 },
  { 1, 2, 2, zero = "FULL_SHARD", schedule = "zero_bubble" }, { 2, 2, 2, zero = "SHARD_GRAD_OP", schedule = "zero_bubble", sp = true },
  { 1, 2, 2, schedule = "zero_bubble", steps = 2 }, { 2, 1, 1, steps = 2 }, { 1, 2, 1, steps = 2 }, { 1, 2, 2, zero = "FULL_SHARD", steps = 2 },
}

local function train(layout, alone)
  local tp, pp, dp, config, megatron = layout[1], layout[2], layout[3], nil, nil
  if layout.megatron and not alone then
    local given = { tp_degree = tp, pp_degree = pp, num_micro_batches = 2, gradient_clipping = 0.5 }
    for key, value in pairs(layout.megatron) do given[key] = value end
    megatron = accel.MegatronLMPlugin(given)
  elseif not alone then
    config = accel.ParallelismConfig { tp_size = tp, pp_size = pp, dp_shard_size = dp,
      tp_handler = A.TorchTensorParallelConfig { sequence_parallel = layout.sp or false },
      pp_handler = A.PipelineParallelConfig { num_micro_batches = 2, schedule = layout.schedule or "1f1b" } }
  end
  local a = accel.Accelerator {
    parallelism_config = config, megatron_lm_plugin = megatron, gradient_accumulation_steps = layout.steps or 1,
    fsdp_plugin = layout.zero and not alone and accel.FullyShardedDataParallelPlugin { sharding_strategy = layout.zero } or nil,
  }
  accel.manual_seed(3 + (alone and 0 or R)) -- rank 0's parameters count
  local model = accel.models.GPT2 { vocab_size = 33, n_positions = 16, n_embd = 16, n_layer = 4, n_head = 4, resid_pdrop = 0.1,
    embd_pdrop = 0.1, attn_pdrop = 0.1 }
  accel.manual_seed(9)
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  local data = accel.randint(0, 33, { 44, 8 }, { generator = accel.Generator(1) })
  local loader = accel.data.DataLoader(accel.data.TensorDataset(data), { batch_size = 4 // dp, shuffle = true, seed = 5 })
  if alone then loader = accel.data.DataLoader(accel.data.TensorDataset(data), { batch_size = 4, shuffle = true, seed = 5 }) end
  local schedule = accel.optim.lr_scheduler.LambdaLR(optimizer, function(step) return 1 / (1 + step) end)
  model, optimizer, loader, schedule = a:prepare(model, optimizer, loader, schedule)
  local axis = a._parallel and a._parallel:axis "data"
  for _ = 1, 2 do
    for batch in loader() do
      local _ <close> = a:accumulate(model)
      local loss = model(batch[1], { labels = batch[1] })
      a:backward(loss)
      local norm = not layout.megatron and a:clip_grad_norm_(model:parameters(), 0.5) or nil
      if layout.megatron and alone and a.sync_gradients then a:clip_grad_norm_(model:parameters(), 0.5) end
      optimizer:step()
      schedule:step()
      optimizer:zero_grad()
      local sum = loss:detach():clone()
      if axis and axis.size > 1 then accel.dist.all_reduce(sum, { group = axis.group, op = "mean" }) end
      if R == 0 then
        print(("train %.9g %.9g %.9g"):format(sum:item(), norm and norm:item() or 0, schedule:get_last_lr()[1]))
      end
    end
  end
  model:eval()
  local seen = {}
  for batch in loader() do
    local logits = accel.no_grad(function() return model(batch[1]) end)
    assert(logits.shape[1] == batch[1].shape[1] and logits.shape[3] == 33)
    for _, row in ipairs(a:gather_for_metrics(batch[1]):tolist()) do seen[#seen + 1] = table.concat(row, " ") end
  end
  table.sort(seen)
  local rows = data:tolist()
  for i, row in ipairs(rows) do rows[i] = table.concat(row, " ") end
  table.sort(rows)
  ranks.same(seen, rows, "rows of metrics")
  return a
end

local function lines(text)
  local list = {}
  for a, b, c in text:gmatch "train (%S+) (%S+) (%S+)" do list[#list + 1] = { tonumber(a), tonumber(b), tonumber(c) } end
  return list
end

if not ranks.launched then
  if arg[1] then return train(layouts[tonumber(arg[1])], true) end
  local take = ranks.sample.one_of(8)
  for i, layout in ipairs(layouts) do
    if take() then
      local one = lines(ranks.run(nil, { args = tostring(i), capture = true }))
      local many = lines(ranks.run(layout[1] * layout[2] * layout[3], { args = tostring(i), capture = true }))
      assert(#one == 22 and #many == 22, ("layout %d: %d and %d steps"):format(i, #one, #many))
      for k, line in ipairs(one) do
        for j, want in ipairs(line) do
          assert(math.abs(many[k][j] - want) <= 2e-5 * math.abs(want),
            ("layout %d, step %d: %.9g, on one rank %.9g"):format(i, k, many[k][j], want))
        end
      end
    end
  end
  ranks.run(4, { args = "wrong" })
  return
end

if arg[1] ~= "wrong" then return train(layouts[tonumber(arg[1])]) end

local P = ranks.size
ranks.fails("the sizes multiply to 2 ranks (tp_size 2), but there are 4", accel.Accelerator,
  { parallelism_config = accel.ParallelismConfig { tp_size = 2 } })
ranks.fails("parallelism_config must be a ParallelismConfig", accel.Accelerator, { parallelism_config = { tp_size = 2 } })
ranks.fails("ParallelismConfig: the ranks have different sizes; at size 1 rank 0 has tp_size 4", accel.Accelerator, {
  parallelism_config = accel.ParallelismConfig { tp_size = R == 0 and 4 or 1, pp_size = R == 0 and 1 or 4 } })
ranks.fails("give no parallelism_config", accel.Accelerator, { megatron_lm_plugin = accel.MegatronLMPlugin {},
  parallelism_config = accel.ParallelismConfig {} })
ranks.fails("are 3 ranks, which do not divide the 4", accel.Accelerator, { megatron_lm_plugin = accel.MegatronLMPlugin { tp_degree = 3 } })
ranks.fails("schedule must be one of gpipe, 1f1b, interleaved, zero_bubble, got '2f2b'", A.PipelineParallelConfig, { schedule = "2f2b" })
local a = accel.Accelerator { parallelism_config = accel.ParallelismConfig {} } -- nothing asked for: data parallelism
assert(a.torch_device_mesh:size "dp" == P and a.data_parallel_rank == R and a.tensor_parallel_rank == 0)
ranks.fails("dispatch_batches = true sends every process a different batch", function()
  local b = accel.Accelerator { parallelism_config = accel.ParallelismConfig { tp_size = 2, dp_shard_size = 2 },
    dataloader_config = accel.DataLoaderConfiguration { dispatch_batches = true } }
  assert(b.tensor_parallel_rank == R % 2 and b.data_parallel_rank == R // 2 and b.data_parallel_shard_rank == R // 2)
  b:prepare(accel.data.DataLoader(accel.data.TensorDataset(accel.arange(8)), { batch_size = 2 }))
end)
