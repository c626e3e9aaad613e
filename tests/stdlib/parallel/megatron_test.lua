-- Megatron's plugin: schedules of rate and weight decay by formula, what it says of settings that contradict each other; memory of 1f1b,
-- which does not grow with the number of micro-batches.
--   accel-run tests/stdlib/parallel/megatron_test.lua
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, R = accel.accelerator, ranks.rank

if not ranks.launched then
  local function made(plugin, total, warmup)
    local optimizer = accel.optim.AdamW(accel.ones(1), { lr = 1, weight_decay = 0.1 })
    local schedule = A.MegatronLMDummyScheduler(optimizer, total, warmup)
    schedule:configure(accel.MegatronLMPlugin(plugin), 8)
    return function(steps)
      while schedule.last_epoch < steps do schedule:step() end
      return optimizer.param_groups[1].lr, optimizer.param_groups[1].weight_decay
    end
  end
  local function near(a, b, what) assert(math.abs(a - b) < 1e-12, ("%s: %.15g, not %.15g"):format(what, a, b)) end
  local at = made({ lr_decay_style = "cosine", lr_decay_iters = 10, lr_warmup_iters = 2, min_lr = 0.1 })
  for step, want in ipairs { 0.5, 1, 0.1 + 0.9 * 0.5 * (math.cos(math.pi / 8) + 1) } do near(at(step), want, "cosine") end
  near(at(10), 0.1, "end")
  near(at(11), 0.1, "behind the end")
  at = made({ min_lr = 0.2 }, 5, 0)
  near(at(1), 0.2 + 0.8 * 0.8, "linear")
  at = made({ lr_decay_style = "inverse-square-root", lr_warmup_iters = 4, lr_decay_iters = 100 })
  near(at(2), 0.5, "warm-up")
  near(at(16), 0.5, "inverse square root")
  at = made({ lr_decay_style = "constant", lr_warmup_samples = 16 }) -- of 8 samples an update
  near(at(1), 0.5, "samples")
  near(at(7), 1, "constant")
  at = made({ weight_decay_incr_style = "linear", start_weight_decay = 0.1, end_weight_decay = 0.3, train_iters = 10 })
  near(select(2, at(5)), 0.2, "weight decay")
  near(select(2, at(20)), 0.3, "weight decay at the end")
  at = made({ lr_warmup_fraction = 0.5, lr_decay_iters = 10 })
  near(at(5), 1, "fraction")
  -- two lengths: Megatron's order, and the one that loses is said
  local no_effect, heard, was = require "accel.util.no_effect", {}, warn
  local function heard_of(plugin, total, warmup)
    no_effect.reset()
    heard = {}
    warn = function(...) heard[#heard + 1] = table.concat { ... } end -- luacheck: ignore 121
    at = made(plugin, total, warmup)
    warn = was -- luacheck: ignore 121
    return table.concat(heard, "\n")
  end
  for _, case in ipairs {
    { { train_iters = 10 }, 5, 10, "total_num_steps has no effect on the schedule beside train_iters" },
    { { train_samples = 80 }, 5, 5, "train_samples has no effect on the schedule beside total_num_steps" },
    { { train_iters = 10, lr_decay_iters = 4 }, nil, 4, "train_iters has no effect on the schedule beside lr_decay_iters" },
    { { lr_decay_samples = 32 }, 20, 4, "total_num_steps has no effect on the schedule beside lr_decay_samples" },
    { { train_iters = 10 }, nil, 10 }, { { train_samples = 80 }, nil, 10 }, { { train_iters = 10 }, 10, 10 },
    { { train_iters = 9, megatron_dataset_flag = true }, nil, 9 },
    { { train_iters = 9, lr_decay_iters = 3, megatron_dataset_flag = true }, nil, 3 },
  } do
    local text = heard_of(case[1], case[2], 0)
    near(at(1), 1 - 1 / case[3], "length of the schedule")
    assert(case[4] and text:find(case[4], 1, true) or not case[4] and text == "", text)
  end
  assert(heard_of({ lr_warmup_iters = 4, train_iters = 9 }, nil, 2):find "warmup_num_steps has no effect beside the warm%-up of the plugin")
  near(at(1), 0.25, "warm-up of the plugin")
  ranks.fails("give lr_decay_iters or lr_decay_samples", made, { lr_decay_iters = 1, lr_decay_samples = 3 })
  ranks.fails("lr_warmup_fraction needs", made, { lr_warmup_fraction = 0.1 })
  ranks.fails("needs start_weight_decay", made, { weight_decay_incr_style = "cosine" })
  local function mesh(plugin) return accel.MegatronLMPlugin(plugin):parallelism(2) end
  ranks.fails("MegatronLMPlugin: pipeline_schedule must be one of", mesh, { pp_degree = 2, pipeline_schedule = "1b1f" })
  ranks.fails("'interleaved' needs num_layers_per_virtual_pipeline_stage", mesh, { pp_degree = 2, pipeline_schedule = "interleaved" })
  mesh { pp_degree = 2, pipeline_schedule = "interleaved", num_layers_per_virtual_pipeline_stage = 1 }
  ranks.fails("lr_decay_style must be one of constant, linear, cosine", made, { lr_decay_style = "step" })

  -- a launch with Megatron's flags, and one with those of a mesh
  local losses = {}
  for _, flags in ipairs { "--use_megatron_lm --megatron_lm_pp_degree 2 --megatron_lm_num_micro_batches 2",
    "--use_fsdp --fsdp_version 2 --use_parallelism_config --parallelism_config_tp_size 2" } do
    local pipe = assert(io.popen(("'%s' launch --num_processes 2 %s '%s' launched 2>&1"):format(accel.process.program(), flags, arg[0])))
    local said = pipe:read "a"
    assert(pipe:close(), said)
    losses[#losses + 1] = said:match "mesh %S+"
  end
  ranks.same(losses, { "mesh DeviceMesh(pp=2)", "mesh DeviceMesh(tp=2)" }, "meshes of launches")

  local take = ranks.sample.one_of(3)
  for _, schedule in ipairs { "1f1b", "gpipe", "zero_bubble" } do
    local peak = {}
    for _, micros in ipairs(take() and { 4, 16 } or {}) do
      local said = ranks.run(2, { args = ("%s %d"):format(schedule, micros), capture = true, env = { ACCEL_GC = "exact" } })
      peak[micros] = tonumber(said:match "peak (%d+)")
    end
    if peak[4] then -- activations of 2 micro-batches, whatever their number, or of all
      local grows = peak[16] / peak[4]
      assert(schedule == "gpipe" and grows > 1.8 or schedule ~= "gpipe" and grows < 1.15, ("%s: %d, %d"):format(schedule, peak[4], peak[16]))
    end
  end
  return
end

if arg[1] == "launched" then
  local a = accel.Accelerator {}
  local model = a:prepare(accel.models.GPT2(accel.models.tiny.gpt2))
  local ids = accel.tensor { { 1, 2, 3, 4 }, { 5, 6, 7, 8 } }
  a:backward(model(ids, { labels = ids }))
  assert(a.distributed_type == (a.megatron_lm_plugin and "MEGATRON_LM" or "FSDP"))
  if R == 0 then print(("mesh %s"):format(tostring(a.torch_device_mesh))) end
  return
end

--- Bytes of activations at the most during a step of so many micro-batches of equal size.
local schedule, micros = arg[1], tonumber(arg[2])
local a = accel.Accelerator { parallelism_config = accel.ParallelismConfig { pp_size = 2,
  pp_handler = A.PipelineParallelConfig { num_micro_batches = micros, schedule = schedule } } }
accel.manual_seed(1)
local model = a:prepare(accel.models.GPT2 { vocab_size = 16, n_positions = 128, n_embd = 64, n_layer = 4, n_head = 4 })
local ids = accel.randint(0, 16, { 2 * micros, 128 }, { generator = accel.Generator(1) })
for _ = 1, 2 do
  a:backward(model(ids, { labels = ids }))
  for _, p in ipairs(model:parameters()) do p.grad = nil end
end
if R == 0 then print(("peak %d"):format(accel.mem_stats().peak_bytes)) end
