-- Sharded training against plain training: on 1, 2, 3 and 4 ranks of one machine and on 2 over tcp without common memory, every
-- stage and strategy leaves the losses of one rank that has the whole batch,
-- and the very parameters of DistributedDataParallel on as many ranks; with
-- accumulation (whole and cut), clipping, autocast, recomputed blocks, frozen and tied parameters, dropout, buffers, several
-- forwards before a backward; the same bits on any number of ranks with deterministic = "world".
--   accel-run tests/stdlib/shard/train_test.lua
-- tier: sampled
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local checkpoint = require "accel.autograd".checkpoint
local nn = accel.nn

if not ranks.launched then
  local all = ranks.start { 1, 2, 3, 4, capture = true }
  all.tcp = ranks.run(2, { backend = "tcp", args = "tcp", capture = true })
  for n, said in accel.pairs(all) do -- the lines of "world" are the same wherever they are defined
    for case, hash in said:gmatch "world ([%w_ ]+): (%x+)" do
      local one = all[1]:match("world " .. case .. ": (%x+)")
      assert(hash == one, ("%s: on %s ranks %s, on one %s"):format(case, n, hash, one))
    end
  end
  assert(all[1]:find "world" and all[4]:find "world" and all.tcp:find "world")
  return
end

local R, P <const>, B <const> = ranks.rank, ranks.size, 12
local STEPS <const> = ranks.sample.full and 30 or 6

-- ---- models ----

local Tied = nn.Module:extend "Tied"
function Tied:init()
  self.embed, self.mid, self.head = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 11, { bias = false })
  self.head.weight = self.embed.weight
end
function Tied:forward(x) return self.head(self.mid(self.embed(x)):tanh()) end

local Block = nn.Module:extend "Block"
function Block:init(d, p, again)
  self.norm, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
  self.up, self.down, self.drop, self.again = nn.Linear(d, 2 * d), nn.Linear(2 * d, d), nn.Dropout(p), again
end
function Block:compute(x)
  local q, k, v = table.unpack(self.qkv(self.norm(x)):chunk(3, -1))
  x = x + self.out(accel.scaled_dot_product_attention(q:unsqueeze(2), k:unsqueeze(2), v:unsqueeze(2),
    { is_causal = true }):squeeze(2))
  return x + self.drop(self.down(self.up(x):gelu()))
end
function Block:forward(x)
  if self.again and self.training then return checkpoint(function(y) return self:compute(y) end, x) end
  return self:compute(x)
end

local Gpt = nn.Module:extend "Gpt"
function Gpt:init(p, again)
  self.embed, self.h = nn.Embedding(11, 16), nn.ModuleList { Block(16, p, again), Block(16, p, again) }
  self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 11, { bias = false })
  self.head.weight = self.embed.weight
end
function Gpt:forward(x)
  x = self.embed(x)
  for _, block in ipairs(self.h) do x = block(x) end
  return self.head(self.norm(x))
end

local Net = nn.Module:extend "Net"
function Net:init()
  self.conv, self.bn, self.fc = nn.Conv2d(1, 4, 3, { padding = 1 }), nn.BatchNorm2d(4), nn.Linear(4, 11)
end
function Net:forward(x) return self.fc(self.bn(self.conv(x)):relu():mean({ -1, -2 })) end

local Either = nn.Module:extend "Either" -- one of the two is used
function Either:init() self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 11) end
function Either:forward(x, odd) return self.head((odd and self.b or self.a)(x)) end

local function ids(g) return accel.randint(0, 11, { B, 5 }, { generator = g }) end
local made = {
  tied = { Tied, ids }, gpt = { function() return Gpt(0) end, ids }, drop = { function() return Gpt(0.2) end, ids },
  again = { function() return Gpt(0.1, true) end, ids },
  frozen = { function()
    local m = Gpt(0)
    m.h[1].qkv:requires_grad_(false)
    m.embed:requires_grad_(false)
    return m
  end, ids },
  net = { Net, function(g) return accel.randn(B, 1, 6, 6, { generator = g }) end },
  either = { Either, function(g) return accel.randn(B, 8, { generator = g }) end },
}

-- ---- training ----

local training = dofile(ranks.tests .. "support/shard_training.lua")(made, B, STEPS)
local train, mean_over_ranks, state_of, far = training.train, training.mean_over_ranks, training.state_of, training.far

