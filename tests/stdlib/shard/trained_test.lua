-- The trained parameters change after prepare: random schedules of freezing, unfreezing, new groups, new modules, new adapters and other
-- adapters, on two ranks in every way of sharing a model, against one rank that has the whole batch. Parameters and what optimizers know
-- of them must be the same at the end, whole states as well, and a checkpoint goes on in a model that was changed in the same way.
--   accel-run tests/stdlib/shard/trained_test.lua [SEED [WAY]]
-- tier: sampled
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn, peft = accel.nn, accel.peft

local STEPS <const>, ROWS <const>, WIDTH <const> = 12, 4, 6

local function deepspeed(stage)
  return { deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = { train_micro_batch_size_per_gpu = 1, gradient_accumulation_steps = 1,
    zero_optimization = { stage = stage, stage3_param_persistence_threshold = 0, stage3_gather_16bit_weights_on_model_save = true } } } }
end

local function fsdp(version, o)
  o.fsdp_version = version
  o.auto_wrap_policy, o.transformer_cls_names_to_wrap = "TRANSFORMER_BASED_WRAP", { "Block" }
  return { fsdp_plugin = accel.FullyShardedDataParallelPlugin(o) }
end

local function tensor(size, sizes, o)
  if size == 1 then return {} end
  sizes.tp_size = 2
  sizes.tp_handler = accel.accelerator.TorchTensorParallelConfig {
    tp_plan = { ["blocks.*.up"] = "colwise", ["blocks.*.down"] = "rowwise", head = "colwise_rep" },
  }
  o.parallelism_config = accel.accelerator.ParallelismConfig(sizes)
  return o
end

-- Of each: its name, the Accelerator's options, ranks that it takes (2), ranks that read different data (all).
local strategies = {
  { "ddp", function() return {} end },
  { "ddp unused", function()
    return { kwargs_handlers = { accel.DistributedDataParallelKwargs { find_unused_parameters = true } } }
  end },
  { "fsdp1 full", function() return fsdp(1, { sharding_strategy = "FULL_SHARD" }) end },
  { "fsdp1 grads", function() return fsdp(1, { sharding_strategy = "SHARD_GRAD_OP" }) end },
  { "fsdp1 none", function() return fsdp(1, { sharding_strategy = "NO_SHARD" }) end },
  { "fsdp2", function() return fsdp(2, {}) end },
  { "zero0", function() return deepspeed(0) end },
  { "zero1", function() return deepspeed(1) end },
  { "zero2", function() return deepspeed(2) end },
  { "zero3", function() return deepspeed(3) end },
  { "tp", function(size) return tensor(size, {}, {}) end, readers = 1 },
  { "tp ddp", function(size) return tensor(size, { dp_shard_size = 2 }, {}) end, ranks = 4, readers = 2 },
  { "tp fsdp2", function(size) return tensor(size, { dp_shard_size = 2 }, fsdp(2, {})) end, ranks = 4, readers = 2 },
}

local seed = math.tointeger(tonumber(arg[1])) or ranks.sample.seed

do -- those that this run is about: a part of them where it is a sample
  local only = {}
  for i, s in ipairs(strategies) do
    local wanted = (ranks.sample.full or arg[2] or (seed + i) % 6 == 0) and (not ranks.launched or (s.ranks or 2) == ranks.size)
    only[#only + 1] = wanted and (not arg[2] or s[1] == arg[2]) and s or nil
  end
  strategies = only
end

-- ---- the model ----

local Block = nn.Module:extend "Block"
function Block:init() self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH) end
function Block:forward(x) return x + self.down(self.up(x):tanh()) end

local Net = nn.Module:extend "Net"
function Net:init()
  self.blocks, self.head, self.extra = nn.ModuleList { Block(), Block(), Block() }, nn.Linear(WIDTH, 2), false
end
function Net:forward(x)
  for _, block in ipairs(self.blocks) do x = block(x) end
  local y = self.head(x)
  return self.extra and y + self.extra(x) or y
end

local function lora(targets) return peft.LoraConfig { r = 2, lora_alpha = 4, target_modules = targets, init_lora_weights = false } end

