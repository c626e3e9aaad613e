--- Profiling: the time and memory of a training step.
---
---   accel-run [--num-processes N] examples/32_profiler.lua [--traces DIR] [--steps N] [DIR]
---
--- A ProfileKwargs sets the recorded data and the schedule: here one step waits, one warms up, two are kept, twice. prof:step()
--- ends each step. When a cycle is complete, on_trace_ready prints a table of the most expensive ops. With --traces every rank
--- writes DIR/profile_<rank>.json at the end, for ui.perfetto.dev, all of them on one clock. In Python:
--- examples/by_feature/profiler.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "32_profiler.lua", usage = "[options] [DIR]", summary = "Profiles some steps of a training loop.",
  { "traces", "string", nil, "DIR", "write a trace of every rank there" },
  { "steps", "int", 9, "N", "steps to train" },
  { "batch", "int", 64, "N", "pictures a step, over all ranks" },
  { "seed", "int", 1, "N", "of weights and order" },
}
local o, dirs = accel.util.cli(declared)

local accelerator
local cycles = 0

--- The ops of one cycle, on the main rank.
local function on_trace_ready(prof)
  cycles = cycles + 1
  local sums = prof:key_averages()
  accelerator:print(("cycle %d: %d steps recorded, %d calls of linear, %.2f MFLOP"):format(cycles, sums:find("ProfilerStep*").count,
    sums:find("linear").count, sums:total_average().flops / 1e6))
  if accelerator.is_main_process then
    io.stderr:write(sums:table { sort_by = "self_cpu_time_total", row_limit = 10 })
    for _, device in ipairs(prof:memory_timeline()) do
      if device.device == "cpu" then
        io.stderr:write(("peak %.2f MB: parameters %.2f, gradients %.2f, states %.2f, activations %.2f\n"):format(device.peak.total / 1e6,
          device.peak.parameters / 1e6, device.peak.gradients / 1e6, device.peak.states / 1e6, device.peak.activations / 1e6))
      end
    end
  end
end

accelerator = accel.Accelerator {
  split_batches = true,
  kwargs_handlers = { accel.ProfileKwargs {
    activities = { "cpu" }, record_shapes = true, profile_memory = true, with_flops = true, with_modules = true,
    schedule_option = { wait = 1, warmup = 1, active = 2, ["repeat"] = 2, skip_first = 1 },
    on_trace_ready = on_trace_ready, output_trace_dir = o.traces,
  } },
}

local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "digits"
local train, message = data.IDX.open(dir .. "/train-images-idx3-ubyte", dir .. "/train-labels-idx1-ubyte", { scale = 16 })
if not train then accel.util.cli.fail(declared, message) end

accel.manual_seed(o.seed)
local model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
local optimizer = optim.AdamW(model:parameters(), { lr = 5e-3 })
local loader = data.DataLoader(train, { batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed })
model, optimizer, loader = accelerator:prepare(model, optimizer, loader)

accelerator:profile(nil, function(prof)
  local step = 0
  for batch in loader() do
    local loss
    do -- a span of the script's own
      local _ <close> = accel.profiler.record_function "forward"
      loss = nn.functional.cross_entropy(model(batch[1]), batch[2])
    end
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    prof:step()
    step = step + 1
    if step == o.steps then break end
  end
end)
accelerator:print(("%d cycles recorded"):format(cycles))
