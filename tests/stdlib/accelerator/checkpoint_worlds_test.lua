-- A checkpoint of N ranks on M, for all N and M of 1 to 4: every bit of models, optimizers and schedules, every sample of the
-- interrupted epoch once and in its order, and on as many ranks the same numbers behind it. Tensors are cut so that ranks share the writing.
--   accel-run tests/stdlib/accelerator/checkpoint_worlds_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, optim, data, dist = accel.nn, accel.optim, accel.data, accel.dist
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local LENGTH <const>, STEPS <const> = 61, 4

if not ranks.launched then
  local digests = {}
  os.execute(("rm -rf '%s/worlds'"):format(tmp))
  for n = 1, 4 do
    digests[n] = ranks.run(n, { args = "save " .. n, capture = true }):match "digest (%S+)"
    for m = 1, 4 do
      local out = ranks.run(m, { args = ("load %d"):format(n), capture = true })
      assert(out:match "digest (%S+)" == digests[n], ("%d ranks to %d: %s, not %s"):format(n, m, out, digests[n]))
      assert(out:find "every sample once", out)
    end
  end
  case "another number of processes"
  return
end

local action, path = arg[1], ("%s/worlds/%s"):format(tmp, arg[2])

accel.set_seed(action == "save" and 5 or 6, { device_specific = action == "save" and arg[2] == "3" })
local a = accel.Accelerator()
local net = nn.Sequential(nn.Linear(3, 300), nn.Tanh(), nn.Linear(300, 100), nn.Linear(100, 1))
local opt = optim.AdamW(net:parameters(), { lr = 1e-3 })
local set = data.TensorDataset(accel.arange(LENGTH * 3):view(LENGTH, 3):to "f32":sin(), accel.arange(LENGTH))
local model, optimizer, loader, schedule = a:prepare(net, opt,
  data.DataLoader(set, { batch_size = 2, shuffle = true, seed = 9 }), optim.lr_scheduler.ExponentialLR(opt, 0.9))
if action == "save" then assert(accel.get_rng_state().seed == (arg[2] == "3" and 5 + ranks.rank or 5)) end

--- FNV-1a of everything that does not depend on the number of ranks.
local function digest()
  local h = 0xcbf29ce484222325
  local function add(bytes)
    for i = 1, #bytes do h = (h ~ bytes:byte(i)) * 0x100000001b3 end
  end
  for name, t in pairs(a:get_state_dict(model)) do add(name .. t:contiguous():to_bytes()) end
  local state = optimizer:state_dict()
  for i = 0, #optimizer.param_groups[1].params - 1 do
    for _, key in ipairs { "exp_avg", "exp_avg_sq", "step" } do add(state.state[i][key]:contiguous():to_bytes()) end
  end
  add(("%d %d %.17g %d %s"):format(optimizer.applied, schedule.last_epoch, optimizer.param_groups[1].lr, loader.iteration,
    loader:state_dict().samples))
  return ("%016x"):format(h)
end

local order = data.RandomSampler(LENGTH):order(0, 9)

--- The samples of a batch, of all ranks and without padding.
local function add_samples(list, batch)
  local own, mask = batch[2]:tolist(), loader:mask():tolist()
  for i = #own, 1, -1 do
    if not mask[i] then table.remove(own, i) end
  end
  for _, part in ipairs(a.num_processes > 1 and dist.all_gather_object(own) or { own }) do
    for _, x in ipairs(part) do list[#list + 1] = x end
  end
end

if action == "save" then
  local k, seen = 0, {}
  for batch in loader() do
    a:backward(model(batch[1]):pow(2):mean())
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
    add_samples(seen, batch)
    k = k + 1
    if k == STEPS then
      a:save_state(path)
      break
    end
  end
  for i, x in ipairs(seen) do assert(x == order[i] - 1) end
  if ranks.rank == 0 then
    local c <close> = assert(require "accel.ckpt".open(path))
    local files = {}
    for _, f in ipairs(c.manifest.files) do files[f.name] = f.bytes end
    for r = 1, ranks.size > 1 and ranks.size or 0 do -- the writing is shared out by bytes
      local bytes = files[("model/shard-%05d-model-00001-of-00001.safetensors"):format(r)]
      assert(bytes > 0.7 * 125e3 / ranks.size and bytes < 1.3 * 125e3 / ranks.size + 5000, bytes)
    end
  end
  a:load_state(path) -- and back, for what the loop above has left behind
  if ranks.rank == 0 then print("digest " .. digest()) end
  return
end

a:load_state(path)
local n = tonumber(arg[2])
local seed = accel.get_rng_state().seed
assert(seed == (n == 3 and 5 + ranks.rank or 5), seed)
if ranks.rank == 0 then print("digest " .. digest()) end
local seen = {}
for batch in loader() do
  a:backward(model(batch[1]):pow(2):mean())
  optimizer:step()
  optimizer:zero_grad()
  add_samples(seen, batch)
end
assert(#seen == LENGTH - STEPS * 2 * n, #seen)
for i, x in ipairs(seen) do assert(x == order[STEPS * 2 * n + i] - 1, i) end
assert(loader.iteration == 1 and #loader == -(-LENGTH // (2 * ranks.size)))
if ranks.rank == 0 then print "every sample once" end
