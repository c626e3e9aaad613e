-- add_weighted_adapter: every combination against PEFT's numbers, exact sums of different ranks, adapters in different layers; what it refuses.
--   accel-run tests/stdlib/peft/weighted_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
local says = dofile(here .. "../../support/ranks.lua").fails
local nn, peft = accel.nn, accel.peft
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/peft-weighted-"))

local function off(a, b) return (a:to "f64" - b:to "f64"):abs():max():item() end

local golden
do
  local file <close> = assert(io.open(here .. "../../reference/weighted_adapters.json", "rb"))
  golden = accel.json.decode(file:read "a")
end

local Net = nn.Module:extend "Net"
function Net:init()
  self.lin = nn.Linear(6, 5)
  self.conv = nn.Conv2d(2, 3, 3)
end
function Net:forward(x) return self.lin(x) end

local function lora(more)
  local o = { r = 2, target_modules = { "lin", "conv" }, init_lora_weights = false }
  for key, value in next, more or {} do o[key] = value end
  return peft.LoraConfig(o)
end

for i, case in ipairs(golden.lora) do
  local model = peft.get_peft_model(Net(), lora { lora_alpha = 3 }, { adapter_name = "a" })
  model:add_adapter("b", lora { lora_alpha = 1 })
  local net = model:get_base_model()
  for _, name in ipairs { "lin", "conv" } do
    for _, adapter in ipairs { "a", "b" } do
      net[name].lora_A[adapter].weight:detach():copy_(accel.tensor(case[name][adapter][1]))
      net[name].lora_B[adapter].weight:detach():copy_(accel.tensor(case[name][adapter][2]))
    end
  end
  local o = { combination_type = case.kind }
  for key, value in pairs(case.options) do o[key] = value end
  model:add_weighted_adapter({ "a", "b" }, case.weights, "c", o)
  for _, name in ipairs { "lin", "conv" } do
    local far = off(net[name]:get_delta_weight "c", accel.tensor(case[name].delta))
    assert(far < 2e-6, ("%d: %s of %s: %g"):format(i, name, case.kind, far))
  end
  assert(model.active_adapter == "a" and not net.lin.lora_A.c.weight.requires_grad)
  model:set_adapter "c"
  assert(net.lin.lora_A.c.weight.requires_grad and not net.lin.lora_A.a.weight.requires_grad)
end

do -- IA3: the sum of vectors
  local config = peft.IA3Config { target_modules = { "lin" }, feedforward_modules = {}, init_ia3_weights = false }
  local model = peft.get_peft_model(Net(), config, { adapter_name = "a" })
  model:add_adapter("b", config)
  local l = model:get_base_model().lin.ia3_l
  for _, name in ipairs { "a", "b" } do l[name]:detach():copy_(accel.tensor(golden.ia3[name])) end
  model:add_weighted_adapter({ "a", "b" }, { 0.7, -0.3 }, "c")
  assert(off(l.c, accel.tensor(golden.ia3.c)) < 1e-6)
  says('vectors of IA3 are summed by their weights; leave combination_type out, or set "linear"', model.add_weighted_adapter, model, { "a" },
    { 1 }, "d", { combination_type = "cat" })
end

-- ranks and layers that differ: outputs of the sum are the sum of the outputs' changes; folders keep it; merging gives the same model
accel.manual_seed(3)
local x = accel.randn(3, 6)
local model = peft.get_peft_model(Net(), lora { use_rslora = true, lora_alpha = 5 }):eval()
model:add_adapter("b", lora { r = 3, target_modules = { "lin" } })
local plain = model:disable_adapter(function() return model(x) end)
local function with(name)
  model:set_adapter(name)
  return model(x)
end
local want = plain + (with "default" - plain) * 0.7 - (with "b" - plain) * 1.3
for _, kind in ipairs { "cat", "svd" } do
  model:add_weighted_adapter({ "default", "b" }, { 0.7, -1.3 }, kind, { combination_type = kind, svd_rank = kind == "svd" and 5 or nil })
  assert(model.peft_config[kind].r == 5 and off(with(kind), want) < 1e-5, kind)
end
model:add_weighted_adapter({ "default", "b" }, { 0.7, -1.3 }, "low")
assert(model.peft_config.low.r == 3 and off(with "low", want) > 1e-4)
assert(model:save_pretrained(root, { selected_adapters = { "cat" } }))
local again = Net()
again:load_state_dict(peft.get_peft_model(Net(), lora()):unload():state_dict())
for name, value in pairs(model:unload():state_dict()) do again:state_dict()[name]:copy_(value) end
again = assert(peft.PeftModel.from_pretrained(again, root .. "/cat"))
assert(off(again(x), want) < 1e-5)
assert(off(again:merge_and_unload()(x), want) < 1e-5)

-- ---- refused ----
model = peft.get_peft_model(Net(), lora())
model:add_adapter("b", lora { r = 3 })
local function refused(text, names, weights, o, name) says(text, model.add_weighted_adapter, model, names, weights, name or "c", o) end
refused("adapters must be a list of names", {}, {})
refused("weights must be a list of 2 numbers, one an adapter, got 1 of them", { "default", "b" }, { 1 })
refused("there is no adapter 'x'", { "default", "x" }, { 1, 1 })
refused("weights[2] must be a number", { "default", "b" }, { 1, "2" })
refused("needs adapters of one rank, got r = 2 and r = 3 (b)", { "default", "b" }, { 1, 1 }, { combination_type = "linear" })
refused("drops values at random", { "default" }, { 1 }, { combination_type = "dare_linear" })
refused("combination_type 'sum' is not one of", { "default" }, { 1 }, { combination_type = "sum" })
refused("needs density", { "default" }, { 1 }, { combination_type = "ties" })
refused("takes no density", { "default" }, { 1 }, { combination_type = "cat", density = 0.5 })
refused("svd_rank has no effect", { "default" }, { 1 }, { combination_type = "cat", svd_rank = 2 })
refused("majority_sign_method has no effect", { "default" }, { 1 }, { combination_type = "cat", majority_sign_method = "total" })
refused('majority_sign_method must be "total" or "frequency"', { "default" }, { 1 },
  { combination_type = "ties", density = 1, majority_sign_method = "x" })
refused("there is an adapter 'b' already", { "default" }, { 1 }, nil, "b")
for key, value in pairs { use_dora = true, modules_to_save = { "conv" }, lora_bias = true } do
  local o = { [key] = value, target_modules = { "lin" } }
  local other = peft.get_peft_model(Net(), lora(o))
  says("adapter 'default' has " .. key, other.add_weighted_adapter, other, { "default" }, { 1 }, "c")
end
do
  local other = peft.get_peft_model(Net(), peft.LoHaConfig { target_modules = { "lin" } })
  says("adapters of type LOHA have no weighted combination", other.add_weighted_adapter, other, { "default" }, { 1 }, "c")
end
