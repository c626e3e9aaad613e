-- Expert parallelism: Mixtral with its experts divided among ranks, with and without a capacity, its losses of balance and z, combined with
-- data, tensor, sequence, context and pipeline parallelism, sharding, accumulation, recompute and Megatron's plugin: the losses of 20 steps are
-- those of one rank within 1e-5 relative, and a second run has the same bits. What is averaged with whom, what is wrong is said.
--   accel-run tests/stdlib/parallel/experts_test.lua
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, R = accel.accelerator, ranks.rank

local STEPS <const>, ROWS <const> = 20, 8

-- Sizes of ParallelismConfig; or plugin: of MegatronLMPlugin. ranks: how many; data: that read different rows; cf, policy: capacity; zero: what
-- FSDP's plugin cuts; stage: of ZeRO; cut: in how many parts an expert is; offload: in host memory; micros: of a
-- pipeline; steps: of accumulation; again: another run has the same bits.
local layouts = {
  { dp_shard_size = 2, ep_size = 2, ranks = 2, data = 2, again = true },
  { dp_shard_size = 4, ep_size = 4, ranks = 4, data = 4, cf = 0.8 },
  { ep_size = 2, ranks = 4, data = 4, steps = 2 },
  { dp_shard_size = 4, ep_size = 2, ranks = 4, data = 4, cf = 0.6, policy = "position" },
  { dp_shard_size = 4, ep_size = 2, ranks = 4, data = 4, zero = "FULL_SHARD", cut = 2, steps = 2 },
  { dp_replicate_size = 2, dp_shard_size = 2, ep_size = 4, ranks = 4, data = 4, zero = "FULL_SHARD" },
  { dp_shard_size = 4, ep_size = 2, ranks = 4, data = 4, stage = 1, cut = 2, steps = 2 },
  { dp_shard_size = 4, ep_size = 2, ranks = 4, data = 4, stage = 2, cut = 2, again = true },
  { dp_shard_size = 4, ep_size = 2, ranks = 4, data = 4, stage = 3, cut = 2, cf = 0.8, steps = 2 },
  { dp_shard_size = 4, ep_size = 2, ranks = 4, data = 4, zero = "FULL_SHARD", cut = 2, backend = "tcp", steps = 2, recompute = true },
  { dp_shard_size = 4, ep_size = 2, ranks = 4, data = 4, zero = "SHARD_GRAD_OP", cut = 2, offload = true },
  { dp_replicate_size = 2, dp_shard_size = 4, ep_size = 2, ranks = 8, data = 8, zero = "FULL_SHARD", cut = 2, backend = "tcp" },
  { dp_shard_size = 2, tp_size = 2, ep_size = 2, ranks = 4, data = 2, sp = true, zero = "SHARD_GRAD_OP" },
  { dp_shard_size = 2, tp_size = 2, ep_size = 2, ranks = 4, data = 2, cf = 1.0, recompute = true },
  { dp_shard_size = 2, pp_size = 2, ep_size = 2, ranks = 4, data = 2, micros = 2, cf = 0.7, policy = "position" },
  { dp_shard_size = 2, pp_size = 2, ep_size = 2, ranks = 4, data = 2, micros = 4, zero = "FULL_SHARD", chunks = 2, again = true },
  { dp_shard_size = 2, pp_size = 2, tp_size = 2, ep_size = 2, ranks = 8, data = 2, micros = 2, sp = true, recompute = true },
  { cp_size = 2, dp_shard_size = 2, ep_size = 4, ranks = 4, data = 2, cf = 0.9 },
  { sp_size = 2, dp_shard_size = 2, ep_size = 2, ranks = 4, data = 2 },
  { plugin = { expert_model_parallel_size = 2, tp_degree = 2, use_distributed_optimizer = true, num_micro_batches = 2,
    recompute_activations = true }, ranks = 4, data = 2, micros = 2 },
  { plugin = { expert_model_parallel_size = 2, pp_degree = 2, num_micro_batches = 4 }, ranks = 4, data = 2, micros = 4 },
}

