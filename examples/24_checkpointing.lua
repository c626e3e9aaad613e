--- Checkpoints: saves the state of a run regularly, and resumes at the next batch.
---
---   accel-run [--num-processes N] [--resume auto] examples/24_checkpointing.lua [--checkpointing-steps N|epoch]
---     [--output-dir DIR] [--resume-from-checkpoint DIR] [DIR]
---
--- There are two ways to resume: accel-run --resume auto loads the newest checkpoint of --output-dir by itself, and
--- SIGTERM saves one and ends with status 75. --resume-from-checkpoint loads the named one. Either way the numbers printed
--- at the end equal an uninterrupted run's. --stop ends it early, like a full disk or a time limit. In Python:
--- examples/by_feature/checkpointing.py.
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data

local declared = {
  name = "24_checkpointing.lua", usage = "[options] [DIR]", summary = "Trains on digits, saves its state and continues from it.",
  { "checkpointing-steps", "string", "epoch", "N", "save every N batches, or at the end of every epoch" },
  { "resume-from-checkpoint", "string", nil, "DIR", "continue from this checkpoint" },
  { "output-dir", "string", "checkpointing", "DIR", "folder of checkpoints; the last two are kept" },
  { "stop", "int", nil, "N", "end after N batches in all" },
  { "epochs", "int", 3, "N", "passes over the data" },
  { "batch", "int", 32, "N", "pictures a step, over all ranks" },
  { "lr", "number", 5e-3, "X", "learning rate" },
  { "seed", "int", 1, "N", "of weights, order and dropout" },
}
local o, dirs = accel.util.cli(declared)
local every = o.checkpointing_steps ~= "epoch" and math.tointeger(tonumber(o.checkpointing_steps)) or nil
if o.checkpointing_steps ~= "epoch" and not (every and every > 0) then
  accel.util.cli.fail(declared, "option '--checkpointing-steps' must be a number of batches or 'epoch', got '"
    .. o.checkpointing_steps .. "'")
end

local accelerator = accel.Accelerator {
  split_batches = true, project_config = accel.ProjectConfiguration {
    project_dir = o.output_dir, automatic_checkpoint_naming = true, total_limit = 2,
  },
}

local dir = dirs[1] or (arg[0]:match "^.*/" or "") .. "digits"
local train, message = data.IDX.open(dir .. "/train-images-idx3-ubyte", dir .. "/train-labels-idx1-ubyte")
if not train then accel.util.cli.fail(declared, message) end
train.scale = math.max(1, train.images:max():item())
local loader = data.DataLoader(train, { batch_size = o.batch, shuffle = true, drop_last = true, seed = o.seed })

accel.manual_seed(o.seed)
local n_pixels = train.images:numel() // #train.labels
local model = nn.Sequential(nn.Flatten(), nn.Linear(n_pixels, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
local optimizer = optim.AdamW(model:parameters(), { lr = o.lr })
local scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
model, optimizer, scheduler, loader = accelerator:prepare(model, optimizer, scheduler, loader)

--- Numbers of the script itself: registered objects are part of the state.
local progress = { batches = 0, loss = 0.0 }
function progress:state_dict() return { batches = self.batches, loss = self.loss } end
function progress:load_state_dict(state) self.batches, self.loss = state.batches, state.loss end
accelerator:register_for_checkpointing(progress) -- with --resume everything is there now, and the state is loaded

if o.resume_from_checkpoint then accelerator:load_state(o.resume_from_checkpoint) end
if progress.batches > 0 then accelerator:print(("continues after batch %d"):format(progress.batches)) end

local function save()
  accelerator:print(("batch %d: saved"):format(progress.batches))
  accelerator:save_state(nil, { asynchronous = true }) -- training continues while it is written
end

for epoch = loader.iteration + 1, o.epochs do
  for batch in loader() do -- the rest of the pass that was interrupted, then whole ones
    local loss = nn.functional.cross_entropy(model(batch[1]), batch[2])
    accelerator:backward(loss)
    optimizer:step()
    scheduler:step()
    optimizer:zero_grad()
    progress.batches = progress.batches + 1
    progress.loss = progress.loss + accelerator:reduce(loss:detach(), "mean"):item() -- the same on all ranks
    if every and progress.batches % every == 0 then save() end
    if progress.batches == o.stop then
      accelerator:end_training() -- waits for pending writes
      return
    end
  end
  accelerator:print(("epoch %d: loss %.4f"):format(epoch, progress.loss / progress.batches))
  if not every then save() end
end
accelerator:end_training()
