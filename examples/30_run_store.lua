--- The run store: the logs of two runs, in one file, and their differences.
---
---   accel-run [--num-processes N] examples/30_run_store.lua [--out DIR] [--steps N]
---   accel-run runs ls --store DIR       accel-run ui DIR
---
--- Two runs fit a line, with two learning rates. The second one is too fast and its loss diverges, which an alert notes. Numbers,
--- the line as an image, and the configuration go into DIR/runs.db. At the end the two curves are drawn from it. In Python:
--- examples/by_feature/tracking.py with a tracker of another package.
local accel = require "accel"
local nn, optim = accel.nn, accel.optim

local declared = {
  name = "30_run_store.lua", usage = "[options]", summary = "Two runs in one store.",
  { "out", "string", "runs", "DIR", "folder of the store" },
  { "steps", "int", 60, "N", "steps of each run" },
  { "seed", "int", 1, "N", "of data and weights" },
}
local o = accel.util.cli(declared)

--- The position of the line: 16 x 16 pixels, white on black.
local function picture(model)
  local slope, offset = model.weight:item(), model.bias:item()
  local image = accel.zeros(16, 16)
  for x = 0, 15 do
    local y = 8 - math.floor(4 * (slope * (x / 8 - 1) + offset) + 0.5)
    if y >= 0 and y < 16 then image[y + 1][x + 1] = 1 end
  end
  return image
end

local function fit(name, lr)
  accel.manual_seed(o.seed)
  local accelerator = accel.Accelerator { log_with = "store", project_dir = o.out }
  accelerator:init_trackers("line", { lr = lr, steps = o.steps, seed = o.seed }, {
    store = { name = name, alerts = { hook = function(alert) print(("%s: %s (%s)"):format(name, alert.title, alert.text)) end } },
  })
  local model = nn.Linear(1, 1)
  local optimizer = optim.SGD(model:parameters(), { lr = lr })
  local x = accel.linspace(-1, 1, 64):reshape(64, 1)
  local y = x * 1.5 - 0.5
  model, optimizer = accelerator:prepare(model, optimizer)
  local inner = accelerator:unwrap_model(model)
  for step = 1, o.steps do
    local loss = ((model(x) - y) ^ 2):mean()
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    accelerator:log({ train = { loss = loss:item() }, slope = inner.weight:item() }, step)
    if step % 20 == 0 then accelerator:get_tracker("store"):log_images({ line = picture(inner) }, step) end
  end
  accelerator:end_training()
end

fit("steady", 0.1)
fit("too-fast", 1.15)

if accel.dist.get_rank() == 0 then
  local store = accel.track.Store(o.out)
  for _, run in ipairs(store:runs()) do print(run.name, run.status, "lr " .. store:config(run).lr) end
  print()
  accel.plot(o.out, { run = "steady", metric = "train/loss", height = 8 })
end