local function make(layout)
  accel.manual_seed(3)
  local model = accel.models.MixtralForCausalLM { vocab_size = 33, hidden_size = 16, intermediate_size = 24, num_hidden_layers = 4,
    num_attention_heads = 4, num_key_value_heads = 4, max_position_embeddings = 16, num_local_experts = 4,
    output_router_logits = true, router_aux_loss_coef = 0.1, router_z_loss_coef = 0.01, expert_capacity_factor = layout.cf,
    expert_drop_policy = layout.policy }
  do -- far from ties, which rounding would decide
    local _ <close> = accel.no_grad()
    for _, layer in ipairs(model.model.layers) do layer.block_sparse_moe.gate.weight:mul_(20) end
  end
  if layout.recompute and ranks.launched then model:gradient_checkpointing_enable() end
  return model
end

--- ids and the labels of their places.
local function batch(step)
  local ids = accel.randint(0, 33, { ROWS, 8 }, { generator = accel.Generator(step) })
  return ids, accel.cat({ ids:narrow(2, 2, 7), ids:narrow(2, 1, 1) }, 2)
end

--- What one rank does with the micro-batches that all ranks together have, one after the other.
local function alone(layout)
  local model, losses = make(layout), {}
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
  local parts = (layout.micros or 1) * (layout.steps or 1)
  for step = 1, STEPS do
    local ids, labels = batch(step)
    local total, per = 0, ROWS // layout.data // parts
    for m = 1, parts do
      local function rows(t)
        local list = {}
        for r = 0, layout.data - 1 do list[#list + 1] = t:narrow(1, (r * parts + m - 1) * per + 1, per) end
        return accel.cat(list, 1)
      end
      local loss = model(rows(ids), { shift_labels = rows(labels) }) / parts
      loss:backward()
      total = total + loss:item()
    end
    accel.nn.utils.clip_grad_norm_(model:parameters(), 0.5)
    optimizer:step()
    optimizer:zero_grad()
    losses[step] = total
  end
  return losses
end

local function open(layout)
  local config, plugin = {}, layout.plugin
  for key, value in pairs(layout) do config[key] = key:find "_size$" and value or nil end
  if config.pp_size then
    config.pp_handler = A.PipelineParallelConfig { num_micro_batches = layout.micros, virtual_stages = layout.chunks or 1 }
  end
  if layout.sp then config.tp_handler = A.TorchTensorParallelConfig { sequence_parallel = true } end
  if plugin then plugin.gradient_clipping = 0.5 end
  return accel.Accelerator {
    parallelism_config = not plugin and accel.ParallelismConfig(config) or nil,
    megatron_lm_plugin = plugin and accel.MegatronLMPlugin(plugin) or nil, gradient_accumulation_steps = layout.steps or 1,
    fsdp_plugin = layout.zero and accel.FullyShardedDataParallelPlugin { sharding_strategy = layout.zero, cpu_offload = layout.offload }
      or nil,
    deepspeed_plugin = layout.stage and accel.DeepSpeedPlugin { zero_stage = layout.stage, gradient_clipping = 0.5,
      gradient_accumulation_steps = layout.steps or 1 } or nil,
  }
end

--- Experts are where they belong, and nobody but those that have the same one averages its gradients.
local function check_places(a, model, layout)
  local parallel, module = a._parallel, a:unwrap_model(model)
  local ep, edp, reduced = parallel:axis "ep", parallel:axis "edp", {}
  assert(ep.size == parallel.config.ep_size and ep.size * edp.size == parallel:axis "data".size)
  local reducer = rawget(model, "reducer")
  for _, p in ipairs(reducer and reducer.params or {}) do reduced[p] = true end
  for name, p in pairs(module:named_parameters()) do
    local e = tonumber(name:match "experts%.(%d+)")
    if e and p.device ~= "meta" then
      assert(e // (4 // ep.size) == ep.rank, name)
      local all = {}
      if p.grad then all = accel.dist.all_gather_object({ p.grad:contiguous():to_bytes() }, { group = edp.group }) end
      for _, other in ipairs(edp.size > 1 and all or {}) do assert(other[1] == all[1][1], name .. ": other gradients") end
    end
    assert(not (e and reduced[p]), name)
    local place = e and package.loaded["accel.shard.owners"] and package.loaded["accel.shard.owners"].of[p]
    assert((place ~= nil) == (layout.cut ~= nil and e ~= nil and p.device ~= "meta"), name)
    if place then assert(place.unit.part * layout.cut == place.unit.count, name) end
  end
end

local function train(layout)
  local a = open(layout)
  local model = make(layout)
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-2 })
  model, optimizer = a:prepare(model, optimizer)
  local dp, data, config = a._parallel:axis "dp", a._parallel:axis "data", a._parallel.config
  local steps, n = layout.steps or 1, ROWS // layout.data
  assert(dp.size == layout.data)
  for step = 1, STEPS do
    local ids, labels = batch(step)
    local total = accel.zeros({})
    for m = 1, steps do
      local _ <close> = a:accumulate(model)
      local function rows(t) return t:narrow(1, dp.rank * n + (m - 1) * (n // steps) + 1, n // steps):clone() end
      local x, y, loss = rows(ids), rows(labels), nil
      local function run()
        loss = model(x, { shift_labels = y })
        a:backward(loss)
      end
      if config.cp_size * config.sp_size > 1 then
        a:maybe_context_parallel({ buffers = { x, y }, buffer_seq_dims = { 2, 2 } }, run)
      else
        run()
      end
      total = total + loss:detach() / steps
      if step == 3 and m == steps and config.pp_size == 1 and not layout.plugin then check_places(a, model, layout) end
      if not layout.plugin and not layout.stage then a:clip_grad_norm_(model:parameters(), 0.5) end
      optimizer:step()
      optimizer:zero_grad()
    end
    accel.dist.all_reduce(total, { group = data.group, op = "mean" })
    if R == 0 then print(("step %d %.9g"):format(step, total:item())) end
  end
end

if not ranks.launched then
  local take = ranks.sample.one_of(8)
  for i, layout in ipairs(layouts) do
    if take() then
      local want, steps, at = alone(layout), 0, "layout " .. i
      local said = ranks.run(layout.ranks, { args = tostring(i), capture = true, backend = layout.backend })
      for step, loss in said:gmatch "step (%d+) (%S+)\n" do
        steps = steps + 1
        local w, got = want[tonumber(step)], tonumber(loss)
        assert(math.abs(got - w) <= 1e-5 * math.abs(w), ("%s, step %s: %.9g, on one rank %.9g"):format(at, step, got, w))
      end
      assert(steps == STEPS, at .. ": " .. said)
      if layout.again then assert(ranks.run(layout.ranks, { args = tostring(i), capture = true }) == said, at .. ": other bits") end
    end
  end
  ranks.run(4, { args = "wrong" })
  return
end

if arg[1] ~= "wrong" then return train(layouts[tonumber(arg[1])]) end

local says = ranks.fails
says("ep_size 3 does not divide the 4 ranks of dp_replicate_size", accel.ParallelismConfig, { dp_shard_size = 4, ep_size = 3 })
says("ep_size must be a positive integer, got 0", accel.ParallelismConfig, { ep_size = 0 })
says("ep_size 3 does not divide the 4 ranks", accel.Accelerator, { parallelism_config = accel.ParallelismConfig { ep_size = 3 } })
says("ep_size 2 does not divide the 1 ranks", accel.Accelerator, { parallelism_config = accel.ParallelismConfig { tp_size = 4, ep_size = 2 } })
says("expert_model_parallel_size 4 does not divide the 2 ranks", accel.Accelerator,
  { megatron_lm_plugin = accel.MegatronLMPlugin { tp_degree = 2, expert_model_parallel_size = 4 } })
local function prepared(o, given, handlers, fsdp)
  A.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { parallelism_config = accel.ParallelismConfig(o), kwargs_handlers = handlers, fsdp_plugin = fsdp }
  return a:prepare(given or make { cf = 1, policy = "position" })
end
says("GPT2LMHeadModel has no mixture of experts for ep_size to divide", prepared, { ep_size = 2 },
  accel.models.GPT2(accel.models.tiny.gpt2))
says("the 3 experts of 'model.layers.0.block_sparse_moe' do not divide by ep_size 4", prepared, { ep_size = 4 },
  accel.models.MixtralForCausalLM(accel.models.tiny.mixtral))
says("'position' needs whole sequences on every rank", prepared, { cp_size = 2, dp_shard_size = 2, ep_size = 2 })
for _, fsdp in ipairs { false, true } do -- gradients of experts were too large by the steps of accumulation
  says('deterministic = "world" with ep_size 2: products of divided experts', prepared, { dp_shard_size = 4, ep_size = 2 }, nil,
    { accel.DistributedDataParallelKwargs { deterministic = "world" } },
    fsdp and accel.FullyShardedDataParallelPlugin { fsdp_version = 2 } or nil)
end
