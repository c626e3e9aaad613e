-- enable_async_tp: sums of gradients run beside products of weights, and no bit changes: losses and parameters of every family after
-- three steps, with sequence parallelism, recompute, data parallelism, sharding, pipelines, autocast and a scaled loss. What is summed is
-- in flight while gradients of weights are computed, and the profiler tells which share of it was hidden. Gradients of norms and biases on
-- parts of the sequence are summed by block, with the bits of sums one by one.
--   accel-run tests/stdlib/parallel/overlap_test.lua
-- tier: sampled
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local ranks = dofile(here .. "../../support/ranks.lua")
local cases = dofile(here .. "cases.lua")
local A, dist = accel.accelerator, accel.dist

local STEPS <const> = 3

-- ranks, sizes and what prepare is given
local layouts = {
  { 4, { tp_size = 2, dp_shard_size = 2 }, zero = "FULL_SHARD" },
  { 4, { tp_size = 2, dp_shard_size = 2 }, zero = "SHARD_GRAD_OP", sp = true, precision = "bf16" },
  { 4, { tp_size = 2, dp_shard_size = 2 }, steps = 2 },
  { 4, { tp_size = 2, pp_size = 2 }, schedule = "1f1b", sp = true },
  { 4, { tp_size = 2, pp_size = 2 }, schedule = "zero_bubble" },
  { 2, { tp_size = 2 }, precision = "fp16" },
}

