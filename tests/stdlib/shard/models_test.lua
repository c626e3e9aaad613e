-- The library's models, sharded: GPT-2, Llama, BERT, T5, Mixtral, ResNet and an MLP with tied weights under every stage of ZeRO and
-- every strategy, with units of their blocks, on 1 to 4 ranks, 2 and 3 of tcp and 2 of MPI: the losses of one rank within 1e-5, the
-- weights of data parallelism bit for bit where nothing is clipped; with accumulation, clipping, bf16, recomputation, frozen layers,
-- dropout; the same bits on any number of ranks with deterministic = "world". The matrix is generated; a run takes a sample.
--   accel-run tests/stdlib/shard/models_test.lua
-- tier: sampled
-- parts: shm1 shm2 shm3 shm4 tcp2 tcp3 mpi2 world
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, models = accel.nn, accel.models

local PART <const> = os.getenv "ACCEL_TEST_PART" -- of the whole matrix: one world, or the hashes of all

local function run(hashes, n, o)
  local out = ranks.run(n, o)
  for case, hash in out:gmatch "world (%S+): (%x+)" do
    hashes[case] = hashes[case] or hash
    assert(hash == hashes[case], ("%s: on %d ranks %s, before %s"):format(case, n, hash, hashes[case]))
  end
end

if not ranks.launched then
  local hashes, any = {}, false
  for _, part in ipairs { "shm1", "shm2", "shm3", "shm4", "tcp2", "tcp3", "mpi2" } do
    local backend, n = part:match "^(%a+)(%d)$"
    local there = backend ~= "mpi" or (os.execute "command -v mpirun >/dev/null 2>&1" and accel.features().mpi)
    if there and (not PART or PART == "world" or PART == part) then
      any = true
      run(hashes, math.tointeger(n), { backend = backend ~= "shm" and backend or nil, args = backend ~= "shm" and "tcp" or nil,
        capture = true })
    end
  end
  if not any then os.exit(77, true) end
  assert((PART and PART ~= "world") or next(hashes))
  return
end

local R, P <const>, B <const> = ranks.rank, ranks.size, 12
local STEPS <const> = ranks.sample.full and 30 or 5

--- A configuration of models.tiny with 11 classes and no dropout, and what else is given.
local function tiny(family, more)
  local config = { vocab_size = 11 }
  for key, value in next, models.tiny[family] do
    if key ~= "vocab_size" then config[key] = value end
  end
  for key, value in next, more or {} do config[key] = value end
  return config
end

local Tied = nn.Module:extend "TiedMLP"
function Tied:init()
  self.fc, self.up = nn.Linear(11, 16), nn.Linear(16, 11)
  self.up.weight = nn.Parameter(accel.randn(11, 16) * 0.1)
  self.down = nn.Linear(11, 16)
  self.fc.weight = self.down.weight -- tied
end
function Tied:forward(x) return self.up(self.down(self.up(self.fc(x):tanh())):tanh()) end

local ResNet = nn.Module:extend "ResNetClassifier" -- statistics of batches are each rank's own: they stand still
function ResNet:init()
  self.net = models.ResNetForImageClassification { embedding_size = 4, hidden_sizes = { 4, 8 }, depths = { 1, 1 },
    layer_type = "basic", num_labels = 11 }
  self._no_split_modules = { "ResNetLayer" }
  self:eval()
end
function ResNet:forward(x) return self.net(x) end

local T5 = nn.Module:extend "T5Logits"
function T5:init()
  self.t5 = models.T5ForConditionalGeneration(tiny("t5", { dropout_rate = 0 }))
  self._no_split_modules = { "T5Block" }
end
function T5:forward(x) return (self.t5(x, { decoder_input_ids = x })) end

local function ids(g) return accel.randint(0, 11, { B, 5 }, { generator = g }) end
local function image(g) return accel.randn(B, 3, 16, 16, { generator = g }) end

local function gpt2(more)
  return function()
    local config = tiny("gpt2", { resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 })
    for key, value in next, more or {} do config[key] = value end
    return models.GPT2(config)
  end
end
local made = {
  gpt2 = { gpt2(), ids }, gpt2_dropout = { gpt2 { resid_pdrop = 0.1, embd_pdrop = 0.1 }, ids },
  gpt2_again = { function()
    local m = gpt2 { resid_pdrop = 0.1 }()
    m:gradient_checkpointing_enable()
    return m
  end, ids },
  gpt2_frozen = { function()
    local m = gpt2()()
    for name, p in m:named_parameters() do p:requires_grad_(name:find "h%.1%." ~= nil or name:find "ln_f" ~= nil) end
    return m
  end, ids },
  llama = { function() return models.LlamaForCausalLM(tiny "llama") end, ids },
  bert = { function() return models.BertForMaskedLM(tiny("bert", { hidden_dropout_prob = 0, attention_probs_dropout_prob = 0 })) end, ids },
  t5 = { T5, ids }, mixtral = { function() return models.MixtralForCausalLM(tiny "mixtral") end, ids },
  resnet = { ResNet, image }, tied = { Tied, function(g) return accel.randn(B, 5, 11, { generator = g }) end },
}

