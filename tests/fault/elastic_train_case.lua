-- A job to be shot at: an unchanged training loop. Every rank appends the batches that it takes to FOLDER/log.<pid>, the main process
-- prints the losses of all updates and a hash of the final weights.
--   elastic_train_case.lua FOLDER MICRO_BATCHES UPDATES [WORKERS]
local accel = require "accel"
local nn = accel.nn
local folder <const>, M <const>, UPDATES <const> = arg[1], math.tointeger(tonumber(arg[2])), math.tointeger(tonumber(arg[3]))
local ROWS <const>, EPOCHS <const> = 2, 4
local stat <close> = assert(io.open "/proc/self/stat")
local pid = stat:read "n"
local log <close> = assert(io.open(("%s/log.%d"):format(folder, pid), "w"))
log:setvbuf "no"

accel.manual_seed(3)
local accelerator = accel.Accelerator { micro_batches = M, kwargs_handlers = { accel.DistributedDataParallelKwargs { deterministic = "world" } } }
local g, n = accel.Generator(1), UPDATES // EPOCHS * M * ROWS
local data = accel.data.TensorDataset(accel.randn(n, 16, { generator = g }), accel.randn(n, 2, { generator = g }), accel.arange(n))
local model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.BatchNorm1d(64), nn.Dropout(0.2), nn.Linear(64, 2))
local adam = accel.optim.AdamW(model:parameters(), { lr = 0.02 })
local schedule = accel.optim.lr_scheduler.StepLR(adam, 7, { gamma = 0.9 })
local loader = accel.data.DataLoader(data, { batch_size = ROWS, shuffle = true, seed = 9, num_workers = math.tointeger(tonumber(arg[4])) or 0 })
model, adam, schedule, loader = accelerator:prepare(model, adam, schedule, loader)

local losses, changes, redone, step = {}, 0, 0, 0
accelerator:on_membership_change(function() changes = changes + 1 end)
if accelerator.last_update == nil then -- also in a job that is not elastic
  local f <close> = assert(io.open(("%s/pid.%d"):format(folder, accelerator.process_index), "w"))
  f:write(pid, "\n")
end
while loader.iteration < EPOCHS do
  for batch in loader() do
    log:write(("%d %d %d %s\n"):format(accelerator.step + 1, accelerator.generation, loader.iteration, table.concat(batch[3]:tolist(), " ")))
    accelerator:accumulate(model, function()
      local noise = accel.randn_like(batch[1]) * (0.1 * math.random())
      local loss = (model(batch[1] + noise) - batch[2]):pow(2):mean()
      accelerator:backward(loss)
      accelerator:clip_grad_norm_(model:parameters(), 0.5)
      adam:step()
      schedule:step()
      adam:zero_grad()
    end)
    local last = accelerator.last_update
    if last and last.step > step then
      step, redone = last.step, redone + last.redone
      losses[#losses + 1] = ("%a"):format(last.loss)
    end
  end
end
local hash = 0
for _, t in accel.pairs(accelerator:unwrap_model(model):state_dict()) do
  for c in t:detach():contiguous():to_bytes():gmatch "." do hash = hash * 0x100000001b3 ~ c:byte() end
end
local line = ("steps %d hash %016x losses %s changes %d redone %d generation %d size %d\n"):format(accelerator.step, hash,
  table.concat(losses, ","), changes, redone, accelerator.generation, accelerator.num_processes)
io.stdout:write(line)
