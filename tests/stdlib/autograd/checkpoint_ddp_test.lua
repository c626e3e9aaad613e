-- accel.checkpoint below DistributedDataParallel: the same gradients to the last bit as without, for every way of
-- wrapping; a rank whose function differs the second time gets an error that leaves nobody waiting. The script starts
-- itself on the ranks.
--   accel-run tests/stdlib/autograd/checkpoint_ddp_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn = accel.nn
local DDP = nn.parallel.DistributedDataParallel

if ranks.start { 1, 2, 3 } then return end
local R = ranks.rank

local Net = nn.Module:extend "Net"
function Net:init(recompute)
  self.recompute = recompute
  self.first, self.second = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Tanh()), nn.Linear(8, 8)
  self.spare, self.last = nn.Linear(8, 8), nn.Linear(8, 2)
end
function Net:forward(x, use_spare)
  local run = self.recompute and accel.checkpoint or function(f, ...) return f(...) end
  x = run(self.first, x)
  x = run(function(t)
    t = run(self.second, t):tanh() + t
    return use_spare and self.spare(t) or t
  end, x)
  return run(self.second, self.last(x):tile(1, 4)) -- a module used twice
end

local function train(recompute, opts, use_spare)
  accel.manual_seed(6)
  local ddp = DDP(Net(recompute), opts)
  local sgd = accel.optim.SGD(ddp:parameters(), { lr = 0.1 })
  local log = {}
  for step = 1, 3 do
    accel.manual_seed(100 * step + R)
    for micro = 1, 2 do
      local x = accel.randn(5, 4)
      local function work() ddp(x, use_spare):sin():sum():backward() end
      if micro == 1 then ddp:no_sync(work) else work() end
    end
    for i, p in ipairs(ddp:parameters()) do log[#log + 1] = p.grad and p.grad:clone() or i end
    sgd:step()
    sgd:zero_grad()
  end
  return log
end

local cases = {
  plain = {}, buckets = { bucket_cap_mb = 0 }, static = { static_graph = true },
  unused = { find_unused_parameters = true },
}
for name, opts in accel.pairs(cases) do
  for _, use_spare in ipairs { true, false } do
    if use_spare or opts.find_unused_parameters then
      local want, got = train(false, opts, use_spare), train(true, opts, use_spare)
      assert(#want == #got)
      for i, g in ipairs(want) do
        local same = g == got[i] or (accel.is_tensor(g) and accel.equal(g, got[i]))
        assert(same, ("%s, %s: gradient %d differs"):format(name, tostring(use_spare), i))
      end
    end
  end
end

-- A language model by its own switch.
do
  local function run(recompute)
    accel.manual_seed(1)
    local model = accel.models.GPT2 { vocab_size = 11, n_positions = 8, n_embd = 8, n_layer = 3, n_head = 2 }
    if recompute then model:gradient_checkpointing_enable() end
    local ddp = DDP(model)
    accel.manual_seed(R)
    local ids = accel.randint(0, 11, { 2, 8 })
    local loss = accel.cross_entropy(ddp(ids):reshape(-1, 11), ids:reshape(-1))
    loss:backward()
    local grads = { loss:detach() }
    for _, p in ipairs(model:parameters()) do grads[#grads + 1] = p.grad:clone() end
    return grads
  end
  local want, got = run(false), run(true)
  for i, g in ipairs(want) do assert(accel.equal(g, got[i]), "GPT-2: gradient differs") end
end
