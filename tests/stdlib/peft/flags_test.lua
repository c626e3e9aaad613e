-- Which parameters learn after each call, as PEFT 0.21 has it: set_adapter and add_adapter change the flags of adapters alone, so that a head
-- that a script unfroze goes on learning. Biases are the model's, so that a second adapter cannot train them.
--   accel-run tests/stdlib/peft/flags_test.lua
local accel = require "accel"
local nn, peft = accel.nn, accel.peft

local Net = nn.Module:extend "Net"
function Net:init() self.a, self.b, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3) end
function Net:forward(x) return self.head(self.b(self.a(x))) end

local function lora(targets, o)
  o = o or {}
  o.r, o.target_modules = 2, targets
  return peft.LoraConfig(o)
end

local function expect(model, want)
  local names = {}
  for name, p in pairs(model:named_parameters()) do
    if p.requires_grad then names[#names + 1] = (name:gsub("^base_model%.model%.", ""):gsub("%.weight$", "")) end
  end
  table.sort(names)
  local got = table.concat(names, " ")
  if got ~= want then error(("%s learn, expected %s"):format(got, want), 2) end
end

do -- a head that was unfrozen, and a layer that another adapter stands around
  local m = peft.get_peft_model(Net(), lora { "a" })
  expect(m, "a.lora_A.default a.lora_B.default")
  m.base_model.model.head.weight:requires_grad_(true)
  m:add_adapter("x", lora { "a", "b" })
  expect(m, "a.lora_A.default a.lora_B.default head")
  m:set_adapter "x"
  expect(m, "a.lora_A.x a.lora_B.x b.lora_A.x b.lora_B.x head")
  m.base_model.model.b.base_layer.weight:requires_grad_(true)
  m:set_adapter "default"
  expect(m, "a.lora_A.default a.lora_B.default b.base_layer head")
  m:merge_adapter()
  expect(m, "a.lora_A.default a.lora_B.default b.base_layer head")
  m:unmerge_adapter()
  expect(m:unload(), "b head")
end

do -- part of an adapter that a script froze
  local m = peft.get_peft_model(Net(), lora { "a" })
  m.base_model.model.a.lora_A.default:requires_grad_(false)
  m:add_adapter("y", lora { "a" })
  expect(m, "a.lora_B.default")
  m:set_adapter "default"
  expect(m, "a.lora_A.default a.lora_B.default")
end

do -- biases
  local m = peft.get_peft_model(Net(), lora({ "a" }, { bias = "lora_only" }))
  expect(m, "a.base_layer.bias a.lora_A.default a.lora_B.default")
  m:add_adapter("y", lora { "a" })
  m:set_adapter "y"
  expect(m, "a.base_layer.bias a.lora_A.y a.lora_B.y")
  local ok, message = pcall(m.add_adapter, m, "z", lora({ "a" }, { bias = "all" }))
  assert(not ok and message:find('bias is "all"', 1, true) and message:find 'set bias = "none"', message)
  m = peft.get_peft_model(Net(), lora({ "a" }, { bias = "all" }))
  expect(m, "a.base_layer.bias a.lora_A.default a.lora_B.default b.bias head.bias")
end

do -- modules that are saved, IA3, adapters for inference
  local m = peft.get_peft_model(Net(), lora({ "a" }, { modules_to_save = { "head" } }))
  m:add_adapter("y", lora { "b" })
  expect(m, "a.lora_A.default a.lora_B.default head.modules_to_save.default head.modules_to_save.default.bias")
  m:set_adapter "y"
  expect(m, "b.lora_A.y b.lora_B.y")
  m = peft.get_peft_model(Net(), peft.IA3Config { target_modules = { "a", "b" }, feedforward_modules = { "b" } })
  m:add_adapter("y", peft.IA3Config { target_modules = { "a" }, feedforward_modules = {} })
  expect(m, "a.ia3_l.default b.ia3_l.default")
  m:set_adapter "y"
  expect(m, "a.ia3_l.y")
  m = peft.get_peft_model(Net(), lora({ "a" }, { inference_mode = true }))
  expect(m, "")
  m:set_adapter "default"
  expect(m, "a.lora_A.default a.lora_B.default")
end

-- ---- keys that a kind of adapter does not declare ----
do
  local dir = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/declared"
  local function model() return accel.nn.Sequential(accel.nn.Linear(4, 3)) end
  local made = accel.peft.get_peft_model(model(), accel.peft.IA3Config { target_modules = { "0" }, feedforward_modules = {} })
  assert(made:save_pretrained(dir))
  local f = assert(io.open(dir .. "/adapter_config.json"))
  local given = accel.json.decode(f:read "a")
  f:close()
  for key, value in pairs { layers_to_transform = { 0 }, lora_alpha = 3, use_dora = true, bias = "all", no_such_key = 1 } do
    local file = {}
    for name, v in pairs(given) do file[name] = v end
    file[key] = value
    assert(accel.write_file(dir .. "/adapter_config.json", accel.json.encode(file)))
    local none, message, code = accel.peft.PeftModel.from_pretrained(model(), dir)
    assert(none == nil and code == "format" and message:find(key, 1, true), message)
  end
  if os.getenv "ACCEL_TEST_STRICT" == "1" then
    local ok, why = pcall(function() return accel.peft.IA3Config {}.lora_alpha end)
    assert(not ok and why:find("'lora_alpha' is read, which it does not declare", 1, true), why)
  end
end

do -- an adapter that cannot be added to all of its layers leaves the model as it was
  local net = Net()
  local layers, x = { net.a, net.b, net.head }, accel.randn(2, 3)
  local before = net(x):detach()
  local ok, message = pcall(peft.get_peft_model, net, lora({ "a" }, { modules_to_save = { "nowhere" } }))
  assert(not ok and message:find "no module is called nowhere", message)
  assert(net.a == layers[1] and net.b == layers[2] and net.head == layers[3] and net.a.weight.requires_grad)
  local m = peft.get_peft_model(net, lora { "a" })
  ok, message = pcall(m.add_adapter, m, "x", lora({ "b" }, { modules_to_save = { "nowhere" } }))
  assert(not ok and message:find "no module is called nowhere", message)
  expect(m, "a.lora_A.default a.lora_B.default")
  assert((m(x) - before):abs():max():item() == 0)
  m:add_adapter("x", lora { "b" })
  m:set_adapter "x"
  expect(m, "b.lora_A.x b.lora_B.x")
end

do -- values that another library would take for something else
  for bad, part in accel.pairs { ia3_only = "'lora_only', got", lora = "got" } do
    local ok, message = pcall(lora, { "a" }, { bias = bad })
    assert(not ok and message:find(part, 1, true) and message:find(bad, 1, true), message)
  end
  local ok, message = pcall(peft.get_peft_model, Net(), lora({ "a" }, { trainable_token_indices = 3 }))
  assert(not ok and message:find "must be a list of rows", message)
end
