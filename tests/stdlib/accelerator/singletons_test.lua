-- The singletons PartialState, AcceleratorState and GradientState agree with the Accelerator in every field, for every distributed
-- type, precision and accumulation, inside of loops and outside, and with several Accelerators; on 1 and 2 ranks.
--   accel-run tests/stdlib/accelerator/singletons_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2 } then return end
local R, P, same, says = ranks.rank, ranks.size, ranks.same, ranks.fails

--- Fields of a singleton, and the Accelerator's names of them where these are others.
local PROCESS <const> = { device = 1, backend = 1, distributed_type = 1, num_processes = 1, process_index = 1, local_process_index = 1,
  is_main_process = 1, is_local_main_process = 1, is_last_process = 1, use_distributed = 1, multi_device = 1 }
local STATE <const> = { mixed_precision = 1, fsdp_plugin = 1, deepspeed_plugin = 1, megatron_lm_plugin = 1, dynamo_plugin = 1,
  parallelism_config = 1, is_fsdp2 = 1, device_mesh = "torch_device_mesh" }
local LOOP <const> = { "sync_gradients", "step", "num_steps", "adjust_scheduler", "sync_with_dataloader", "sync_each_batch",
  "active_dataloader", "in_dataloader", "end_of_dataloader", "remainder", "plugin", "initialized" }

local compared = 0
local function agree(what, a, own)
  local views = { P = accel.PartialState(), A = accel.AcceleratorState(), own = a.state }
  for name, view in pairs(views) do
    if own or name ~= "own" then
      for _, fields in ipairs { PROCESS, name ~= "P" and STATE or {} } do
        for key, other in pairs(fields) do
          local there, here = view[key], a[other == 1 and key or other]
          assert(there == here, ("%s: %s.%s is %s, the Accelerator's is %s"):format(what, name, key, tostring(there), tostring(here)))
          compared = compared + 1
        end
      end
    end
  end
  local state = accel.GradientState()
  for _, key in ipairs(LOOP) do
    local there, here = state[key], a.gradient_state[key]
    assert(there == here, ("%s: GradientState().%s is %s, the Accelerator's is %s"):format(what, key, tostring(there), tostring(here)))
    compared = compared + 1
  end
  assert(state.num_steps == a.gradient_accumulation_steps and state.sync_gradients == a.sync_gradients
    and state.plugin == a.gradient_accumulation_plugin)
  same(#state.dataloader_references, a.gradient_state.in_dataloader and 1 or 0, what .. ": loops under way")
  assert(tostring(state) == tostring(a.gradient_state) and tostring(views.A) == tostring(a.state))
  assert(tostring(views.P):find("distributed_type=" .. a.distributed_type, 1, true), tostring(views.P))
end

--- Trains a little and compares at every micro-step.
local function train(what, a)
  local x = accel.arange(10 * P):to "f32":view(10 * P, 1)
  local net = accel.nn.Linear(1, 1)
  local model, optimizer, loader = a:prepare(net, accel.optim.SGD(net:parameters(), { lr = 1e-4 }),
    accel.data.DataLoader(accel.data.TensorDataset(x), { batch_size = 2 }))
  local flags = {}
  for batch in loader() do
    local _ <close> = a:accumulate(model)
    agree(what .. ", in a loop", a, true)
    assert(accel.GradientState().active_dataloader == loader)
    flags[#flags + 1] = accel.GradientState().sync_gradients and 1 or 0
    a:backward(model(batch[1]):mean())
    optimizer:step()
    optimizer:zero_grad()
  end
  agree(what .. ", behind it", a, true)
  return table.concat(flags)
end

local function ddp() return {} end
local KINDS <const> = {
  { "NO/MULTI_CPU", ddp, P > 1 and "MULTI_CPU" or "NO" },
  { "FSDP 1", function() return { fsdp_plugin = accel.FullyShardedDataParallelPlugin { fsdp_version = 1 } } end, P > 1 and "FSDP" or "NO" },
  { "FSDP 2", function() return { fsdp_plugin = accel.FullyShardedDataParallelPlugin { fsdp_version = 2 } } end, P > 1 and "FSDP" or "NO" },
  { "ZeRO 0", function() return { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 0 } } end, "DEEPSPEED" },
  { "ZeRO 1", function() return { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 1 } } end, "DEEPSPEED" },
  { "ZeRO 2", function() return { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 2 } } end, "DEEPSPEED" },
  { "ZeRO 3", function() return { deepspeed_plugin = accel.DeepSpeedPlugin { zero_stage = 3 } } end, "DEEPSPEED" },
  { "Megatron", function() return { megatron_lm_plugin = accel.MegatronLMPlugin { tp_degree = P, num_micro_batches = 1 } } end, "MEGATRON_LM",
    only = true },
  { "mesh", function() return { parallelism_config = accel.ParallelismConfig { dp_replicate_size = P } } end, P > 1 and "MULTI_CPU" or "NO" },
  { "dynamo", function() return { dynamo_plugin = accel.TorchDynamoPlugin { backend = "eager" } } end, P > 1 and "MULTI_CPU" or "NO" },
}

