--- Runs that are saved and loaded, for the tests of checkpoints: models, loops, and everything that a run's state consists of
--- as one value that is compared.
local accel = require "accel"
local nn, optim, data, dist = accel.nn, accel.optim, accel.data, accel.dist

local M = {}

--- A run: an Accelerator and what is prepared by it. All numbers follow from o.seed, those of the data from its size.
---@param o {seed: integer?, n: integer?, batch: integer?, opts: table?, optimizer: string?, dropout: number?, split: boolean?}
function M.run(o)
  o = o or {}
  accel.set_seed(o.seed or 1)
  local opts = o.opts or {}
  if o.split then opts.split_batches = true end
  accel.AcceleratorState._reset_state() -- each run chooses its precision
  local run = { a = accel.Accelerator(opts) }
  local net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(o.dropout or 0.2), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
  local opt = optim[o.optimizer or "AdamW"](net:parameters(), { lr = 0.02 })
  local n = o.n or 24
  local x = accel.arange(n * 4):view(n, 4):to "f32" / (2 * n)
  local loader = data.DataLoader(data.TensorDataset(x:sin(), x:cos():narrow(2, 1, 2), accel.arange(n)),
    { batch_size = o.batch or 2, shuffle = true })
  local schedule = optim.lr_scheduler.StepLR(opt, 3, 0.7)
  run.model, run.optimizer, run.loader, run.schedule = run.a:prepare(net, opt, loader, schedule)
  return run
end

--- Trains until `steps` batches were seen in all, or the epoch ends; returns what every step saw. each(run, k) is called behind
--- step k.
function M.train(run, steps, each)
  local seen = {}
  for batch in run.loader() do
    local _ <close> = run.a:accumulate(run.model)
    local loss = nn.functional.mse_loss(run.model(batch[1]), batch[2])
    run.a:backward(loss)
    run.optimizer:step()
    run.schedule:step()
    run.optimizer:zero_grad()
    seen[#seen + 1] = { loss = loss:item(), samples = batch[3]:tolist(), drawn = math.random(1 << 30),
      lr = run.optimizer.param_groups[1].lr }
    _:close()
    if each then each(run, #seen) end
    if #seen == steps then break end
  end
  return seen
end

--- Bytes of every tensor of a state, by name, so that equal means the same bits.
local function bits(value)
  if accel.is_tensor(value) then return value.dtype .. ":" .. value:detach():contiguous():to_bytes() end
  if type(value) ~= "table" then return value end
  local out = {}
  for key, x in pairs(value) do out[key] = bits(x) end
  return out
end
M.bits = bits

--- Everything that a run's state consists of. samplers: without the place of the loader.
function M.state(run)
  local random = accel.get_rng_state()
  local state = { model = bits(run.a:unwrap_model(run.model):state_dict()), optimizer = bits(run.optimizer:state_dict()),
    schedule = run.schedule:state_dict(), loader = run.loader:state_dict(), random = random,
    applied = run.optimizer.applied, skipped = run.optimizer.skipped, step = run.a.gradient_state.step,
    scaler = run.a.scaler and run.a.scaler:state_dict() }
  return state
end

--- A folder of this test that is empty, the same on all ranks.
function M.folder(name)
  local path = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/" .. name
  if dist.get_rank() == 0 then os.execute(("rm -rf '%s'"):format(path)) end
  if dist.get_world_size() > 1 then dist.barrier() end
  return path
end

--- The names in a folder, sorted.
function M.names(path)
  local list = accel.listdir(path) or {}
  table.sort(list)
  return list
end

return M
