-- What goes wrong with sharded models is one line that says what: a wrap that differs on one rank, a parameter used outside its
-- unit or changed where that would be lost, an optimizer whose rule needs whole matrices, a step on gradients that were never
-- reduced, settings that contradict. Whole parameters inside summon_full_params; states in and out; replicas of hybrid sharding.
--   accel-run tests/stdlib/shard/misuse_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist, nn = accel.dist, accel.nn

if ranks.start { 2, 4 } then
  ranks.run(2, { backend = "tcp", args = "tcp" })
  return
end
local R, P <const>, TCP <const> = ranks.rank, ranks.size, arg[1] == "tcp"
local function FSDP(module, o) -- over tcp: as on machines that share no memory
  o = o or {}
  o.share_memory = not TCP
  return nn.parallel.FullyShardedDataParallel(module, o)
end

local function net()
  accel.manual_seed(2)
  return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 6))
end
local leaves = { kind = "lambda", fn = function(m) return #m:children() == 0 and #m:parameters() > 0 end }
local function fails(text, f, ...)
  local ok, e = pcall(f, ...)
  assert(not ok and tostring(e):find(text, 1, true), ("wanted '%s', got %s"):format(text, tostring(e)))
end

do -- lines are the script's, wherever it lies
  local order = require "accel.shard.order".new()
  load("local order = ... order:note { at = 1 }", "@/home/me/accel/train.lua")(order)
  assert(order.lines[1] == "train.lua:1", order.lines[1])
end
fails("the ranks have different sharded parameters", FSDP, net(), { auto_wrap_policy = R == 1 and leaves or nil })
do -- both lines of the script
  local ok, e
  if R == 0 then ok, e = pcall(FSDP, net(), { zero_stage = 2 })
  else ok, e = pcall(FSDP, net(), { zero_stage = 3 }) end
  local first, second = tostring(e):match "zero_stage = 2 %(misuse_test%.lua:(%d+)%); ranks? [%d, ]+ha[sv]e? zero_stage = 3 %(misuse_test.lua:(%d+)%)"
  assert(not ok and tonumber(second) == tonumber(first) + 1, e)
end
fails("the ranks have different options", FSDP, net(), { mixed_precision = R == 1 and { param_dtype = "bf16" } or nil })
fails("in the unit '0'", FSDP, net(), { auto_wrap_policy = R == 1 and leaves or nil })
fails("give zero_stage or sharding_strategy, not both", FSDP, net(), { zero_stage = 1, sharding_strategy = "FULL_SHARD" })
fails("has no module of the class 'Block'", FSDP, net(), { auto_wrap_policy = { kind = "transformer", classes = { "Block" } } })
fails("equally many batches", function() FSDP(net()):join() end)

do -- outside the unit
  local model = FSDP(net(), { auto_wrap_policy = leaves })
  local w = model.module[1].weight
  if TCP then
    fails("a parameter of the sharded unit '0' is used outside", function() return w * 2 end)
    fails("a parameter of the sharded unit '0' was written to while it was gathered", function()
      model.module[1]:register_forward_hook(function()
        local _ <close> = accel.no_grad()
        w:mul_(2)
      end, { prepend = true })
      model(accel.ones(1, 6))
    end)
  end
end

if TCP then -- ranks that run different modules
  local Either = nn.Module:extend "Either"
  function Either:init() self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6) end
  function Either:forward(x) return (R == 0 and self.a or self.b)(x) end
  local model = FSDP(Either(), { auto_wrap_policy = leaves })
  local loss = model(accel.ones(1, 6)):sum()
  local _, e = pcall(loss.backward, loss)
  e = tostring(e)
  local first, second = e:match "rank 0 gathered 'a' %(misuse_test%.lua:(%d+)%), rank 1 gathered 'b' %(misuse_test%.lua:(%d+)%)"
  assert(e:find("ranks gathered different units", 1, true) and first == second and tonumber(first) > 50, e)
end

do -- never reduced
  local model = FSDP(net(), { zero_stage = 2 })
  local sgd = accel.optim.SGD(model:parameters(), { lr = 1 })
  model:no_sync(function() model(accel.ones(1, 6)):sum():backward() end)
  fails("never reduced", sgd.step, sgd)
  sgd:zero_grad()
  sgd:step()
end

-- whole parameters, to read and to write
for stage = 1, 3 do
  local model = FSDP(net(), { zero_stage = stage, auto_wrap_policy = leaves })
  local want = net():state_dict()
  model:summon_full_params({ writeback = false }, function()
    for name, p in pairs(model:named_parameters()) do assert(accel.equal(p:detach(), want[name]), name) end
  end)
  model:summon_full_params(function()
    local _ <close> = accel.no_grad()
    for _, p in ipairs(model:parameters()) do p:mul_(2) end -- on every rank, and done once
  end)
  local state = model:state_dict()
  for name, t in pairs(want) do assert(accel.equal(state[name], t * 2), name) end
  model:load_state_dict(want)
  state = model:state_dict()
  for name, t in pairs(want) do assert(accel.equal(state[name], t), name) end
end

-- hybrid: two groups of two that hold the same, against all four cut
if P == 4 then
  local shard, replicas
  for _, list in ipairs { { 0, 1 }, { 2, 3 } } do
    local g = dist.new_group(list)
    if R == list[1] or R == list[2] then shard = g end
  end
  for _, list in ipairs { { 0, 2 }, { 1, 3 } } do
    local g = dist.new_group(list)
    if R == list[1] or R == list[2] then replicas = g end
  end
  local results = {}
  for k, o in ipairs {
    { sharding_strategy = "HYBRID_SHARD", process_group = { shard, replicas } }, { sharding_strategy = "FULL_SHARD" },
    { sharding_strategy = "HYBRID_SHARD_ZERO2", process_group = { shard, replicas } },
  } do
    o.auto_wrap_policy = leaves
    local model = FSDP(net(), o)
    local sgd = accel.optim.SGD(model:parameters(), { lr = 0.1, momentum = 0.9 })
    for s = 1, 4 do
      model(accel.randn(2, 6, { generator = accel.Generator(s * 8 + R) })):pow(2):mean():backward()
      nn.utils.clip_grad_norm_(model:parameters(), 0.3)
      sgd:step()
      sgd:zero_grad()
    end
    results[k] = model:state_dict()["0.weight"]:clone()
  end
  assert(accel.allclose(results[1], results[2], { atol = 1e-6 }) and accel.allclose(results[3], results[2], { atol = 1e-6 }))
end
