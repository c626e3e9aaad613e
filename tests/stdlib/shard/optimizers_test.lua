-- Every optimizer of accel.optim on the parts of sharded parameters leaves the very weights that it leaves with data parallelism,
-- whether it goes element by element or needs whole matrices (Muon, Adafactor), is free of schedules, steps on 16-bit parameters
-- with f32 parts, or was made before the model was sharded; and goes on from a checkpoint of data parallelism, and the other way.
--   accel-run tests/stdlib/shard/optimizers_test.lua
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, optim = accel.nn, accel.optim

if ranks.start { 1, 2, 4 } then
  ranks.run(2, { backend = "tcp" })
  ranks.run(3, { backend = "tcp" })
  return
end

local R, P <const> = ranks.rank, ranks.size
local TCP = P > 1 and accel.dist.get_backend() == "tcp"
local folder = ("%s/optimizers-%d-%s"):format(os.getenv "ACCEL_TEST_TMP" or "/tmp", P, TCP and "tcp" or "shm")

local Net = nn.Module:extend "Net"
function Net:init() -- parts of ranks begin and end inside of matrices
  self.a, self.b, self.c, self.norm = nn.Linear(13, 40), nn.Linear(40, 31), nn.Linear(31, 7, { bias = false }), nn.LayerNorm(40)
  self.idle = nn.Linear(5, 5) -- never used
end
function Net:forward(x) return self.c(self.b(self.norm(self.a(x)):tanh()):tanh()) end

local makers = {
  Muon = function(net)
    local matrices, rest = {}, {}
    for _, p in ipairs(net:parameters()) do table.insert(#p.shape == 2 and matrices or rest, p) end
    return { optim.Muon(matrices, { lr = 0.02 }), optim.AdamW(rest, { lr = 0.01 }) }
  end,
  ["Muon plain"] = function(net)
    return { optim.Muon({ net.a.weight, net.c.weight }, { nesterov = false, adjust_lr_fn = "match_rms_adamw" }),
      optim.SGD({ { params = { net.b.weight } }, { params = { net.a.bias, net.b.bias }, lr = 0.1, momentum = 0.5 } }, { lr = 0.05 }) }
  end,
  ["Adam amsgrad"] = function(net) return { optim.Adam(net:parameters(), { amsgrad = true, weight_decay = 0.1 }) } end,
  ["RMSprop centred"] = function(net) return { optim.RMSprop(net:parameters(), { centered = true, momentum = 0.9 }) } end,
}
for _, name in ipairs { "SGD", "Adam", "AdamW", "Adafactor", "Lion", "Adagrad", "RMSprop", "Adadelta", "Adamax", "ASGD", "NAdam",
  "RAdam", "Adan", "Rprop", "AdamWScheduleFree", "SGDScheduleFree" } do
  makers[name] = function(net) return { optim[name](net:parameters(), { lr = 0.01 }) } end
end
local function clear() accel.accelerator.AcceleratorState._reset_state(true) end

local function build(name, way, early)
  clear()
  accel.manual_seed(4)
  local a = accel.Accelerator { fsdp_plugin = way and accel.FullyShardedDataParallelPlugin(way) or nil,
    kwargs_handlers = not way and { accel.DistributedDataParallelKwargs { find_unused_parameters = true } } or nil }
  local net = Net()
  local optimizers = early and makers[name](net)
  local model = a:prepare(net)
  optimizers = optimizers or makers[name](model)
  for i, o in ipairs(optimizers) do optimizers[i] = a:prepare(o) end
  return a, model, optimizers
end

local function train(a, model, optimizers, from, n)
  for _, o in ipairs(optimizers) do o:train() end
  for s = from, from + n - 1 do
    a:backward(model(accel.randn(3, 13, { generator = accel.Generator(s * 8 + R) })):pow(2):mean())
    for _, o in ipairs(optimizers) do
      o:step()
      o:zero_grad()
    end
  end
  for _, o in ipairs(optimizers) do o:eval() end
  local out = {}
  for name, t in pairs(a:get_state_dict(model)) do out[name] = t:detach():clone() end
  return out
end

local function same(got, want, what)
  if R > 0 then return end
  for name, t in pairs(want) do
    local far = (t - got[name]):abs():max():item()
    assert(accel.equal(t, got[name]), ("%s on %d: %s is off by %g"):format(what, P, name, far))
  end
end

local ways = { zero3 = {}, two = { fsdp_version = 2, auto_wrap_policy = "SIZE_BASED_WRAP", min_num_params = 300 },
  no = { sharding_strategy = "NO_SHARD" } }
local taken = ranks.sample.one_of(10)
for name in accel.pairs(makers) do
  if not (taken() or name == "Muon" or name == "Adafactor") then goto continue end
  local a, model, optimizers = build(name)
  local half = train(a, model, optimizers, 1, 2)
  a:save_state(folder)
  local want = train(a, model, optimizers, 3, 3)
  assert(R > 0 or not accel.equal(half["a.weight"], want["a.weight"]), name)
  for kind, way in accel.pairs(ways) do
    a, model, optimizers = build(name, way, kind == "two")
    same(train(a, model, optimizers, 1, 2), half, name .. " " .. kind)
    a:save_state(folder .. kind)
    same(train(a, model, optimizers, 3, 3), want, name .. " " .. kind)
    a, model, optimizers = build(name, way) -- from data parallelism
    a:load_state(folder)
    same(train(a, model, optimizers, 3, 3), want, name .. " loaded " .. kind)
    a, model, optimizers = build(name) -- and back
    a:load_state(folder .. kind)
    same(train(a, model, optimizers, 3, 3), want, name .. " loaded from " .. kind)
  end
  ::continue::
end

do -- 16-bit parameters, f32 parts
  for _, name in ipairs { "AdamW", "Muon", "Adafactor", "AdamWScheduleFree" } do
    local got = {}
    for k, way in ipairs { { zero_stage = 1 }, { zero_stage = 3 } } do
      way.master_weights, way.share_memory = true, not TCP
      accel.manual_seed(4)
      local model = nn.parallel.FullyShardedDataParallel(Net():to "bf16", way)
      local optimizers = makers[name](model)
      for s = 1, 3 do
        for _, o in ipairs(optimizers) do if o.train then o:train() end end
        model(accel.randn(3, 13, { generator = accel.Generator(s * 8 + R) }):to "bf16"):float():pow(2):mean():backward()
        for _, o in ipairs(optimizers) do
          for _, group in ipairs(o.param_groups) do
            for _, p in ipairs(group.params) do assert(p.dtype == "f32") end
          end
          o:step()
          o:zero_grad()
        end
      end
      got[k] = model:state_dict()
      assert(got[k]["a.weight"].dtype == "f32")
      local low = model.a.weight
      model:summon_full_params({ writeback = false }, function() assert(low.dtype == "f32") end)
      if not TCP then assert(accel.equal(low:detach(), got[k]["a.weight"]:to "bf16"), name) end
    end
    for key, t in pairs(got[1]) do assert(accel.equal(t, got[2][key]), name .. " " .. key) end
  end
end

do -- a rule of one's own that needs whole tensors, and does not say how it goes on parts
  local Whole = optim.Optimizer:extend "Whole"
  Whole.elementwise = false
  ranks.fails("Whole: its rule needs whole tensors, and parameters are sharded", function()
    Whole(nn.parallel.FullyShardedDataParallel(Net()):parameters())
  end)
end
