-- Training loops over prepared loaders, against what Accelerate did on 1, 2 and 3 processes: batches, metrics, when
-- gradients are averaged, ends, remainders, learning rates (step_unit = "process"), lengths. Then its documented
-- numbers about lengths, skipping and metrics. The script starts itself on the ranks.
--   accel-run tests/stdlib/accelerator/loaders_reference_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A, data, nn, optim = accel.accelerator, accel.data, accel.nn, accel.optim

if ranks.start { 1, 2, 3, 4 } then return end
local R, P = ranks.rank, ranks.size

local function list(t) return accel.is_tensor(t) and t:flatten():tolist() or t end
local function same(got, want, ...)
  ranks.close(list(got), list(want), table.concat({ ... }, " "), type(want) == "number" and 1e-12 or 0)
end

local function range(n) return data.TensorDataset(accel.arange(n):to "f32":view(-1, 1)) end
local function config(o) return A.DataLoaderConfiguration(o) end

-- ---- what Accelerate did ----
local function reference(name, cases)
  local n, size, split, even, dispatch = name:match "^loader_n(%d+)_b(%d+)_split(%a+)_even(%a+)_dispatch(%a+)$"
  local want = cases[name][R + 1].out
  split, even, dispatch = split == "True", even == "True", dispatch == "True"
  local a = accel.Accelerator { cpu = true, gradient_accumulation_steps = 2, step_unit = "process",
    dataloader_config = config { split_batches = split, even_batches = even, dispatch_batches = dispatch } }
  local model = nn.Linear(1, 1)
  local sgd = optim.SGD(model:parameters(), { lr = 1.0 })
  local schedule = optim.lr_scheduler.LambdaLR(sgd, function(k) return 1 / (1 + k) end)
  local loader = data.DataLoader(range(tonumber(n)), { batch_size = tonumber(size) })
  model, sgd, loader, schedule = a:prepare(model, sgd, loader, schedule)
  same(#loader, want.length, name, "length")
  if want.total_batch_size then -- the dispatcher there has none
    same(loader.total_batch_size, want.total_batch_size, name, "total_batch_size")
  end
  same(loader.total_dataset_length, want.total_dataset_length, name, "total_dataset_length")
  local k = 0
  for batch in loader() do
    k = k + 1
    local step, x = want.steps[k], batch[1]
    assert(step, name .. ": too many batches")
    same(x, step.batch, name, "batch", k)
    if step.metrics then
      do
        local _ <close> = a:accumulate(model)
        a:backward(model(x):pow(2):mean())
        sgd:step()
        schedule:step()
        sgd:zero_grad()
      end
      same(a:gather_for_metrics(x:flatten()), step.metrics, name, "metrics", k)
      same(a:gather_for_metrics { x = { x:flatten() } }.x[1], step.metrics, name, "metrics once more", k)
      same(a.sync_gradients, step.sync_gradients, name, "sync_gradients", k)
      same(a.gradient_state.end_of_dataloader, step.end_of_dataloader, name, "end_of_dataloader", k)
      same(a.gradient_state.remainder, step.remainder, name, "remainder", k)
      same(schedule:get_last_lr()[1], step.lr, name, "lr", k)
      same(a.optimizer_step_was_skipped, step.step_was_skipped, name, "step_was_skipped", k)
    end
  end
  same(k, #want.steps, name, "batches")
  same(a.gradient_state.remainder, -1, name, "remainder outside")
  if k > 0 and want.steps[k].metrics then
    same(a:gather_for_metrics(accel.tensor(want.steps[k].batch)), want.steps[k].metrics, name, "after the loop")
  end
  a:free_memory()
end

if P <= 3 then
  local cases, count = ranks.json(("reference/accelerate/accelerate_%d.json"):format(P)), 0
  for name in accel.pairs(cases) do
    if name:find "^loader_" then
      count = count + 1
      reference(name, cases)
    end
  end
  assert(count >= 6, "no loops")
end

-- ---- documented numbers ----
local function prepared(n, o, size, more)
  local a = accel.Accelerator { cpu = true, dataloader_config = config(o) }
  more = more or {}
  more.batch_size = size
  return a, a:prepare_data_loader(data.DataLoader(range(n), more))
end

do -- all ways of sharing out give every sample once, in order; shuffled, once
  for label, o in accel.pairs {
    shards = {}, split = { split_batches = true }, dispatched = { dispatch_batches = true },
    ["dispatched, split"] = { dispatch_batches = true, split_batches = true },
  } do
    local size = o.split_batches and 8 * P or 8
    local a, loader = prepared(32 * P, o, size)
    local all, k = {}, 0
    for batch in loader() do
      for _, v in ipairs(list(a:gather(batch[1]))) do all[#all + 1] = v end
      k = k + 1
      same(loader.end_of_dataloader, k == #loader, label, "end")
    end
    same(all, accel.arange(32 * P):to "f32", label, "in order")
    local b, shuffled = prepared(32 * P, o, size, { shuffle = true, seed = 5 })
    all = {}
    for batch in shuffled() do
      for _, v in ipairs(list(b:gather(batch[1]))) do all[#all + 1] = v end
    end
    local moved = 0
    for i, v in ipairs(all) do moved = moved + (v == i - 1 and 0 or 1) end
    assert(moved > 0, label .. ": not shuffled")
    table.sort(all)
    same(all, accel.arange(32 * P):to "f32", label, "shuffled")
  end
end

for _, o in ipairs { {}, { dispatch_batches = true } } do -- metrics of whole data sets
  for _, case in ipairs { { 82, 16 }, { 99, 16 }, { 512, 16 }, { 9, 5 }, { 30, 4 }, { 29, 4 }, { 22, 4 }, { 1, 4 },
    { 0, 3 } } do
    local a, loader = prepared(case[1], o, case[2])
    local tensors, objects = {}, {}
    for batch in loader() do
      local names = {}
      for i, v in ipairs(list(batch[1])) do names[i] = ("item %d"):format(v) end
      for _, v in ipairs(list(a:gather_for_metrics(batch[1]))) do tensors[#tensors + 1] = v end
      for _, v in ipairs(a:gather_for_metrics(names, true)) do objects[#objects + 1] = v end
    end
    same(tensors, accel.arange(case[1]):to "f32", "metrics of", case[1])
    same(#objects, case[1], "objects of", case[1])
    for i, name in ipairs(objects) do assert(name == ("item %d"):format(i - 1), name) end
  end
  local a, loader = prepared(10 * P + 1, o, 5, { drop_last = true })
  local k = 0
  for batch in loader() do
    k = k + 1
    same(a:gather_for_metrics(batch[1]).shape[1], 5 * P, "drop_last, batch", k)
  end
  same(k, 2, "drop_last")
end

do -- the last round of the dispatcher on two ranks
  local _, loader = prepared(29, { dispatch_batches = true }, 4)
  local last
  for batch in loader() do
    last = list(batch[1])
    local remainder = loader.end_of_dataloader and (P == 2 and 5 or loader.remainder) or -1
    same(loader.gradient_state.remainder, remainder, "remainder")
  end
  if P == 2 then same(last, R == 0 and { 24.0, 25.0, 26.0 } or { 27.0, 28.0, 0.0 }, "n = 29") end
end

if P == 1 then -- skipping and ends
  local a = accel.Accelerator { cpu = true }
  local loader = a:prepare(data.DataLoader(range(16), { batch_size = 4 }))
  local skipped, k = A.skip_first_batches(loader, 2), 2
  same(#skipped, 2, "length after skipping")
  for batch in skipped() do
    same(batch[1], accel.arange(4):to "f32" + 4 * k, "skipped")
    k = k + 1
  end
  for _ = 1, 2 do
    local ends = {}
    for _ in loader() do ends[#ends + 1] = loader.end_of_dataloader and 1 or 0 end
    same(ends, { 0, 0, 0, 1 }, "end flags")
  end
end