local training = dofile(ranks.tests .. "support/shard_training.lua")(made, B, STEPS)

local ways = {}
for stage = 0, 3 do ways[#ways + 1] = { zero_stage = stage } end
for _, s in ipairs { "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2" } do
  ways[#ways + 1] = { sharding_strategy = s }
end
ways[#ways + 1] = { fsdp_version = 2, reshard_after_forward = false }

-- ResNet and T5 have parameters that no batch of 5 reaches; experts of Mixtral get no token on some ranks.
local unused = { mixtral = true, t5 = true, resnet = true }
local features = { {}, { clip = 0.5 }, { accumulate = 2, whole = true }, { accumulate = 3, close = true }, { autocast = "bf16" },
  { optimizer = "sgd" } }

local function policy(model)
  local blocks = model._no_split_modules
  if blocks then return { kind = "transformer", classes = blocks } end
  return { kind = "lambda", fn = function(m) return #m:children() == 0 and #m:parameters() > 0 end }
end

local taken = ranks.sample.one_of(96)
--- What one rank computes, on rank 0 alone: the others wait.
local function alone(c)
  local losses = R == 0 and training.train(c, function(m) return m end, 1, 0) or {}
  local t = accel.zeros({ STEPS }, { dtype = "f64" })
  if R == 0 then t:copy_(accel.tensor(losses, { dtype = "f64" })) end
  accel.dist.broadcast(t, 0)
  return t:tolist()
end

for name in accel.pairs(PART ~= "world" and made or {}) do
  for _, feature in ipairs(features) do
    local c, one, ddp, bits = { model = name, unused = unused[name] }, nil, nil, nil
    for key, value in next, feature do c[key] = value end
    for _, way in ipairs(ways) do
      local take = taken()
      if take and B % (P * (c.accumulate or 1)) == 0 then
        one = one or alone(c)
        if not ddp then
          local model
          ddp, model = training.train(c, function(m)
            return nn.parallel.DistributedDataParallel(m, { find_unused_parameters = c.unused })
          end, P, R)
          bits = training.state_of(model)
        end
        local losses, model = training.train(c, function(m)
          local o = { auto_wrap_policy = policy(m), share_memory = arg[1] ~= "tcp" }
          for key, value in next, way do o[key] = value end
          return nn.parallel.FullyShardedDataParallel(m, o)
        end, P, R)
        local what = ("%s %s %s"):format(name, accel.inspect(feature), accel.inspect(way)):gsub("%s+", " ")
        local close = c.autocast and 0.03 or 1e-5
        local d = training.far(training.mean_over_ranks(losses), one)
        assert(d < close, ("%s: %g from one rank"):format(what, d))
        local exact = not c.clip and not c.close
        d = training.far(losses, ddp)
        assert(d < close and (not exact or d == 0), ("%s: %g from DDP"):format(what, d))
        for key, t in pairs(model:state_dict()) do
          assert(not exact or accel.equal(t, bits[key]), ("%s: %s is not DDP's"):format(what, key))
        end
      end
    end
  end
end

-- ---- deterministic = "world" ----

local world = ranks.sample.one_of(60)
for name in accel.pairs((not PART or PART == "world") and made or {}) do
  for _, way in ipairs { { zero_stage = 1 }, { zero_stage = 2 }, { zero_stage = 3 }, { sharding_strategy = "FULL_SHARD" },
    { sharding_strategy = "SHARD_GRAD_OP" }, { fsdp_version = 2, reshard_after_forward = true } } do
    if world() and P ~= 3 then
      local c = { model = name, world = true, accumulate = 4 // P, whole = true }
      local _, model = training.train(c, function(m)
        local o = { auto_wrap_policy = policy(m), deterministic = "world", share_memory = arg[1] ~= "tcp" }
        for key, value in next, way do o[key] = value end
        return nn.parallel.FullyShardedDataParallel(m, o)
      end, P, R)
      local hash = 0
      for _, t in pairs(model:state_dict()) do
        for char in t:detach():contiguous():to_bytes():gmatch "." do hash = hash * 0x100000001b3 ~ char:byte() end
      end
      -- every strategy and stage of a model has the same bits
      if R == 0 then print(("world %s: %016x"):format(name, hash)) end
    end
  end
end
