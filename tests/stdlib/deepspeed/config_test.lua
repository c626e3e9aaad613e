-- Configurations of DeepSpeed under an Accelerator: every `auto` by the reference's rules, what contradicts and what is unknown or has no
-- effect in one line each, precision of blocks, several plugins and which is active, dummies, what backward does and the script's own calls
-- do not.
--   accel-run tests/stdlib/deepspeed/config_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, A, fails = accel.nn, accel.accelerator, ranks.fails

local said
local function accelerator(o)
  A.AcceleratorState._reset_state(true)
  said = {}
  local warn = A.Accelerator._warn
  A.Accelerator._warn = function(_, text) said[#said + 1] = text end
  local a = accel.Accelerator(o)
  A.Accelerator._warn = warn
  rawset(a, "_warn", function(_, text) said[#said + 1] = text end)
  return a
end

local function with(config, o)
  o = o or {}
  config.zero_optimization = config.zero_optimization or { stage = 2 }
  o.deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = config }
  return accelerator(o)
end

local function loader(n) return accel.data.DataLoader(accel.data.TensorDataset(accel.rand(24, 3)), { batch_size = n }) end

local function model(width)
  local net = nn.Linear(3, 2)
  rawset(net, "config", { hidden_size = width or 16 })
  return net
end

do -- auto
  local a = with({
    train_batch_size = "auto", train_micro_batch_size_per_gpu = "auto", gradient_accumulation_steps = "auto", gradient_clipping = "auto",
    zero_optimization = { stage = 3, reduce_bucket_size = "auto", stage3_prefetch_bucket_size = "auto",
      stage3_param_persistence_threshold = "auto", stage3_gather_16bit_weights_on_model_save = "auto" },
    optimizer = { type = "AdamW", params = { lr = "auto", weight_decay = "auto", betas = { 0.8, 0.9 } } },
    scheduler = { type = "WarmupDecayLR", params = { warmup_min_lr = "auto", warmup_max_lr = "auto", warmup_num_steps = "auto",
      total_num_steps = "auto" } },
  }, { gradient_accumulation_steps = 3 })
  local net = model(20)
  local dummy = A.DummyOptim(net:parameters(), 0.25, 0.125)
  local m, o, s, l = a:prepare(net, dummy, A.DummyScheduler(dummy, 100, 7), loader(4), loader(6))
  local c = a.deepspeed_config
  assert(c.train_micro_batch_size_per_gpu == 4 and c.gradient_accumulation_steps == 3 and c.train_batch_size == 12)
  assert(c.gradient_clipping == 1.0 and c.zero_optimization.reduce_bucket_size == 400)
  assert(c.zero_optimization.stage3_prefetch_bucket_size == 360 and c.zero_optimization.stage3_param_persistence_threshold == 200)
  assert(c.zero_optimization.stage3_gather_16bit_weights_on_model_save == false and c.optimizer.params.lr == 0.25)
  assert(c.scheduler.params.warmup_max_lr == 0.25 and c.scheduler.params.total_num_steps == 100 and c.scheduler.params.warmup_num_steps == 7)
  assert(o.param_groups[1].weight_decay == 0.125 and o.param_groups[1].betas[1] == 0.8 and s:get_last_lr()[1] == 0)
  assert(accel.is_tensor(m.weight) and l.batch_size == 4 and a.distributed_type == "DEEPSPEED" and a.state.distributed_type == "DEEPSPEED")
  fails("zero3_save_16bit_model", a.get_state_dict, a, m)
end

do -- the largest of several loaders; split batches; nothing without a loader; a batch size of the configuration
  A.AcceleratorState._reset_state(true)
  local a = accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { is_train_batch_min = false, zero_stage = 1 } }
  a:prepare(model(), loader(4), loader(6))
  assert(a.deepspeed_config.train_batch_size == 6)
  a = accelerator { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 1 } }
  a:prepare(model())
  assert(a.deepspeed_config.train_batch_size == "auto")
  a = with { train_batch_size = 12, gradient_accumulation_steps = 2 }
  a:prepare(model(), loader(6))
  fails("train_batch_size is not train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks: 12 != 5 * 2 * 1",
    function() local b = with { train_batch_size = 12, gradient_accumulation_steps = 2 } b:prepare(model(), loader(5)) end)
  a = with { train_micro_batch_size_per_gpu = 8 }
  a:prepare(model(), loader(4))
  assert(#said == 1 and said[1]:find "the loaders make batches of 4", said[1])
  fails("has no batch_size", function()
    a = with { train_micro_batch_size_per_gpu = "auto" }
    a:prepare(model(), accel.data.DataLoader(accel.data.TensorDataset(accel.rand(4, 3)), { batch_size = false }))
  end)
end

do -- auto without a value
  local function hidden(net)
    local a = with { zero_optimization = { stage = 2, reduce_bucket_size = "auto" } }
    a:prepare(net)
  end
  fails("the model has no config, so that zero_optimization.reduce_bucket_size", hidden, nn.Linear(3, 2))
  local net = nn.Linear(3, 2)
  rawset(net, "config", {})
  fails("neither hidden_size nor hidden_sizes", hidden, net)
  fails("`optimizer.params.eps` not found", function()
    local a = with { optimizer = { type = "AdamW", params = { eps = "auto" } } }
    a:prepare(model(), A.DummyOptim(net:parameters()))
  end)
end

do -- keys
  local function key(part, config) fails(part, with, config) end
  key("'zero_optimisation' is not a key; did you mean 'zero_optimization'?", { zero_optimisation = {} })
  key("'zero_optimization.reduce_buckt_size' is not a key; did you mean 'zero_optimization.reduce_bucket_size'?",
    { zero_optimization = { stage = 2, reduce_buckt_size = 1 } })
  key("'fp16.loss_scal' is not a key", { fp16 = { loss_scal = 1 } })
  key("accel does not support amp; use fp16", { amp = { enabled = true } })
  key("zero_stage must be 0, 1, 2 or 3, got 4", { zero_optimization = { stage = 4 } })
  key("fp16 must be a table of keys", { fp16 = true })
  key("enables both fp16 and bf16", { fp16 = { enabled = true }, bf16 = { enabled = true } })
  with { amp = { enabled = false }, zero_optimization = { stage = 2, contiguous_gradients = true, overlap_comm = true,
    allgather_partitions = true }, wall_clock_breakdown = false, fp16 = { enabled = false } }
  assert(#said == 0, said[1])
  with { steps_per_print = 10 } -- as in the reference it is infinite from then on
  assert(#said == 1 and said[1]:find("steps_per_print (", 1, true), said[1])
  with { zero_optimization = { stage = 3, stage3_gather_fp16_weights_on_model_save = true } } -- the key's earlier name
  assert(#said == 0, said[1])
  assert(accel.AcceleratorState().deepspeed_plugin.zero3_save_16bit_model == true)
  with { fp16 = { loss_scale_window = 5 }, zero_optimization = { stage = 2, stage3_prefetch_bucket_size = 7, sub_group_size = 4096 } }
  assert(#said == 1 and said[1]:find("fp16.loss_scale_window (fp16 is not enabled)", 1, true) and said[1]:find "sub_group_size"
    and said[1]:find("stage3_prefetch_bucket_size (it is of stage 3)", 1, true), said[1])
  with { flops_profiler = { enabled = true }, zero_optimization = { stage = 2, contiguous_gradients = false } }
  assert(#said == 1 and said[1]:find("zero_optimization.contiguous_gradients (", 1, true) and said[1]:find "flops_profiler %(", said[1])
end

do -- sources of optimizers and schedules
  local function both(part, config, objects)
    fails(part, function()
      local a = with(config)
      a:prepare(table.unpack(objects(model())))
    end)
  end
  local optimizer, schedule = { type = "AdamW", params = {} }, { type = "WarmupLR", params = {} }
  both("both define an optimizer", { optimizer = optimizer }, function(m) return { m, accel.optim.SGD(m:parameters()) } end)
  both("stands for the optimizer of the DeepSpeed configuration, which has none", {}, function(m)
    return { m, A.DummyOptim(m:parameters()) }
  end)
  both("both define a schedule", { scheduler = schedule }, function(m)
    local o = accel.optim.SGD(m:parameters())
    return { m, o, accel.optim.lr_scheduler.StepLR(o, 2) }
  end)
  both("lr_scheduler_callable", { optimizer = optimizer }, function(m)
    local o = A.DummyOptim(m:parameters())
    return { m, o, A.DummyScheduler(o) }
  end)
  both("must be a DummyScheduler", { optimizer = optimizer }, function(m)
    return { m, A.DummyOptim(m:parameters()), accel.optim.lr_scheduler.StepLR(accel.optim.SGD(m:parameters()), 2) }
  end)
  both("did you mean 'AdamW'?", { optimizer = { type = "AdmW" } }, function(m) return { m, A.DummyOptim(m:parameters()) } end)
  both("accel does not support optimizer.type 'OneBitAdam'; use AdamW", { optimizer = { type = "OneBitAdam" } }, function(m)
    return { m, A.DummyOptim(m:parameters()) }
  end)
  both("set gradient_clipping", { optimizer = { type = "Adam", params = { max_grad_norm = 1 } } }, function(m)
    return { m, A.DummyOptim(m:parameters()) }
  end)
  both("scheduler.type 'WarmLR' is unknown; did you mean 'WarmupLR'?", { optimizer = optimizer, scheduler = { type = "WarmLR" } }, function(m)
    local o = A.DummyOptim(m:parameters())
    return { m, o, A.DummyScheduler(o) }
  end)
  A.AcceleratorState._reset_state(true)
  local plain = accel.Accelerator()
  fails("there is no deepspeed_plugin", plain.prepare, plain, model(), A.DummyOptim(model():parameters()))
end

do -- a callable schedule; a real optimizer with a real schedule, stepped by the script
  local a = with { optimizer = { type = "SGD", params = { lr = 1.0 } }, gradient_clipping = 0 }
  local net = model()
  local dummy = A.DummyOptim(net:parameters())
  local schedule = A.DummyScheduler(dummy, { lr_scheduler_callable = function(o) return accel.optim.lr_scheduler.StepLR(o, 1, 0.5) end })
  local m, o, s = a:prepare(net, dummy, schedule)
  a:backward(m(accel.ones(1, 3)):sum())
  assert(s:get_last_lr()[1] == 0.5 and o.applied == 1 and m.weight.grad == nil)
  s:step()
  o:step()
  assert(s:get_last_lr()[1] == 0.5 and o.applied == 1)

  a = with { gradient_clipping = 1.0 }
  net = model()
  local sgd = accel.optim.SGD(net:parameters(), { lr = 1 })
  m, o, s = a:prepare(net, sgd, accel.optim.lr_scheduler.StepLR(sgd, 1, 0.5))
  a:backward(m(accel.ones(1, 3)):sum() * 100)
  assert(a.deepspeed_engine_wrapped:get_global_grad_norm() > 100 and s:get_last_lr()[1] == 1)
  local norm = a:clip_grad_norm_(m:parameters(), 1.0)
  assert(norm:item() > 100 and #said == 0)
  a:clip_grad_norm_(m:parameters(), 0.5)
  assert(#said == 1 and said[1]:find "max_norm = 0.5 has no effect")
  fails("backward has already stepped", a.clip_grad_value_, a, m:parameters(), 1)
  o:step()
  s:step()
  assert(o.applied == 1 and s:get_last_lr()[1] == 0.5)
  local loss = m(accel.ones(1, 3)):sum() -- a backward that is the script's own is stepped by the script
  loss:backward()
  o:step()
  assert(o.applied == 2)
end

do -- several optimizers in one Accelerator: each steps by itself, clipped
  local a = with { gradient_clipping = 1.0 }
  local one, two = model(), model()
  local m1, m2, o1, o2 = a:prepare(one, two, accel.optim.SGD(one:parameters(), { lr = 1 }), accel.optim.SGD(two:parameters(), { lr = 1 }))
  local before = one.weight:detach():clone()
  a:backward(m1(accel.ones(1, 3)):sum() * 100)
  assert(accel.equal(before, one.weight:detach()) and o1.applied == 0)
  o1:step()
  assert(o1.applied == 1 and o2.applied == 0 and m2 ~= m1)
  assert((before - one.weight:detach()):pow(2):sum():item() < 1.0001)
end

do -- precision: of the constructor into blocks, of blocks into the Accelerator
  local a = with({ bf16 = { enabled = "auto" } }, { mixed_precision = "bf16" })
  assert(a.mixed_precision == "bf16" and a.deepspeed_config.bf16.enabled == true and a.deepspeed_config.fp16.enabled == false)
  assert(a.state.mixed_precision == "bf16" and a.scaler == nil)
  a = with { fp16 = { enabled = true, loss_scale = 512 } }
  assert(a.mixed_precision == "fp16" and a.scaler:get_scale() == 512)
  fails("mixed_precision = 'bf16', but the DeepSpeed config enables fp16", with, { fp16 = { enabled = true } }, { mixed_precision = "bf16" })
  local net = a:prepare(model())
  assert(net(accel.ones(1, 3)).dtype == "f32")
end

do -- several plugins
  local D = accel.DeepSpeedPlugin
  local student, teacher = D { hf_ds_config = { zero_optimization = { stage = 2 }, gradient_clipping = 1.0 } },
    D { hf_ds_config = { zero_optimization = { stage = 3 }, bf16 = { enabled = true } } }
  local a = accelerator { deepspeed_plugins = { student = student, teacher = teacher } }
  assert(a.deepspeed_plugin == student and a.state:get_deepspeed_plugin "teacher" == teacher and a.mixed_precision == "no")
  local first = model()
  local one, o1 = a:prepare(first, accel.optim.SGD(first:parameters()))
  local b = accel.Accelerator()
  b.state:select_deepspeed_plugin "teacher"
  assert(b.deepspeed_plugin == teacher and a.deepspeed_plugin == teacher and b.mixed_precision == "bf16")
  local two = b:prepare(model())
  assert(a.deepspeed_engine_wrapped.plugin == student and b.deepspeed_engine_wrapped.plugin == teacher and one ~= two and o1)
  fails("did you mean 'teacher'?", b.state.select_deepspeed_plugin, b.state, "teachr")
  fails("a second one takes no deepspeed_plugin", accel.Accelerator, { deepspeed_plugin = D {} })
  A.AcceleratorState._reset_state(true)
  fails("not both", accel.Accelerator, { deepspeed_plugin = D {}, deepspeed_plugins = { a = D {} } })
  fails("deepspeed_plugins.a must be a DeepSpeedPlugin", accel.Accelerator, { deepspeed_plugins = { a = {} } })
  assert(accel.Accelerator().deepspeed_plugin == nil)
end
A.AcceleratorState._reset_state(true)
print "ok"