local list, take = {}, ranks.sample.one_of(6)
for _, name in ipairs(cases.names) do
  for _, P in ipairs { 2, 4 } do
    for _, sp in ipairs(name == "vit" and { false } or { false, true }) do
      if take() then list[#list + 1] = { kind = "model", P = P, name = name, sp = sp, recompute = name == "llama" and P == 2 } end
    end
  end
end
local take_layout = ranks.sample.one_of(3)
for i, layout in ipairs(layouts) do
  if take_layout() then list[#list + 1] = { kind = "layout", P = layout[1], i = i } end
end

if not ranks.launched then
  for _, c in ipairs(list) do
    local args = c.kind == "layout" and ("layout %d"):format(c.i)
      or ("model %s %s %s"):format(c.name, c.sp and "sp" or "-", c.recompute and "again" or "-")
    ranks.run(c.P, { args = args })
  end
  ranks.run(2, { args = "flight" })
  ranks.run(2, { args = "blocks" })
  return
end

local P <const> = ranks.size

local function mesh() return accel.parallel.init_device_mesh("cpu", { P }, { mesh_dim_names = { "tp" } }) end

--- Losses and parameters after some steps.
local function train_model(name, o)
  local model = cases.model(name, 2, 0.1)
  if o.recompute then model:gradient_checkpointing_enable() end
  accel.parallel.parallelize_module(model, mesh(), nil, { sequence_parallel = o.sp, enable_async_tp = o.async })
  local optimizer, losses = accel.optim.AdamW(model:parameters(), { lr = 1e-3 }), {}
  for step = 1, STEPS do
    local args = cases.batch(name, step, model)
    local out = table.pack(model(table.unpack(args, 1, name == "vit" and 2 or args.n)))
    local loss = cases.loss(name)(out.n == 1 and out[1] or out, table.unpack(args, 1, args.n))
    loss:backward()
    losses[step] = loss:item()
    optimizer:step()
    optimizer:zero_grad()
  end
  return losses, model
end

local function train_layout(layout, async)
  local sizes = { tp_handler = A.TorchTensorParallelConfig { sequence_parallel = layout.sp or false, enable_async_tp = async },
    pp_handler = layout.schedule and A.PipelineParallelConfig { num_micro_batches = 4, schedule = layout.schedule } or nil }
  for key, n in pairs(layout[2]) do sizes[key] = n end
  local a = accel.Accelerator {
    parallelism_config = accel.ParallelismConfig(sizes), gradient_accumulation_steps = layout.steps or 1,
    mixed_precision = layout.precision or "no",
    fsdp_plugin = layout.zero and accel.FullyShardedDataParallelPlugin { sharding_strategy = layout.zero } or nil,
  }
  local model, losses = cases.model("gpt2", 4, 0.1), {}
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  model, optimizer = a:prepare(model, optimizer)
  for step = 1, STEPS * (layout.steps or 1) do
    local _ <close> = a:accumulate(model)
    local ids = cases.batch("gpt2", step)[1]
    local loss = model(ids, { labels = ids })
    a:backward(loss)
    losses[2 * step - 1] = loss:item()
    local norm = a:clip_grad_norm_(model:parameters(), 0.5)
    losses[2 * step] = norm and norm:item() or 0
    optimizer:step()
    optimizer:zero_grad()
  end
  return losses, model
end

local function compare(what, plain, async)
  local losses, model = plain()
  local again, other = async()
  ranks.same(again, losses, what .. ": losses")
  local p, q = model:parameters(), other:parameters()
  assert(#p == #q and #p > 0)
  for i = 1, #p do assert(accel.equal(p[i]:detach(), q[i]:detach()), ("%s: parameter %d"):format(what, i)) end
end

if arg[1] == "model" then
  local o = { sp = arg[3] == "sp", recompute = arg[4] == "again" }
  compare(table.concat(arg, " "), function() return train_model(arg[2], o) end, function()
    o.async = true
    return train_model(arg[2], o)
  end)
elseif arg[1] == "layout" then
  local layout = layouts[tonumber(arg[2])]
  compare("layout " .. arg[2], function() return train_layout(layout, false) end, function() return train_layout(layout, true) end)
elseif arg[1] == "blocks" then
  -- sums of gradients of norms and biases: one for each block, one for the last norm; outside of a block one for each module
  local partial = require "accel.parallel.partial"
  local function make(apart)
    local scope = partial.scope
    if apart then partial.scope = function() end end
    local model = cases.model("gpt2", 2, 0)
    accel.parallel.parallelize_module(model, mesh(), nil, { sequence_parallel = true })
    partial.scope = scope
    return model
  end
  local function sums(fn)
    local before, n = dist.records(1)[1].number, 0
    fn()
    for _, r in ipairs(dist.records(200)) do n = n + (r.number > before and r.kind == "all_reduce" and 1 or 0) end
    return n
  end
  local one, all = make(true), make()
  local ids = cases.batch("gpt2", 1)[1]
  local function backward(model, o)
    local loss = model(ids, { labels = ids })
    return sums(function() loss:backward(nil, o) end)
  end
  -- two blocks, of two norms and two biases each, and the last norm
  ranks.same({ backward(one), backward(all) }, { 2 * (2 * 2 + 2) + 2, 3 }, "sums")
  local p, q = one:parameters(), all:parameters()
  local function equal(what)
    for i = 1, #p do assert(accel.equal(p[i].grad, q[i].grad), ("%s: parameter %d"):format(what, i)) end
  end
  equal "a backward"
  backward(one)
  backward(all)
  equal "gradients added up"
  -- two forwards before their backwards, one of them twice; a parameter that is frozen; gradients of some alone
  for _, model in ipairs { one, all } do
    local a, b = model(ids, { labels = ids }), model(ids, { labels = ids })
    b:backward(nil, { retain_graph = true })
    a:backward()
    b:backward()
  end
  equal "two forwards"
  for _, model in ipairs { one, all } do
    local norm = model.transformer.h[1].ln_1
    norm.weight:requires_grad_(false)
    norm.weight.grad = nil
    backward(model)
    assert(norm.weight.grad == nil)
    norm.weight:requires_grad_(true)
    norm.weight.grad = accel.zeros_like(norm.weight)
  end
  equal "a frozen parameter"
  local function asked(model)
    local norm = model.transformer.h[1].ln_2
    return accel.grad(model(ids, { labels = ids }), { norm.bias, model.transformer.ln_f.weight })
  end
  local g, h = asked(one), asked(all)
  assert(accel.equal(g[1], h[1]) and accel.equal(g[2], h[2]))
  equal "accel.grad"
  -- a block by itself, and a norm by itself
  local block, x = all.transformer.h[1], accel.ones(2, 4, 16, { requires_grad = true })
  ranks.same({ sums(function() block.ln_1(x):sum():backward() end), sums(function() block.ln_2(x):sum():backward() end) }, { 1, 1 },
    "norms by themselves")
else
  -- each sum of the gradient of an input is begun before the gradients of weights that it hides behind, and awaited after them
  local model = cases.model("gpt2", 2, 0)
  accel.parallel.parallelize_module(model, mesh(), nil, { enable_async_tp = true })
  local ids = cases.batch("gpt2", 1)[1]
  model(ids, { labels = ids }):backward()
  local before = dist.records(1)[1].number
  local loss = model(ids, { labels = ids })
  local log, c_attn = {}, model.transformer.h[1].attn.c_attn.weight
  local work_of = dist.all_reduce
  dist.all_reduce = function(t, o)
    local work = work_of(t, o)
    if not (o and o.async_op) then return work end
    log[#log + 1] = "begin"
    return { wait = function()
      log[#log + 1] = "wait"
      return work:wait()
    end }
  end
  c_attn:register_post_accumulate_grad_hook(function() log[#log + 1] = "weight" end)
  local prof = accel.profiler.profile {}
  loss:backward()
  prof:stop()
  dist.all_reduce = work_of
  -- the head, then feed-forward and attention of two layers; the weight of the first attention is that of the last sum
  ranks.same(log, { "begin", "wait", "begin", "wait", "begin", "wait", "begin", "wait", "begin", "weight", "wait" }, "order")
  local async = 0
  for _, r in ipairs(dist.records(100)) do async = async + (r.number > before and r.async and 1 or 0) end
  ranks.same(async, 5, "sums in flight")
  local told = prof:communication()
  assert(told.count >= 5 and told.total > 0 and told.hidden >= 0 and told.hidden <= told.total and told.share <= 1)
  local waits = 0
  for _, e in ipairs(prof:events()) do waits = waits + (e.name == "comm::wait" and 1 or 0) end
  assert(waits <= 5)

  -- what was put off is there once
  local kept = model(ids, { labels = ids })
  kept:backward(nil, { retain_graph = true })
  ranks.fails("enable_async_tp: backward went through a layer twice", function() kept:backward() end)

  -- accel.grad and `inputs` give the gradients that are asked for, also of weights, and leave the others as they are
  local wpe = model.transformer.wpe.weight
  for _, p in ipairs(model:parameters()) do p.grad = nil end
  loss = model(ids, { labels = ids })
  local given = accel.grad(loss, wpe, { retain_graph = true })
  for _, p in ipairs(model:parameters()) do assert(p.grad == nil) end
  loss:backward(nil, { inputs = { wpe }, retain_graph = true })
  for _, p in ipairs(model:parameters()) do assert((p.grad ~= nil) == (p == wpe)) end
  wpe.grad = nil
  loss:backward()
  assert(accel.equal(given, wpe.grad) and c_attn.grad)
  local c_fc, bias = model.transformer.h[1].mlp.c_fc.weight, model.transformer.h[2].attn.c_attn.bias
  local wanted = { c_attn.grad, wpe.grad, bias.grad, c_fc.grad }
  for _, p in ipairs(model:parameters()) do p.grad = nil end
  loss = model(ids, { labels = ids })
  local got = accel.grad(loss, { c_attn, wpe, bias, c_fc }, { retain_graph = true })
  for i, g in ipairs(wanted) do assert(accel.equal(got[i], g), "gradient " .. i) end
  for _, p in ipairs(model:parameters()) do assert(p.grad == nil) end
  loss:backward(nil, { inputs = { c_attn } })
  for _, p in ipairs(model:parameters()) do assert((p.grad ~= nil) == (p == c_attn)) end
  assert(accel.equal(c_attn.grad, wanted[1]))
  c_attn:requires_grad_(false)
  c_attn.grad, bias.grad = nil, nil
  loss = model(ids, { labels = ids })
  assert(accel.equal(accel.grad(loss, bias), wanted[3]))
  model(ids, { labels = ids }):backward()
  assert(c_attn.grad == nil and accel.equal(bias.grad, wanted[3]))
end
