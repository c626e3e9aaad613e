--- Prepared loaders over loaders with num_workers, on 1 and 2 ranks: everything that they hand out and tell is what
--- they do without workers. The script starts itself on the ranks.
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
package.path = ranks.tests .. "support/?.lua;" .. package.path
local data, same, says = accel.data, ranks.same, ranks.fails

if ranks.start { 1, 2 } then return end
local P = ranks.size

local function plain(x)
  if accel.is_tensor(x) then return x:tolist() end
  if type(x) ~= "table" then return x end
  local out = {}
  for key, value in next, x do out[key] = plain(value) end
  return out
end

--- All that a pass tells, batch by batch.
local function told(loader, stop)
  local out = {}
  for batch in loader() do
    local rows = loader.rows
    out[#out + 1] = { batch = plain(batch), row0 = loader.row0, last = loader.end_of_dataloader,
      remainder = not loader.base.stream and loader.remainder, -- of streams told late, with workers
      counts = rows and rows.counts, valid = rows and rows.valid }
    if #out == stop then return out end
  end
  return out
end

local function prepared(config, opts, n)
  local o = { num_workers = n, prefetch_factor = 2, persistent_workers = opts.persistent_workers }
  for key, value in next, opts do o[key] = value end
  local accelerator = accel.Accelerator { dataloader_config = accel.DataLoaderConfiguration(config) }
  return accelerator:prepare(data.DataLoader(o)), accelerator
end

local random = data.worker_dataset("worker_data:Random", 21)
local kinds = {
  plain = { { dataset = random, batch_size = 4, shuffle = true } },
  dropped = { { dataset = random, batch_size = 4, drop_last = true } },
  split = { { dataset = random, batch_size = 4 }, { split_batches = true } },
  uneven = { { dataset = random, batch_size = 4 }, { even_batches = false } },
  single = { { dataset = random, batch_size = false } },
  ["batch sampler"] = { { dataset = random, batch_sampler = data.BatchSampler(data.RandomSampler(21), 3) } },
  collated = { { dataset = random, batch_size = 3, collate_fn = "worker_data:noisy_collate" } },
  persistent = { { dataset = random, batch_size = 5, shuffle = true, persistent_workers = true } },
  dispatched = { { dataset = random, batch_size = 4, shuffle = true }, { dispatch_batches = true } },
  ["dispatched and split"] = { { dataset = random, batch_size = 4 },
    { dispatch_batches = true, split_batches = true } },
  ["dispatched stream"] = { { dataset = data.worker_dataset("worker_data:Count", 19), batch_size = 2, one = true },
    { dispatch_batches = true } },
  stream = { { dataset = data.worker_dataset("worker_data:Count", 19), batch_size = 2, one = true },
    { dispatch_batches = false } },
  ["stream, split"] = { { dataset = data.worker_dataset("worker_data:Count", 19), batch_size = 2, one = true },
    { dispatch_batches = false, split_batches = true } },
  shards = { { dataset = data.worker_dataset("worker_data:Sharded", 19, 4), batch_size = 2, one = true },
    { dispatch_batches = false } },
}

for what, kind in accel.pairs(kinds) do
  local opts, config, one = kind[1], kind[2] or {}, kind[1].one
  opts.one = nil
  local bare = prepared(config, opts, 0)
  local first, second = told(bare), told(bare)
  for _, n in ipairs(one and { 1 } or { 1, 3 }) do
    local label = ("%s, %d workers"):format(what, n)
    local loader = prepared(config, opts, n)
    same(told(loader), first, label)
    same(told(loader), second, label .. ", second pass")

    -- left in the middle; then resumed after every batch, by other numbers of workers
    loader:set_epoch(0)
    told(loader, 2)
    assert(loader.iteration == 1, label)
    for k = 1, math.min(#first, 4) - 1 do
      local again = prepared(config, opts, n)
      local state
      for _ in again() do
        if again._position == k then
          state = again:state_dict()
          break
        end
      end
      local other = prepared(config, opts, k % 2 == 0 and 0 or n)
      other:load_state_dict(state)
      same(told(other), table.move(first, k + 1, #first, 1, {}), ("%s, resumed after %d"):format(label, k))
    end
    local skipped, left = accel.skip_first_batches(prepared(config, opts, n), 1), {}
    for batch in skipped() do left[#left + 1] = plain(batch) end
    for k, batch in ipairs(left) do same(batch, first[k + 1].batch, label .. ", skipped") end
    assert(#left == #first - 1, label)
  end
end

do -- several workers over a stream: in turn, the same rounds on all ranks; everything comes once
  local loader, accelerator = prepared({ dispatch_batches = false },
    { dataset = data.worker_dataset("worker_data:Count", 21), batch_size = 2 }, 3)
  local seen, rounds = {}, 0
  for batch in loader() do
    rounds = rounds + 1
    for _, x in ipairs(accelerator:gather_for_metrics(batch):tolist()) do seen[#seen + 1] = x end
  end
  table.sort(seen)
  local want = {}
  for i = 1, 21 do want[i] = i end
  same(seen, want, "all of the stream")
  assert(rounds == 3 * math.ceil(7 / (2 * P)), rounds .. " rounds")
  if P > 1 then
    says("over a stream, ranks would not have the same global batches", prepared,
      { dispatch_batches = false, even_batches = false }, { dataset = data.worker_dataset("worker_data:Count", 21), batch_size = 2 }, 2)
  end
end

do -- workers' data sets are told the epoch
  local loader = prepared({}, { dataset = data.worker_dataset("worker_data:Who", 4 * P), batch_size = 2, seed = 3 }, 2)
  loader:set_epoch(2)
  for batch in loader() do
    same({ batch[4]:tolist(), batch[5]:tolist(), batch[7]:tolist() }, { { 3, 3 }, { 2, 2 }, { 2, 2 } }, "told")
  end
end

do -- an error in a worker of one rank: that rank names it
  local set = data.worker_dataset("worker_data:Random", 16, { fail = 16 })
  local loader = prepared({}, { dataset = set, batch_size = 2 }, 2)
  local ok, err = pcall(told, loader)
  local whose = (16 // 2 - 1) % P
  assert(ok == (ranks.rank ~= whose), tostring(err))
  if not ok then assert(tostring(err):find("sample 16 of Random", 1, true), tostring(err)) end
end

do -- training on what workers read: the same weights
  local function train(n)
    accel.manual_seed(1)
    local accelerator = accel.Accelerator {}
    local x = accel.randn(24, 3)
    local model = accel.nn.Sequential(accel.nn.Linear(3, 4), accel.nn.Dropout(0.5), accel.nn.Linear(4, 1))
    local sgd = accel.optim.SGD(model:parameters(), { lr = 0.1 })
    local loader = data.DataLoader { dataset = data.TensorDataset(x, x:sum(2, true)), batch_size = 4, shuffle = true,
      num_workers = n }
    model, sgd, loader = accelerator:prepare(model, sgd, loader)
    for _ = 1, 2 do
      for batch in loader() do
        sgd:zero_grad()
        accelerator:backward(((model(batch[1]) - batch[2]) ^ 2):mean())
        sgd:step()
      end
    end
    local out = {}
    for _, p in ipairs(accelerator:unwrap_model(model):parameters()) do out[#out + 1] = p:detach():tolist() end
    return out
  end
  local want = train(0)
  same(train(2), want, "weights")
end
if ranks.rank == 0 then print(("loader_workers: ok on %d"):format(P)) end