local policies = {
  none = { kind = "none" }, blocks = { kind = "transformer", classes = { "Block" } }, size = { kind = "size", min_num_params = 30 },
  leaves = { kind = "lambda", fn = function(m) return #m:children() == 0 and #m:parameters() > 0 end },
}
local ways = {}
for stage = 0, 3 do ways[#ways + 1] = { zero_stage = stage } end
for _, s in ipairs { "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD" } do ways[#ways + 1] = { sharding_strategy = s } end

local cases = {
  { model = "tied", policy = "leaves" }, { model = "tied", policy = "none", clip = 0.3, optimizer = "sgd" },
  { model = "gpt", policy = "blocks" }, { model = "gpt", policy = "size", clip = 0.2, early = true },
  { model = "gpt", policy = "blocks", autocast = "bf16" }, { model = "drop", policy = "blocks" },
  { model = "again", policy = "blocks" }, { model = "frozen", policy = "blocks" }, { model = "net", policy = "leaves" },
  { model = "gpt", policy = "blocks", twice = true }, { model = "tied", policy = "leaves", accumulate = 2, whole = true },
  { model = "tied", policy = "leaves", accumulate = 2, close = true }, { model = "gpt", policy = "blocks", accumulate = 3,
    close = true, clip = 0.5 },
  { model = "either", policy = "leaves", unused = true }, { model = "either", policy = "leaves", unused = true, mixed = true },
}

local function label(c, way)
  local parts = {}
  for _, t in ipairs { c, way } do
    for key, value in accel.pairs(t) do parts[#parts + 1] = key .. "=" .. tostring(value) end
  end
  return table.concat(parts, " ")
end

local function plain(model) return model end
local taken = ranks.sample.one_of(arg[1] == "tcp" and 4 or 6)
for _, c in ipairs(cases) do
  local one, ddp, bits
  for _, way in ipairs(ways) do
    local fits = B % (P * (c.accumulate or 1)) == 0
    -- ranks that run different modules cannot gather these (misuse_test.lua)
    if c.mixed and arg[1] == "tcp" and (way.zero_stage or 3) == 3 then fits = way.sharding_strategy == "NO_SHARD" end
    if taken() and fits then
      one = one or train(c, plain, 1, 0)
      if not ddp then
        local model
        ddp, model = train(c, function(m)
          return nn.parallel.DistributedDataParallel(m, { find_unused_parameters = c.unused })
        end, P, R)
        bits = state_of(model)
      end
      local losses, model = train(c, function(m)
        local o = { auto_wrap_policy = policies[c.policy], share_memory = arg[1] ~= "tcp" }
        for key, value in next, way do o[key] = value end
        return nn.parallel.FullyShardedDataParallel(m, o)
      end, P, R)
      local what = label(c, way)
      local exact = not c.clip and not c.close
      if c.model ~= "net" and not c.mixed then -- batch statistics are each rank's own
        local d = far(mean_over_ranks(losses), one)
        assert(d < (c.autocast and 0.02 or 1e-5), ("%s: %g from one rank"):format(what, d))
      end
      local d = far(losses, ddp)
      assert(d < (c.autocast and 0.02 or 1e-5) and (not exact or d == 0), ("%s: %g from DDP"):format(what, d))
      for name, t in pairs(model:state_dict()) do
        -- Adam makes whole steps of gradients that are rounding alone (biases of keys): these have no bar
        assert(not exact or accel.equal(t, bits[name]), what .. ": " .. name .. " is not DDP's")
      end
    end
  end
end

-- ---- deterministic = "world" ----

if P ~= 3 then
  for _, c in ipairs {
    { model = "tied", policy = "leaves", world = true }, { model = "drop", policy = "blocks", world = true, clip = 0.2 },
  } do
    for stage = 1, 3 do
      c.accumulate, c.whole = 4 // P, true
      local _, model = train(c, function(m)
        return nn.parallel.FullyShardedDataParallel(m, {
          auto_wrap_policy = policies[c.policy], zero_stage = stage, deterministic = "world", share_memory = arg[1] ~= "tcp",
        })
      end, P, R)
      local hash = 0
      for _, t in pairs(model:state_dict()) do
        for char in t:detach():to_bytes():gmatch "." do hash = hash * 0x100000001b3 ~ char:byte() end
      end
      if R == 0 then print(("world %s %d: %016x"):format(c.model, stage, hash)) end
    end
  end
end
case "clipping under sharding"
