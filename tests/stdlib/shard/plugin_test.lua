-- FullyShardedDataParallelPlugin as a script sets it: a pretrained model that rank 0 alone reads, the policy as a function, activation
-- checkpointing, ignored modules by a regular expression, mixed_precision_policy, FSDP 2's names, and what has no effect says so.
--   accel-run tests/stdlib/shard/plugin_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local nn = accel.nn

if ranks.start { 1, 2, 3 } then
  ranks.run(2, { backend = "tcp" })
  return
end

local R, P <const> = ranks.rank, ranks.size
local folder = ("%s/plugin-%d-%s"):format(os.getenv "ACCEL_TEST_TMP" or "/tmp", P, P > 1 and accel.dist.get_backend() or "one")

local function accelerator(o)
  accel.accelerator.AcceleratorState._reset_state(true)
  return accel.Accelerator { fsdp_plugin = o and accel.FullyShardedDataParallelPlugin(o), mixed_precision = "no" }
end

--- Trains three steps and returns the losses; what the main process has at the end.
local function train(a, model, input)
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 0.01 })
  model, optimizer = a:prepare(model, optimizer)
  local losses = {}
  for s = 1, 3 do
    local loss = input(model, accel.Generator(s * 8 + R))
    a:backward(loss)
    optimizer:step()
    optimizer:zero_grad()
    losses[s] = loss:item()
  end
  return losses, a:get_state_dict(model), model
end

local function equal(a, b, what)
  for i = 1, #a do assert(a[i] == b[i], ("%s: loss %d: %.9g, not %.9g"):format(what, i, a[i], b[i])) end
end

do -- a pretrained model
  local ids = function(model, g) return model(accel.randint(0, 9, { 2, 6 }, { generator = g })):float():pow(2):mean() end
  accel.manual_seed(7)
  local a = accelerator()
  local gpt = accel.models.GPT2(accel.models.tiny.gpt2)
  if a.is_main_process then assert(gpt:save_pretrained(folder)) end
  a:wait_for_everyone()
  local function load()
    accel.manual_seed(7)
    return assert(accel.models.from_pretrained(folder))
  end
  local plain = load()
  for _, p in ipairs(plain:parameters()) do assert(p.device == "cpu") end
  local want, state = train(a, plain, ids)
  for _, o in ipairs { { cpu_ram_efficient_loading = true }, { cpu_ram_efficient_loading = true, fsdp_version = 2 }, {} } do
    o.auto_wrap_policy = "TRANSFORMER_BASED_WRAP"
    local b = accelerator(o)
    local model = load()
    assert((model:parameters()[1].device == "meta") == (o.cpu_ram_efficient_loading == true and R > 0))
    local got, whole = train(b, model, ids)
    equal(got, want, "from_pretrained")
    for name, t in pairs(b.is_main_process and whole or {}) do -- FSDP 2 and 1 have the names of the model itself
      assert(accel.equal(t, state[name]), name)
    end
    assert(b.is_fsdp2 == (o.fsdp_version == 2))
  end
  accel.accelerator.disable_fsdp_ram_efficient_loading()
end

local Block = nn.Module:extend "Block"
function Block:init() self.fc, self.drop, self.calls = nn.Linear(8, 8), nn.Dropout(0.2), 0 end
function Block:forward(x)
  self.calls = self.calls + 1
  return x + self.drop(self.fc(x):tanh())
end
local function blocks()
  accel.manual_seed(3)
  return nn.Sequential(nn.Linear(4, 8), Block(), Block(), nn.Linear(8, 2))
end
local function rows(model, g)
  accel.manual_seed(11)
  return model(accel.randn(3, 4, { generator = g })):pow(2):mean()
end

do -- computed again in backward: the same numbers, and twice the calls
  local want = train(accelerator(), blocks(), rows)
  for _, o in ipairs { { auto_wrap_policy = "TRANSFORMER_BASED_WRAP", transformer_cls_names_to_wrap = { "Block" } },
    { auto_wrap_policy = function(m) return accel.util.class.isinstance(m, Block) end },
    { auto_wrap_policy = function(m) return accel.util.class.isinstance(m, Block) end, forward_prefetch = true,
      backward_prefetch = "BACKWARD_POST" } } do
    for _, again in ipairs { false, true } do
      o.activation_checkpointing = again
      local net = blocks()
      local losses = train(accelerator(o), net, rows)
      equal(losses, want, "blocks")
      assert(net[2].calls == (again and 6 or 3), net[2].calls)
    end
  end
