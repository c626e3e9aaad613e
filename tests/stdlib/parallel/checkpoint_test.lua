-- Checkpoints of models on meshes: from one layout to any other, with the optimizer's states, bit for bit; whole states and Hugging
-- Face folders that one rank loads; what is not to be saved is said.
--   accel-run tests/stdlib/parallel/checkpoint_test.lua
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local A = accel.accelerator

-- tp, pp, data, what FSDP's plugin cuts, ep; chunks: of each stage; backend
local families = {
  gpt2 = { { 1, 1, 1 }, { 2, 1, 1 }, { 1, 2, 1 }, { 2, 2, 1 }, { 2, 1, 2, "FULL_SHARD" }, { 1, 2, 2, "SHARD_GRAD_OP" },
    { 2, 2, 2, "FULL_SHARD" }, { 1, 1, 2, "FULL_SHARD" }, { 1, 2, 1, chunks = 2 }, { 2, 2, 2, "SHARD_GRAD_OP", chunks = 2 } },
  mixtral = { { 1, 1, 1 }, { 1, 1, 2, nil, 2 }, { 1, 1, 4, "FULL_SHARD", 2 }, { 2, 1, 2, nil, 2 }, { 1, 2, 2, "FULL_SHARD", 2 },
    { 2, 2, 2, "SHARD_GRAD_OP", 2 }, { 1, 1, 4, nil, 4 }, { 2, 2, 1 },
    { 1, 1, 4, "FULL_SHARD", 2, backend = "tcp" }, { 1, 2, 4, "FULL_SHARD", 2 } },
}

local function make(family)
  if family == "gpt2" then
    return accel.models.GPT2 { vocab_size = 33, n_positions = 16, n_embd = 16, n_layer = 4, n_head = 4 }
  end
  return accel.models.MixtralForCausalLM { vocab_size = 33, hidden_size = 16, intermediate_size = 12, num_hidden_layers = 2,
    num_attention_heads = 4, num_key_value_heads = 4, num_local_experts = 4, output_router_logits = true }
end

local function prepared(family, layout, seed)
  local tp, pp, dp, zero, ep = table.unpack(layout, 1, 5)
  local config = (tp * pp > 1 or ep) and accel.ParallelismConfig { tp_size = tp, pp_size = pp, dp_shard_size = dp, ep_size = ep or 1,
    pp_handler = pp > 1 and A.PipelineParallelConfig { num_micro_batches = 2, virtual_stages = layout.chunks or 1 } or nil } or nil
  local a = accel.Accelerator { parallelism_config = config,
    fsdp_plugin = zero and accel.FullyShardedDataParallelPlugin { sharding_strategy = zero } or nil }
  accel.manual_seed(seed)
  local model = make(family)
  local optimizer = accel.optim.AdamW({ { params = model:parameters(), lr = 1e-2 } }, { lr = 1e-2 })
  model, optimizer = a:prepare(model, optimizer)
  return a, model, optimizer
end

--- A hash of everything that one rank has: parameters and states of the optimizer, by name, whole.
local function digest(dir)
  local all = {}
  for _, object in ipairs { "model", "optimizer" } do
    for name, t in accel.pairs(accel.load(dir .. "/" .. object .. ".safetensors")) do
      local h = 0
      for i, byte in ipairs { t:contiguous():to_bytes():byte(1, 4096) } do h = (h * 31 + byte + i) & 0xffffffff end
      all[#all + 1] = ("%s %s %08x"):format(object, name, h)
    end
  end
  return table.concat(all, "\n")
end

if ranks.launched or arg[1] then
  local family, number, mode, from, to = table.unpack(arg)
  local layout = families[family][tonumber(number)]
  local a, model, optimizer = prepared(family, layout, mode == "first" and 3 or 77 + ranks.rank)
  if mode == "first" then
    for step = 1, 2 do
      local ids = accel.randint(0, 33, { 4, 8 }, { generator = accel.Generator(step) })
      local loss = model(ids, { labels = ids })
      a:backward(loss)
      optimizer:step()
      optimizer:zero_grad()
    end
  else
    a:load_state(from)
  end
  a:save_state(to)
  local state = a:get_state_dict(model)
  if a.is_main_process then
    local n = 0
    for name, t in pairs(state) do
      n = n + 1
      assert(t.device == "cpu" and not t.requires_grad, name)
    end
    assert(n == (family == "gpt2" and 53 or 2 * 7 + 2 * 12 + 3), n) -- of GPT-2 the tied head among them
  end
  a:save_model(model, to .. "/hf")
  return
end

local function run(family, i, mode, from, to)
  local layout = families[family][i]
  local n = layout[1] * layout[2] * layout[3]
  ranks.run(n > 1 and n or nil, { args = ("%s %d %s '%s' '%s'"):format(family, i, mode, from, to), capture = true,
    backend = layout.backend })
end

local dir = (os.getenv "ACCEL_TEST_TMP" or os.tmpname() .. ".d") .. "/mesh"
os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(dir, dir))
local take, n = ranks.sample.one_of(40), 0

--- From one layout to another.
local function go(family, i, j)
  local a, b, c = dir .. "/a", dir .. "/b", dir .. "/c"
  run(family, i, "first", "-", a) -- trained there
  run(family, 1, "load", a, b) -- as one rank has it
  run(family, j, "load", a, c) -- on another layout, stored again
  run(family, 1, "load", c, a .. "again")
  local want, got = digest(b), digest(a .. "again")
  assert(want == got, ("%s from layout %d to %d: other bits"):format(family, i, j))
  local hf = {}
  for _, folder in ipairs { a, b, c } do
    local parts = {}
    for name, t in accel.pairs(accel.load(folder .. "/hf/model.safetensors")) do parts[#parts + 1] = name .. t:to_bytes() end
    hf[#hf + 1] = table.concat(parts)
  end
  assert(hf[1] == hf[2] and hf[2] == hf[3], "model.safetensors")
  os.execute(("rm -rf '%s'/*"):format(dir))
end

for family, layouts in accel.pairs(families) do
  for i = 1, #layouts do
    for j = 1, #layouts do
      if take() then
        n = n + 1
        go(family, i, j)
      end
    end
  end
end
assert(n >= 5)
