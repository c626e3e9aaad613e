-- The same global batch on 1, 2 and 4 ranks: a GPT with dropout has the same losses within rounding, and with
-- deterministic = "world" and the same micro-batches the same bits, of losses, weights and gradients. The script starts
-- itself on the ranks.
--   accel-run tests/stdlib/dist/world_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist, nn = accel.dist, accel.nn
local DDP = nn.parallel.DistributedDataParallel

local STEPS, BATCH, T, V = 50, 8, 24, 31

--- Trains for some steps; every rank takes its rows of the batch, `micro` at a time. Returns losses and the model.
local function train(world, micro, group, R, P)
  accel.manual_seed(11)
  local model = accel.models.GPT2 {
    vocab_size = V, n_positions = T, n_embd = 32, n_layer = 2, n_head = 4, resid_pdrop = 0.1, embd_pdrop = 0.1,
    attn_pdrop = 0.1,
  }
  local ddp = DDP(model, { deterministic = world and "world" or nil, bucket_cap_mb = 0.02, process_group = group })
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  local random, losses = accel.util.Random(3), {}
  local n = BATCH // P // micro
  for step = 1, STEPS do
    local rows = {}
    for i = 1, BATCH do
      local from, by = random:below(V), 1 + random:below(3)
      rows[i] = {}
      for t = 1, T + 1 do rows[i][t] = (from + by * t) % V end
    end
    local own = {}
    for k = 1, n do
      local row0 = (R * n + k - 1) * micro
      local ids = accel.tensor({ table.unpack(rows, row0 + 1, row0 + micro) }, { dtype = "i64" })
      accel.micro_batch(row0)
      local _ <close> = k < n and ddp:no_sync() or nil
      local loss = nn.functional.cross_entropy(ddp(ids:narrow(2, 1, T)):view(-1, V), ids:narrow(2, 2, T):reshape(-1))
      local scaled = world and loss or loss / n
      scaled:backward()
      own[k] = loss:detach()
    end
    nn.utils.clip_grad_norm_(model:parameters(), 1.0)
    optimizer:step()
    optimizer:zero_grad()
    local all = accel.empty(P * n)
    dist.all_gather_into_tensor(all, accel.stack(own, 1), { group = group })
    losses[step] = all:mean():item()
  end
  return losses, model
end

local function digest(model)
  local h = 0
  for _, p in ipairs(model:parameters()) do
    local bytes = p:detach():to_bytes()
    for i = 1, #bytes, 8 do h = h * 31 + (string.unpack("<i8", bytes .. ("\0"):rep(8), i)) end
  end
  return ("%016x"):format(h)
end

local function report(world, micro)
  local R, P = ranks.rank, ranks.size
  local losses, model = train(world, micro, nil, R, P)
  if R > 0 then return end
  for _, l in ipairs(losses) do print(("%a"):format(l)) end
  print(digest(model))
end

--- Bits of a sum that depends on its order: a rank alone sums what several ranks sum together.
local function trees()
  local R, P, says = ranks.rank, ranks.size, ranks.fails
  local groups = {}
  for r = 0, P - 1 do groups[r + 1] = dist.new_group { r } end
  local function gradient(group, first, n)
    accel.manual_seed(2)
    local ddp = DDP(nn.Linear(40, 30), { deterministic = "world", process_group = group })
    for update = 1, 3 do
      for k = 1, n do
        accel.manual_seed(100 * update + first + k)
        local x = accel.randn(3, 40) * 10 ^ ((first + k) % 5)
        local function pass() (ddp(x) ^ 2):mean():backward() end
        if k < n then ddp:no_sync(pass) else pass() end
      end
    end
    return ddp.weight.grad:to_bytes() .. ddp.bias.grad:to_bytes()
  end
  for _, n in ipairs { 1, 2, 4 } do
    local together, alone = gradient(nil, R * n, n), gradient(groups[R + 1], 0, n * P)
    assert(together == alone, ("%d micro-batches on each of %d ranks"):format(n, P))
  end

  local ddp = DDP(nn.Linear(2, 1), { deterministic = "world" })
  local x = accel.ones(1, 2)
  local function update(n)
    for _ = 2, n do ddp:no_sync(function() ddp(x):sum():backward() end) end
    ddp(x):sum():backward()
    return ddp.weight.grad
  end
  assert(update(2):tolist()[1][1] == 1) -- what ->grad holds from the update before does not count
  assert(update(4):tolist()[1][1] == 1)
  if P > 1 then
    says("which takes 1, 2, 4, 8, ... micro-batches on each of " .. P .. " ranks, got 3", update, 3)
    says("the same number of micro-batches on all ranks", update, R == 0 and 1 or 2)
    assert(update(2):tolist()[1][1] == 1)
  else
    assert(update(3):tolist()[1][1] == 1)
  end
  do -- used by one rank in one of the micro-batches
    local Two = nn.Module:extend "Two"
    function Two:init() self.a, self.b, self.c = nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 1) end
    function Two:forward(v, both) return both and self.a(v) + self.b(v) or self.a(v) end
    local two = DDP(Two(), { deterministic = "world", find_unused_parameters = true })
    for _ = 1, 3 do
      two:no_sync(function() two(x, R == P - 1):sum():backward() end)
      two(x):sum():backward()
      assert(two.a.weight.grad:tolist()[1][1] == 1 and math.abs(two.b.weight.grad:tolist()[1][2] - 1 / (2 * P)) < 1e-7)
      assert(two.c.weight.grad == nil)
    end
    two:no_sync(function() two(x):sum():backward() end)
    two(x):sum():backward()
    assert(two.a.weight.grad:tolist()[1][1] == 1 and two.b.weight.grad == nil)
  end
  says("and a hook would replace that", ddp.register_comm_hook, ddp, nil, print)
  says("the same number of micro-batches", ddp.join, ddp)
end

if ranks.launched then
  if arg[1] == "trees" then return trees() end
  return report(arg[1] == "world", math.tointeger(tonumber(arg[2])))
end

local function run(n, args, backend)
  return ranks.run(n, { args = args, backend = backend, capture = true })
end

for _, n in ipairs { 1, 2, 3, 4 } do run(n, "trees") end

local function numbers(text)
  local list = {}
  for line in text:gmatch "(%-?0x[^\n]*)" do list[#list + 1] = tonumber(line) end
  assert(#list == STEPS, text)
  return list
end

local whole = numbers(run(1, "plain " .. BATCH))
assert(whole[STEPS] < 0.8 * whole[1], "nothing was learnt")
for n, micro in accel.pairs { [2] = BATCH // 2, [4] = BATCH // 4 } do
  for step, l in ipairs(numbers(run(n, "plain " .. micro))) do
    local off = math.abs(l - whole[step]) / whole[step]
    assert(off <= 1e-5, ("%d ranks, step %d: loss %.9g, one rank %.9g"):format(n, step, l, whole[step]))
  end
end

local want = run(1, "world 2")
for step, l in ipairs(numbers(want)) do assert(math.abs(l - whole[step]) / whole[step] <= 1e-4) end
for _, n in ipairs { 2, 4 } do
  local got = run(n, "world 2")
  assert(got == want, ("%d ranks differ from one:\n%s\n%s"):format(n, got, want))
end
assert(run(2, "world 1") == run(1, "world 1") and run(1, "world 1") ~= want)
assert(run(2, "world 2", "tcp") == want, "tcp differs")
if accel.features().mpi and os.execute "command -v mpirun >/dev/null" then
  assert(run(2, "world 2", "mpi") == want, "mpi differs")
end