local function learning(module)
  local list = {}
  for _, p in ipairs(module:parameters()) do list[#list + 1] = p end
  return list
end

-- ---- schedules ----

--- What happens before each step: the same list on all ranks, of numbers that come from the seed alone.
local function schedule(seed)
  local state = seed
  local function draw(n) -- splitmix64
    state = state + 0x9E3779B97F4A7C15
    local z = state
    z = (z ~ z >> 30) * 0xBF58476D1CE4E5B9
    z = (z ~ z >> 27) * 0x94D049BB133111EB
    return ((z ~ z >> 31) >> 1) % n + 1
  end
  local list, adapters, extra = {}, 1, false
  for step = 1, STEPS do
    local kind, at = draw(7), draw(3)
    if kind == 1 then list[step] = { "freeze", at }
    elseif kind == 2 then list[step] = { "unfreeze", at }
    elseif kind == 3 then
      adapters = adapters + 1
      list[step] = { "add adapter", adapters, draw(2) == 1 and { "up" } or { "up", "down" } }
    elseif kind == 4 then list[step] = { "switch adapter", (draw(adapters)) }
    elseif kind == 5 and not extra then list[step], extra = { "add group" }, true
    elseif kind == 6 then list[step] = { "replace", at }
    else list[step] = { "none" } end
  end
  return list
end

local function known_to(optimizer)
  local known = {}
  for _, p in ipairs(optimizer.known) do known[p] = true end
  return known
end

--- Adds parameters that the optimizer does not have as a group of their own.
local function adopt(optimizer, list, real)
  local known, fresh = known_to(optimizer), {}
  for _, p in ipairs(list) do fresh[#fresh + 1] = not known[p] and p or nil end
  if #fresh == 0 then return end
  for _, p in ipairs(fresh) do table.insert(optimizer.known, p) end
  real:add_param_group { params = fresh, lr = 0.02 }
end

local function act(what, net, inner, optimizer, real)
  local kind, at = what[1], what[2]
  if kind == "freeze" or kind == "unfreeze" then
    local down = inner.blocks[at].down
    local base = rawget(down, "base_layer") or down -- an inactive adapter would get no gradient
    base:requires_grad_(kind == "unfreeze")
  elseif kind == "add adapter" then
    net:add_adapter("a" .. at, lora(what[3]))
    adopt(optimizer, learning(net), real)
  elseif kind == "switch adapter" then
    net:set_adapter("a" .. at)
  elseif kind == "add group" then
    inner.extra = nn.Linear(WIDTH, 2):double()
    adopt(optimizer, learning(inner.extra), real)
  elseif kind == "replace" then
    inner.head = nn.Linear(WIDTH, 2):double()
    adopt(optimizer, learning(inner.head), real)
  end
end

local function make(options)
  accel.AcceleratorState._reset_state(true)
  local acc = accel.Accelerator(options)
  accel.manual_seed(7)
  local inner = Net():double()
  local net = peft.get_peft_model(inner, lora { "up" }, { adapter_name = "a1" })
  inner.head:requires_grad_(true)
  local optimizer = accel.optim.AdamW(learning(net), { lr = 0.01 })
  local known = table.move(learning(net), 1, #net:parameters(), 1, {})
  local model, prepared = acc:prepare(net, optimizer)
  return acc, inner, net, model, prepared, { known = known }, optimizer
end

--- The values of all parameters at the end, whole, as lines.
local function lines_of(acc, model)
  local out = {}
  for name, t in pairs(acc:get_state_dict(model)) do out[#out + 1] = ("%s %.15g"):format(name, (t:double() * (t:double() + 3)):sum():item()) end
  table.sort(out)
  return out
end

local function train(s, seed, first, last, run, given)
  local acc, inner, net, model, prepared, optimizer, real = table.unpack(run or { make(s[2](ranks.size)) })
  local list = given or schedule(seed)
  local readers = acc.num_processes == 1 and 1 or s.readers or acc.num_processes
  local per, reader = ROWS // readers, acc.process_index // (acc.num_processes // readers)
  for step = first, last do
    accel.manual_seed(100 + step)
    act(list[step], net, inner, optimizer, real)
    local x = accel.randn({ ROWS, WIDTH }, { generator = accel.Generator(step), dtype = "f64" })
    local part = x:narrow(1, reader * per + 1, per)
    acc:backward(model(part):pow(2):mean())
    if not rawget(acc, "_deepspeed") and step % 3 == 0 then acc:clip_grad_norm_(model:parameters(), 0.5) end
    prepared:step()
    prepared:zero_grad()
  end
  return acc, model, { acc, inner, net, model, prepared, optimizer, real }
end

-- ---- the test ----



--- A state that is saved after a change goes on in a model that was changed in the same way, as if nothing had happened: saved before the
--- forward that follows the change.
local function resumes(s, lines, dir)
  local half = STEPS // 2
  local _, _, run = train(s, seed, 1, half)
  local acc, inner, net, _, _, optimizer, real = table.unpack(run)
  local list = schedule(seed)
  accel.manual_seed(100 + half + 1)
  act(list[half + 1], net, inner, optimizer, real)
  local middle = lines_of(acc, run[4])
  acc:save_state(dir)
  run = { make(s[2](ranks.size)) }
  acc, inner, net, _, _, optimizer, real = table.unpack(run)
  for step = 1, half + 1 do
    act(list[step], net, inner, optimizer, real)
    -- A head that the optimizer knows and that is replaced again must have been seen by a forward, as it was in the first run.
    if step <= half then run[4](accel.zeros({ 1, WIDTH }, { dtype = "f64" })) end
  end
  acc:load_state(dir)
  local loaded = lines_of(acc, run[4])
  list[half + 1] = { "none" }
  local _, model = train(s, seed, half + 1, STEPS, run, list)
  for i, line in ipairs(lines_of(acc, model)) do
    assert(line == lines[i], ("seed %d, %s: resumed %s, trained through %s"):format(seed, s[1], line, tostring(lines[i])))
  end
  for i, line in ipairs(loaded) do
    assert(line == middle[i], ("seed %d, %s: loaded %s, saved %s"):format(seed, s[1], line, tostring(middle[i])))
  end
end

if ranks.launched then
  local dir = os.getenv "TRAINED_DIR"
  for i, s in ipairs(strategies) do
    local acc, model = train(s, seed, 1, STEPS)
    local lines = lines_of(acc, model)
    if acc.is_main_process then
      for _, line in ipairs(lines) do print(s[1] .. ": " .. line) end
    end
    if ranks.sample.full or (seed + i) % 4 == 0 then resumes(s, lines, ("%s/%d-%d"):format(dir, seed, i)) end
  end
  return
end

local function compare(one_seed, n_ranks)
  local list = {}
  for _, s in ipairs(strategies) do list[#list + 1] = (s.ranks or 2) == n_ranks and s or nil end
  if #list == 0 then return end
  local dir = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/trained-")
  local args = arg[2] and ("%d '%s'"):format(one_seed, arg[2]) or tostring(one_seed)
  local said = ranks.run(n_ranks, { env = { TRAINED_DIR = dir }, args = args, capture = true })
  for _, s in ipairs(list) do
    local got, n = {}, 0
    for name, value in ("\n" .. said):gmatch("\n" .. s[1] .. ": (%S+) (%S+)") do got[name], n = tonumber(value), n + 1 end
    local acc, model = train(s, one_seed, 1, STEPS)
    local count = 0
    for _, line in ipairs(lines_of(acc, model)) do
      local name, value = line:match "^(%S+) (%S+)$"
      count = count + 1
      assert(got[name] and math.abs(got[name] - tonumber(value)) <= 1e-9 * (1 + math.abs(tonumber(value))),
        ("seed %d, %s: %s is %s on %d ranks, %s on one"):format(one_seed, s[1], name, got[name], n_ranks, value))
    end
    assert(n == count, ("seed %d, %s: %d parameters on %d ranks, %d on one"):format(one_seed, s[1], n, n_ranks, count))
  end
end

local seeds = {}
for k = 1, ranks.sample.full and not arg[1] and 40 or 1 do seeds[k] = seed + k - 1 end
for _, one_seed in ipairs(seeds) do
  print(("schedule of seed %d; accel-run %s %d repeats it"):format(one_seed, arg[0], one_seed))
  compare(one_seed, 2)
  if ranks.sample.full or arg[2] then compare(one_seed, 4) end
end
