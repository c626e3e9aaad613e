-- A job with trackers that loses its main process, for elastic_trackers_test.lua: a row for every micro-batch, update and evaluation.
--   elastic_trackers_case.lua FOLDER AT WHEN WAIT
-- The main process of the start kills itself "before" or "after" its AT-th collective from the first pass on, AT = 0: never. WAIT: seconds
-- that each update takes in addition. Prints the number of collectives.
local accel = require "accel"
local nn, dist = accel.nn, accel.dist
local folder <const>, at <const>, when <const>, wait <const> = arg[1], math.tointeger(tonumber(arg[2])), arg[3], tonumber(arg[4])
local M <const>, ROWS <const> = 4, 2

local count, armed, first = 0, false, dist.get_rank() == 0
for _, name in ipairs { "all_reduce", "barrier", "broadcast", "all_gather_into_tensor", "all_to_all_single", "all_gather" } do
  local raw = dist[name]
  dist[name] = function(...)
    if not armed then return raw(...) end
    count = count + 1
    local now = first and count == at
    if now and when == "before" then os.execute "kill -9 $PPID" end
    local result = raw(...)
    if now then
      if type(result) == "userdata" and result.wait then result:wait() end
      os.execute "kill -9 $PPID"
    end
    return result
  end
end

accel.manual_seed(3)
local names = { "jsonl", "csv", "tensorboard" }
if require "accel.track.core".sqlite() then names[4] = "store" end
local accelerator = accel.Accelerator {
  micro_batches = M, kwargs_handlers = { accel.DistributedDataParallelKwargs { deterministic = "world" } }, log_with = names, project_dir = folder,
}
accelerator:init_trackers("run", { config = { lr = 0.1 }, init_kwargs = { store = { system = false } } })
local g, n = accel.Generator(1), 6 * M * ROWS
local data = accel.data.TensorDataset(accel.randn(n, 4, { generator = g }), accel.arange(n))
local model = nn.Linear(4, 1)
local sgd = accel.optim.SGD(model:parameters(), { lr = 0.1 })
local loader = accel.data.DataLoader(data, { batch_size = ROWS })
model, sgd, loader = accelerator:prepare(model, sgd, loader)
armed = true
while loader.iteration < 2 do
  for batch in loader() do
    if accelerator.is_main_process then assert(accelerator.process_index == 0) end
    accelerator:accumulate(model, function()
      local loss = model(batch[1]):pow(2):mean()
      accelerator:backward(loss)
      if accelerator.sync_gradients then accelerator:log({ try = accelerator.step + 1 }, accelerator.step + 1) end
      sgd:step()
      sgd:zero_grad()
    end)
    if accelerator.sync_gradients then
      accelerator:log({ loss = accelerator.last_update.loss, group = { step = accelerator.step } }, accelerator.step)
      if wait > 0 then os.execute(("sleep %g"):format(wait)) end
    end
  end
  accelerator:log({ epochs = loader.iteration, text = "epoch " .. loader.iteration }, accelerator.step)
end
accelerator:end_training()
io.stdout:write(("collectives %d\n"):format(count))
