--- Tracking: numbers of a run, written by a tracker of your own.
---
---   accel-run [--num-processes N] examples/16_tracking.lua [--log FILE] [--epochs N] [DIR]
---
--- A tracker is a class with a name and the methods start, store_init_configuration, log and finish. It is passed to
--- the Accelerator, whose init_trackers, log and end_training call it only on the main rank. On the others they do
--- nothing, so the loop needs no `if`. This one writes one JSON object per line, to --log or to standard output, with
--- the same lines on 1, 2 and 4 ranks. In Python: examples/by_feature/tracking.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "16_tracking.lua", usage = "[options] [DIR]", summary = "Writes the numbers of a run as lines of JSON.",
  { "log", "string", nil, "FILE", "append the lines to this file instead of printing them" },
  { "epochs", "int", 3, "N", "passes over the data" },
  { "batch", "int", 32, "N", "pictures a step, over all ranks" },
  { "lr", "number", 5e-3, "X", "learning rate" },
  { "seed", "int", 1, "N", "of weights and order" },
}
local o, dirs = accel.util.cli(declared)

-- The tracker --------------------------------------------------------------------------------------

local JsonLines = accel.accelerator.GeneralTracker:extend "JsonLines"
JsonLines.name, JsonLines.requires_logging_directory = "json_lines", false

function JsonLines:init(path) self.path = path end

--- Called by init_trackers, on the main rank: files are opened here, not in the constructor.
function JsonLines:start()
  local message
  self.file = io.stdout
  if self.path then self.file, message = io.open(self.path, "a") end
  if not self.file then accel.util.cli.fail(declared, message) end
end

--- The result of accelerator:get_tracker("json_lines", true).
function JsonLines:tracker() return self.file end

function JsonLines:write(entry) self.file:write(accel.json.encode(entry), "\n") end

function JsonLines:store_init_configuration(values) self:write { config = values } end

--- People compare numbers to three digits. The last digits of a sum over ranks depend on their number.
function JsonLines:log(values, step)
  local shown = {}
  for name, value in pairs(values) do
    shown[name] = math.type(value) == "float" and tonumber(("%.3g"):format(value)) or value
  end
  self:write { step = step, values = shown }
end

function JsonLines:finish()
  if self.path then self.file:close() end
end

-- The run ------------------------------------------------------------------------------------------

local accelerator = accel.Accelerator { log_with = JsonLines(o.log), split_batches = true }
accelerator:init_trackers("digits", { batch = o.batch, lr = o.lr, epochs = o.epochs, seed = o.seed })

local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "digits"
local function open(part)
  local set, message = data.IDX.open(("%s/%s-images-idx3-ubyte"):format(dir, part),
    ("%s/%s-labels-idx1-ubyte"):format(dir, part), { scale = 16 })
  return set or accel.util.cli.fail(declared, message)
end

accel.manual_seed(o.seed)
local model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
local optimizer = optim.AdamW(model:parameters(), { lr = o.lr })
local train_loader = data.DataLoader(open "train", {
  batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed,
})
local test_loader = data.DataLoader(open "test", { batch_size = 64 })
model, optimizer, train_loader, test_loader = accelerator:prepare(model, optimizer, train_loader, test_loader)

local step = 0
for epoch = 1, o.epochs do
  model:train()
  local sum = 0
  for batch in train_loader() do
    local loss = nn.functional.cross_entropy(model(batch[1]), batch[2])
    accelerator:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    sum, step = sum + loss:detach(), step + 1
  end
  model:eval()
  local accuracy = accel.metrics.Accuracy()
  for batch in test_loader() do
    accuracy:update(accel.no_grad(function() return model(batch[1]):argmax(2) end), batch[2])
  end
  accelerator:log({
    epoch = epoch, train_loss = accelerator:reduce(sum / #train_loader, "mean"):item(),
    accuracy = accuracy:compute().accuracy,
  }, step)
end
accelerator:end_training()
