-- Blocks of a pipeline by the products of their forward: the most expensive stage costs as little as in any way to cut (all ways are
-- tried), costs are those that shapes tell, and what is computed does not depend on where the model is cut.
--   accel-run tests/stdlib/parallel/balance_test.lua
-- tier: every change
local accel = require "accel"
local balance = require "accel.parallel.pipeline.balance"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local stages = require "accel.parallel.pipeline.stages"
local nn = accel.nn

-- three blocks of 12 * 16^2 before a head of 16 * 600 cost about as much as one behind it
local config = { vocab_size = 600, n_positions = 8, n_embd = 16, n_layer = 4, n_head = 2, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 }

if not ranks.launched then
  -- the least cost of so many stages, by all ways to cut
  local function tried(costs, count, first)
    if count == 1 then
      local all = 0
      for i = first, #costs do all = all + costs[i] end
      return all
    end
    local best, sum = math.huge, 0
    for i = first, #costs - count + 1 do
      sum = sum + costs[i]
      best = math.min(best, math.max(sum, tried(costs, count - 1, i + 1)))
    end
    return best
  end
  local function most(costs, counts)
    local out, i = 0, 0
    for _, n in ipairs(counts) do
      local sum = 0
      for k = i + 1, i + n do sum = sum + costs[k] end
      assert(n > 0)
      out, i = math.max(out, sum), i + n
    end
    assert(i == #costs)
    return out
  end
  local seed = 7
  local function draw()
    seed = (seed * 1103515245 + 12345) % 2147483648
    return seed % 97 + 1
  end
  local differ = 0
  for n = 2, 9 do
    for count = 1, n do
      local costs = {}
      for i = 1, n do costs[i] = draw() end
      local got, best, even = balance.by_cost(costs, count), tried(costs, count, 1), balance.even(n, count)
      if most(costs, even) <= best * 1.05 then ranks.same(got, even, "equal counts are good enough")
      else
        ranks.same(most(costs, got), best, ("%d blocks, %d stages"):format(n, count))
        differ = differ + 1
      end
    end
  end
  assert(differ > 10)
  ranks.same(balance.by_cost({ 1, 1, 1, 1, 1, 1 }, 4), { 1, 2, 2, 1 }, "equal blocks")
  ranks.same(balance.by_cost({ 1, 1, false, 9 }, 2), { 2, 2 }, "an unknown cost")
  ranks.same(balance.by_cost({ 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6.46 }, 2), { 9, 3 }, "GPT-2 of 124 M parameters")

  -- costs by shapes: matrices, not tables; of four experts two; a quantised matrix as its layer
  ranks.same(balance.cost(nn.Embedding(50, 8)), 0, "a table")
  ranks.same(balance.cost(nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4), nn.Linear(4, 2))), 8 * 4 + 4 * 2, "layers")
  ranks.same(balance.cost(accel.models.Conv1D(8, 4)), 32, "Conv1D")
  for rank = 0, 1 do -- of two ranks that have four and three of its seven columns
    local head = nn.Module:extend "Head"() -- a matrix alone, without the sizes that layers have
    head.weight = nn.Parameter(accel.zeros(4, 7))
    require "accel.parallel.placements".cut(head.weight, { size = 2, rank = rank }, 2)
    ranks.same(head.weight.shape, { 4, 4 - rank }, "columns of a rank")
    ranks.same(balance.cost(head), 28, "a matrix that is cut, as a whole one")
  end
  ranks.same(balance.cost(nn.Conv2d(1, 2, 3)), nil, "a convolution")
  local tiny = accel.models.tiny.mixtral
  local moe = accel.models.MixtralForCausalLM(tiny)
  local c, kv = tiny.hidden_size, tiny.hidden_size // tiny.num_attention_heads * tiny.num_key_value_heads
  ranks.same(balance.cost(moe.model.layers[1]), 2 * c * c + 2 * c * kv + c * tiny.num_local_experts
    + 3.0 * tiny.num_experts_per_tok * c * tiny.intermediate_size, "a mixture")

  local function counts(model, n, o)
    local out = {}
    for s = 1, n do out[s] = 0 end
    for _, b in ipairs((stages.assign(model, n, o or {}))) do out[b.stage + 1] = out[b.stage + 1] + 1 end
    return out
  end
  for _, tied in ipairs { true, false } do
    config.tie_word_embeddings = tied
    ranks.same(counts(accel.models.GPT2(config), 2), { 3, 1 }, "a large head")
  end
  ranks.same(counts(accel.models.GPT2(config), 2, { split_points = "even" }), { 2, 2 }, "even")
  ranks.same(counts(accel.models.GPT2(config), 2, { stage_layers = { 1, 3 } }), { 1, 3 }, "stage_layers")
  ranks.run(2)
  return
end

-- the same losses and gradients wherever the model is cut
local mesh = accel.parallel.init_device_mesh("cpu", { 2 }, { mesh_dim_names = { "pp" } })
local function train(o)
  accel.manual_seed(3)
  local model = accel.models.GPT2(config)
  o.num_micro_batches = 4
  local run = nn.parallel.PipelineParallel(model, mesh, o)
  local optimizer, losses = accel.optim.AdamW(run:parameters(), { lr = 1e-2 }), {}
  for step = 1, 3 do
    local ids = accel.randint(0, 600, { 4, 8 }, { generator = accel.Generator { seed = step } })
    losses[step] = run(ids, { labels = ids }):item()
    optimizer:step()
    optimizer:zero_grad()
  end
  local own = 0
  for _, b in ipairs(run._blocks) do own = own + (b.stage == ranks.rank and 1 or 0) end
  return losses, own
end
local even, two = train { split_points = "even" }
local auto, own = train {}
ranks.same({ two, own }, { 2, ranks.rank == 0 and 3 or 1 }, "blocks")
ranks.same(auto, even, "losses")
ranks.same((train { split_points = { "h.1" } }), even, "losses, cut by name")
ranks.fails("split_points must be", function() nn.parallel.PipelineParallel(accel.models.GPT2(config), mesh, { split_points = "evn" }) end)