end

if P > 1 then -- what reaches the wrapper; options_test.lua shows what it does with each
  for _, case in ipairs { { {}, "reshard", true }, { { sharding_strategy = "SHARD_GRAD_OP" }, "reshard", false },
    { { fsdp_version = 2, reshard_after_forward = false }, "reshard", false }, { { forward_prefetch = true }, "forward_prefetch", true },
    { { backward_prefetch = "BACKWARD_PRE" }, "backward_prefetch", "BACKWARD_PRE" } } do
    case[1].auto_wrap_policy = function(m) return accel.util.class.isinstance(m, Block) end
    local model = accelerator(case[1]):prepare(blocks())
    assert(model.reducer.o[case[2]] == case[3], case[2])
  end
  local made, rests, activations = 0, 0, accel.offload.activations
  accelerator({ param_init_fn = function(module)
    made = made + 1
    for name, t, kind in module:_fields() do
      if kind == "parameter" then rawset(module, name, nn.Parameter(accel.full(t.shape, 0.25))) end
    end
  end }):prepare(accel.device("meta", function() return nn.Linear(4, 2) end))
  assert(made > 0)
  accel.offload.activations = function(...) -- luacheck: ignore 122
    rests = rests + 1
    return activations(...)
  end
  train(accelerator { fsdp_version = 2, activation_checkpointing = true, activation_checkpointing_offload = true,
    auto_wrap_policy = function(m) return accel.util.class.isinstance(m, Block) end }, blocks(), rows)
  accel.offload.activations = activations -- luacheck: ignore 122
  assert(rests > 0)
end

for version = 1, 2 do -- blocks of a model below adapters
  local a = accelerator { fsdp_version = version, auto_wrap_policy = "TRANSFORMER_BASED_WRAP" }
  local gpt = accel.models.GPT2(accel.models.tiny.gpt2)
  local made = a:prepare(accel.peft.get_peft_model(gpt, accel.peft.LoraConfig { r = 2, target_modules = { "c_attn" } }))
  if P > 1 then assert(#made.reducer.units >= #gpt.transformer.h, #made.reducer.units) end
end

for version = 1, 2 do -- one plugin serves two models, whose ignored modules differ
  for _, given in ipairs { "first", "both", "name" } do
    for _, apart in ipairs { false, true } do
      local one, two = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), nn.Linear(2, 1)
      local list = given == "name" and "0" or { one[1], given == "both" and two or nil }
      if given == "both" then two = nn.Sequential(two, nn.Linear(1, 1)) end
      local a = accelerator { fsdp_version = version, ignored_modules = list }
      if apart then
        a:prepare(one)
        a:prepare(two)
      else
        a:prepare(one, two)
        a:prepare(one, two)
      end
    end
  end
end

if P > 1 then
  for _, given in ipairs { "0", "list" } do -- both versions leave the same ones out
    for version = 1, 2 do
      local net = blocks()
      local a = accelerator { fsdp_version = version, ignored_modules = given == "list" and { net[1] } or given }
      local o = accel.optim.AdamW(net:parameters())
      local own = net[1]:parameters()
      net, o = a:prepare(net, o)
      local steps, list = {}, o.param_groups[1].params
      for _, p in ipairs(list) do steps[p] = true end
      for _, p in ipairs(own) do assert(steps[p], ("version %d: an ignored module is divided"):format(version)) end
      assert(P == 1 or #list < #net:parameters() or not steps[net[2]:parameters()[1]])
    end
  end
  local _, _, model = train(accelerator { ignored_modules = "0|[12]\\.drop" }, blocks(), rows)
  assert(#model.reducer.params == 6)
  ranks.fails("ignored_modules '('", train, accelerator { ignored_modules = "(" }, blocks(), rows)
  local policy = { param_dtype = "bf16", reduce_dtype = "f32", buffer_dtype = "bf16" }
  _, _, model = train(accelerator { mixed_precision_policy = policy }, blocks(), rows)
  assert(model[1].weight.dtype == "bf16")
end
