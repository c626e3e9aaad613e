-- A job that is shot at in the calls that all ranks make together: gather inside an update, reduce after it, evaluation by
-- gather_for_metrics, checkpoints. Every rank prints what an undisturbed run prints: a hash of the weights, the metrics and the rows of each
-- evaluation.
--   elastic_calls_case.lua FOLDER EPOCHS VICTIM AT WHEN [VICTIM AT WHEN ...]
-- Rank VICTIM (its number at the start) kills itself "before" or "after" its AT-th collective from the Accelerator on. WHEN "all": it kills
-- the whole job, "save": itself, a moment after the AT-th save began. AT = 0: nobody. It also prints the number of collectives of a run.
local accel = require "accel"
local nn, dist = accel.nn, accel.dist
local folder <const>, EPOCHS <const> = arg[1], math.tointeger(tonumber(arg[2]))
local M <const>, ROWS <const> = 4, 2

local stat <close> = assert(io.open "/proc/self/stat")
local pid <const>, job <const> = stat:read("a"):match "^(%d+) %(.-%) %a (%d+)"
local function kill(which) os.execute("kill -9 " .. which) end

local count, armed, plan = 0, false, {} -- what this rank does, by the number of the collective or "save" and that of the save
for i = 3, #arg, 3 do
  if tonumber(arg[i]) == dist.get_rank() then plan[arg[i + 2] == "save" and "save" .. arg[i + 1] or tonumber(arg[i + 1])] = arg[i + 2] end
end
for _, name in ipairs { "all_reduce", "barrier", "broadcast", "all_gather_into_tensor", "all_to_all_single", "all_gather" } do
  local raw = dist[name]
  dist[name] = function(...)
    if not armed then return raw(...) end
    count = count + 1
    local when = plan[count]
    if when == "before" then kill(pid) end
    if when == "all" then kill(job) end
    local result = raw(...)
    if when == "after" then
      if type(result) == "userdata" and result.wait then result:wait() end
      kill(pid)
    end
    return result
  end
end

accel.manual_seed(3)
armed = true
local accelerator = accel.Accelerator {
  micro_batches = M, kwargs_handlers = { accel.DistributedDataParallelKwargs { deterministic = "world" } },
  project_config = accel.ProjectConfiguration { project_dir = folder, automatic_checkpoint_naming = true, total_limit = 2 },
}
local g, n, held <const> = accel.Generator(1), 3 * M * ROWS, 13
local data = accel.data.TensorDataset(accel.randn(n, 4, { generator = g }), accel.randn(n, 2, { generator = g }))
local test = accel.data.TensorDataset(accel.randn(held, 4, { generator = g }), accel.randn(held, 2, { generator = g }), accel.arange(held))
local model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2))
local adam = accel.optim.AdamW(model:parameters(), { lr = 0.02 })
local loader = accel.data.DataLoader(data, { batch_size = ROWS, shuffle = true, seed = 9 })
local tests = accel.data.DataLoader(test, { batch_size = ROWS })
model, adam, loader, tests = accelerator:prepare(model, adam, loader, tests)

local function hash(h, t)
  for c in t:detach():contiguous():to_bytes():gmatch "." do h = h * 0x100000001b3 ~ c:byte() end
  return h
end
local said, saves = {}, 0
local function save(opts)
  saves = saves + 1
  if plan["save" .. saves] then os.execute(("(sleep 0.00%d; kill -9 %s) </dev/null >/dev/null 2>&1 &"):format(saves % 10, pid)) end
  accelerator:save_state(nil, opts)
end
while loader.iteration < EPOCHS do
  model:train()
  for batch in loader() do
    accelerator:accumulate(model, function()
      local loss = (model(batch[1]) - batch[2]):pow(2):mean()
      accelerator:backward(loss)
      if accelerator.sync_gradients then
        local all = accelerator:gather(loss:detach())
        assert(all.ndim == 1 and all.shape[1] >= 1)
      end
      adam:step()
      adam:zero_grad()
    end)
    if accelerator.sync_gradients then
      local ranks = accelerator:reduce(accel.ones(1))
      assert(ranks:item() == accelerator.num_processes, "a reduce of the ranks that are left")
      if accelerator.step % 3 == 2 then save { asynchronous = true } end
    end
  end
  model:eval()
  local seen, metric, total = {}, 7, 0
  for batch in tests() do
    local out
    do
      local _ <close> = accel.no_grad()
      out = model(batch[1])
    end
    local got = accelerator:gather_for_metrics { out = out, want = batch[2], id = batch[3] }
    for _, id in ipairs(got.id:tolist()) do seen[#seen + 1] = id end
    metric = hash(metric, got.out)
    total = total + (got.out - got.want):pow(2):sum():item()
  end
  for i, id in ipairs(seen) do assert(id == i - 1, "the rows of an evaluation") end
  assert(#seen == held)
  said[#said + 1] = ("%016x %.4f"):format(metric, total)
  accelerator:wait_for_everyone()
  save()
  for _ in tests() do end -- rows that nobody gathers end nothing once training goes on
end
accelerator:end_training()
local weights = 0
for _, t in accel.pairs(accelerator:unwrap_model(model):state_dict()) do weights = hash(weights, t) end
io.stdout:write(("hash %016x updates %d evaluations %s collectives %d saves %d\n"):format(weights, accelerator.step, table.concat(said, ", "),
  count, saves))