for _, row in ipairs(KINDS) do
  for steps, precision in pairs { [1] = "no", [3] = "bf16" } do
    accel.AcceleratorState._reset_state(true)
    accel.GradientState._reset_state()
    local what = ("%s, %d steps, %s"):format(row[1], steps, precision)
    local opts = row[2]()
    opts.mixed_precision = precision
    if row[1] ~= "Megatron" and not opts.deepspeed_plugin then opts.gradient_accumulation_steps = steps end
    local a = accel.Accelerator(opts)
    same(a.distributed_type, row[3], what)
    agree(what, a, true)
    if not row.only then
      local flags = train(what, a)
      same(flags, opts.gradient_accumulation_steps == 3 and "00101" or "11111", what .. ": steps that end an update")
    end
    -- what is set through a view is the Accelerator's, and the other way
    if opts.gradient_accumulation_steps then
      accel.GradientState().num_steps = 5
      agree(what .. ", 5 steps", a, true)
      assert(a.gradient_accumulation_steps == 5)
      a.sync_gradients = false
      agree(what .. ", set", a, true)
      accel.GradientState(accel.GradientAccumulationPlugin(7, { sync_with_dataloader = false }))
      agree(what .. ", another plugin", a, true)
      assert(a.gradient_accumulation_steps == 7)
    end
  end
end

do -- several Accelerators: the singletons are those of the last one, and each has a state of its own kind
  accel.AcceleratorState._reset_state(true)
  local first = accel.Accelerator { gradient_accumulation_steps = 2 }
  local second = accel.Accelerator { fsdp_plugin = accel.FullyShardedDataParallelPlugin {}, gradient_accumulation_steps = 4 }
  agree("the second one", second, true)
  same(first.distributed_type, P > 1 and "MULTI_CPU" or "NO", "the first one's")
  same(first.state.distributed_type, first.distributed_type, "the first one's state")
  assert(first.state.fsdp_plugin == nil and second.state.fsdp_plugin ~= nil)
  same(first.gradient_accumulation_steps, 2, "the first one's steps")
  -- two that train on one loader end an update with it, as Accelerate's do; metrics leave padding rows out in any case
  local loader = first:prepare(accel.data.DataLoader(accel.data.TensorDataset(accel.arange(5)), { batch_size = 2 }))
  local accuracy, flags, gathered = accel.metrics.Accuracy(), {}, 0
  for batch in loader() do
    second:accumulate(function() flags[#flags + 1] = second.sync_gradients end)
    accuracy:add_batch(batch[1]:eq(0):to "i64", accel.ones(#batch[1], { dtype = "i64" }))
    gathered = gathered + #second:gather_for_metrics(batch[1])
    assert(accel.GradientState().active_dataloader == loader and second.gradient_state.in_dataloader)
  end
  same({ accuracy:compute().accuracy, gathered, flags[#flags] }, { 0.2, 5, true }, "a loader of another Accelerator")
end

do -- nothing is there to follow, and names that are wrong
  accel.GradientState._reset_state()
  local s = accel.GradientState()
  assert(s.sync_gradients == true and s.num_steps == 1 and not s.in_dataloader and s.remainder == -1 and s.active_dataloader == nil)
  says("no attribute 'sync_gradient'; did you mean 'sync_gradients'?", function() return s.sync_gradient end)
  says("remainder cannot be set", function() s.remainder = 3 end)
  says("num_steps must be a positive integer", function() s.num_steps = 0 end)
  says("sync_gradients must be a boolean", function() s.sync_gradients = "no" end)
  says("expected a GradientAccumulationPlugin", accel.GradientState, 4)
  -- what prepare makes is not made by hand
  says("only accelerator:prepare makes an engine", accel.accelerator.DeepSpeedEngineWrapper)
  says("made by accelerator:prepare", accel.accelerator.DataLoader)
  says("expected a table, a path, JSON or base64, got nil", accel.accelerator.HfDeepSpeedConfig)
  says("made by accelerator:prepare", accel.accelerator.DataLoader, accel.data.DataLoader(accel.data.ListDataset { 1 }))
  local a = accel.Accelerator { gradient_accumulation_steps = 3, fsdp_plugin = accel.FullyShardedDataParallelPlugin {} }
  assert(s.num_steps == 3, "a view that is older than the Accelerator")
  accel.AcceleratorState._reset_state(true)
  local again = accel.Accelerator {}
  agree("after a reset", again, true)
  assert(a.state.distributed_type == again.distributed_type, "views of what was reset follow the new state")
end

if R == 0 then print(("%d fields compared"):format(compared)) end
