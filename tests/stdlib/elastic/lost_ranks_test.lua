-- A rank is lost at each collective of two updates in turn, before and after it, and a second one later: an unchanged training loop leaves
-- losses, weights and running statistics with the bits of one undisturbed rank, and the updates that count consume every sample once. With
-- accumulate and without, with dropout, batch norm, clipping, weights, a schedule, groups of parameters, two optimizers, a loss scale that
-- overflows, random numbers of the loop (for a micro-batch, for the
-- averaged gradients, between two updates), and workers that read ahead. Ranks are lost by a double
-- (support/lost_ranks.lua). fault/elastic_train_test.lua kills processes.
-- tier: sampled
--   accel-run tests/stdlib/elastic/lost_ranks_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local nn, dist = accel.nn, accel.dist

local FORMS <const> = { "accumulate", "plain", "scoped", "weights", "workers", "groups", "fp16" }

if not ranks.launched then
  assert(#arg == 0, "its arguments are for the ranks that it starts")
  local sample = ranks.sample
  print(("ACCEL_TEST_SEED=%d"):format(sample.seed))
  local taken = sample.one_of(84) -- of as many
  for _, n in ipairs { 2, 3, 4 } do
    for m = math.max(4, n), 8 do
      for f, form in ipairs(FORMS) do
        if taken() then
          local want = ranks.run(1, { capture = true, args = ("%s %d reference"):format(form, m) }):match "want (%S+)"
          assert(want)
          local out = ranks.run(n, { capture = true, timeout = 300,
            args = ("%s %d %s %d %d"):format(form, m, want, sample.seed + f, sample.full and 1 or 4) })
          local cases = math.tointeger(tonumber(out:match "(%d+) cases"))
          assert(cases and cases > 0, out)
        end
      end
    end
  end
  case "ranks are lost at every collective"
  return
end

local form <const>, M <const>, want <const> = arg[1], math.tointeger(tonumber(arg[2])), arg[3]
local ROWS <const>, UPDATES <const> = 2, 3 -- of an epoch, and of two

local function data()
  local g, n = accel.Generator(1), UPDATES * M * ROWS
  return accel.data.TensorDataset(accel.randn(n, 5, { generator = g }), accel.randn(n, 2, { generator = g }), accel.arange(n))
end

local function hash(h, t)
  for c in t:detach():contiguous():to_bytes():gmatch "." do h = h * 0x100000001b3 ~ c:byte() end
  return h
end

--- The mean as a binary tree, from its definition: the left part is the largest power of two below the whole.
local function tree(list, first, n)
  if n == 1 then return list[first] end
  local left = 1
  while 2 * left < n do left = 2 * left end
  return tree(list, first, left) + tree(list, first + left, n - left)
end

--- One run of the loop. double: the ranks that are lost.
local function train(double)
  accel.manual_seed(3)
  local accelerator = accel.Accelerator { micro_batches = M, mixed_precision = form == "fp16" and "fp16" or "no", kwargs_handlers = {
    accel.DistributedDataParallelKwargs { deterministic = "world" },
    accel.GradScalerKwargs { init_scale = 65536, growth_interval = 2 }, -- its first steps overflow
  } }
  local model = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.BatchNorm1d(24), nn.Dropout(0.2), nn.Linear(24, 2))
  local groups, sgd, second = model:parameters(), nil, nil
  if form == "groups" then
    groups = { { params = model:get_submodule "0":parameters() }, { params = model:get_submodule "2":parameters(), lr = 0.05, weight_decay = 0.1 } }
    sgd = accel.optim.SGD(model:get_submodule "4":parameters(), { lr = 0.1, momentum = 0.9 })
    second = accel.optim.lr_scheduler.CosineAnnealingLR(sgd, 6)
  end
  local adam = accel.optim.AdamW(groups, { lr = 0.02 })
  local schedule = accel.optim.lr_scheduler.StepLR(adam, 2, { gamma = 0.5 })
  local loader = accel.data.DataLoader(data(), { batch_size = ROWS, shuffle = true, seed = 9, num_workers = form == "workers" and 2 or 0 })
  model, adam, schedule, loader = accelerator:prepare(model, adam, schedule, loader)
  if sgd then sgd, second = accelerator:prepare(sgd, second) end
  local losses, consumed, changes, told = {}, {}, 0, 0 -- by update; by epoch and position
  local pending, by_row, drawn = {}, {}, {}
  accelerator:on_membership_change(function(change)
    if change.generation ~= told then changes = changes + 1 end -- a loss within the call repeats it
    told = change.generation
    assert(change.kind == "lost" and change.num_processes == accelerator.num_processes and change.process_index == accelerator.process_index)
  end)
  local function micro_batch(batch)
    local noise = accel.randn_like(batch[1]) * (0.1 * math.random())
    local loss = (model(batch[1] + noise) - batch[2]):pow(2):mean()
    if not double then by_row[#by_row + 1] = loss:item() end
    if form == "weights" then accelerator:backward(loss * ROWS, { weight = ROWS }) else accelerator:backward(loss) end
    if accelerator.sync_gradients then
      local bias = accelerator:unwrap_model(model):get_submodule "0".bias
      bias.grad:add_(accel.randn_like(bias.grad) * 0.01)
    end
    accelerator:clip_grad_norm_(model:parameters(), 0.5)
    for _, each in ipairs(sgd and { adam, sgd, schedule, second } or { adam, schedule }) do each:step() end
    adam:zero_grad()
    if sgd then sgd:zero_grad() end
    if accelerator.sync_gradients then drawn[accelerator.step] = math.random(1 << 30) + accel.randint(1 << 30, { 1 }):item() end
  end
  local updates = 0
  local function look()
    if double and accelerator._elastic.transaction.state == "void" then pending = {} end
    local step = updates + (accelerator.sync_gradients and 1 or 0)
    if double then step = accelerator.last_update and accelerator.last_update.step or 0 end
    if step == updates then return end
    updates = step
    table.move(pending, 1, #pending, #consumed + 1, consumed)
    pending = {}
    if double then
      local last = accelerator.last_update
      assert(last.step == updates and last.micro_batches == M and last.generation == accelerator.generation)
      losses[updates] = last.loss
    else
      losses[updates] = tree(by_row, #by_row - M + 1, M) / M
    end
  end
  if double then double.armed = true end
  local ok, err = xpcall(function()
    while loader.iteration < 2 do
      for batch in loader() do
        for _, at in ipairs(batch[3]:tolist()) do pending[#pending + 1] = loader.iteration * 1000000 + at end
        if form == "accumulate" or not double then
          accelerator:accumulate(model, function() micro_batch(batch) end)
        elseif form == "scoped" then
          local _ <close> = accelerator:accumulate(model)
          micro_batch(batch)
        else
          micro_batch(batch)
        end
        look()
      end
    end
  end, function(e) return type(e) == "table" and e.code == "lost" and e or tostring(e) .. "\n" .. debug.traceback() end)
  if not ok then
    if type(err) ~= "table" then error(err, 0) end
    accelerator._elastic:settle()
    local committed = double.die()
    if committed > updates then table.move(pending, 1, #pending, #consumed + 1, consumed) end
    return { lost = true, consumed = consumed }
  end
  local weights = 0
  for _, t in accel.pairs(accelerator:unwrap_model(model):state_dict()) do weights = hash(weights, t) end
  local said = {}
  for u = 1, updates do said[u] = ("%a"):format(losses[u]) end
  assert(updates == 2 * UPDATES, updates)
  return {
    hash = ("%016x:%s:%g:%s%s"):format(weights, table.concat(said, ","), (second or schedule):get_last_lr()[1], table.concat(drawn, ","),
      accelerator.scaler and (":%g:%d"):format(accelerator.scaler:get_scale(), accelerator.step) or ""),
    consumed = consumed, changes = changes, total = double and double.total,
  }
end

if want == "reference" then
  print("want " .. train().hash)
  return
end

local seed <const>, step <const> = math.tointeger(tonumber(arg[4])), math.tointeger(tonumber(arg[5]))
local lost_ranks = dofile(ranks.tests .. "support/lost_ranks.lua")
local all_gather_object = dist.all_gather_object

--- One run with these losses. Returns the collectives that it had.
local function run(plan)
  local double = lost_ranks(plan, seed)
  local result = train(double)
  double.close()
  accel.AcceleratorState._reset_state(true)
  collectgarbage()
  collectgarbage()
  local text = {}
  for i, loss in ipairs(plan) do text[i] = ("rank %d is lost %s collective %d"):format(loss.victim, loss.when, loss.at) end
  local who = ("%s, M = %d, %d ranks, %s: "):format(form, M, ranks.size, #text > 0 and table.concat(text, "; ") or "no loss")
  local seen, n, left = {}, 0, 0
  for rank, other in ipairs(all_gather_object(result)) do
    for _, at in ipairs(other.consumed) do
      assert(not seen[at], who .. "a sample was repeated")
      seen[at], n = true, n + 1
    end
    if not other.lost then
      left = left + 1
      assert(other.hash == want, ("%srank %d has %s, not %s"):format(who, rank - 1, other.hash, want))
      assert(other.changes <= #plan, who .. "changes")
    end
  end
  assert(n == 2 * UPDATES * M * ROWS, ("%s%d samples"):format(who, n))
  assert(left >= ranks.size - #plan and left >= 1, who .. "survivors")
  return result.total
end

local total, cases = run {}, 1
local random = accel.util.Random(seed)
for at = 1 + random:below(step), 2 * total // (2 * UPDATES) + 2, step do
  for _, when in ipairs { "before", "after" } do
    local plan = { { at = at, victim = random:below(ranks.size), when = when } }
    if ranks.size > 2 then plan[2] = { at = 1 + random:below(total // 3), victim = random:below(ranks.size), when = "after" } end
    run(plan)
    cases = cases + 1
  end
end
if ranks.rank == 0 then print(cases .. " cases") end
