-- Options of accel.quant: each one changes which layers are quantised and to what, where they lie, warns, or raises
-- (support/option_sweep.lua).
--   accel-run tests/options/quant_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "quant"
local quant, nn = accel.quant, accel.nn

local root = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/quant-")
local n = 0
local function folder()
  n = n + 1
  return root .. "/" .. n
end
local function net()
  accel.manual_seed(1)
  local m = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 8))
  m.head = nn.Linear(8, 64)
  return m:eval()
end
local weights = folder()
accel.Accelerator():save_model(net(), weights)

--- Kinds, dtypes, places and bytes of a model's layers, and what it computes.
local function seen(m)
  local _ <close> = accel.no_grad()
  local kinds = {}
  for name, module in pairs(m:named_modules()) do
    local t = rawget(module, "_tensors") and module.weight
    kinds[#kinds + 1] = { name, getmetatable(module).__name, t and t.dtype, t and t.device, t and accel.offload.tier(t) }
  end
  local x = accel.arange(128):reshape(2, 64):float() / 64
  x:narrow(2, 3, 1):fill_(9) -- an outlier
  local ok, y = pcall(function() return m[1](x:to(m[3].weight.dtype)) end)
  return kinds, ok and y:float() or "no result", m:state_dict()
end
local function load(call)
  return seen((quant.load_and_quantize_model(net(), call())))
end
local values = { bnb_4bit_compute_dtype = { "f32" }, bnb_4bit_quant_type = { "nf4" }, bnb_4bit_use_double_quant = { true },
  head_quant_type = { "int8" }, keep_in_fp32_modules = { { "2" } }, skip_modules = { { "0" } }, torch_dtype = { "bf16" },
  llm_int8_threshold = { 0 }, load_in_8bit = { true }, load_in_4bit = { true } }
local function without(kind)
  local all = {}
  for key, value in pairs(values) do all[key] = key ~= kind and value or nil end
  return all
end
for _, kind in ipairs { "load_in_4bit", "load_in_8bit" } do
  s:variant("accel.quant.BnbQuantizationConfig", kind, { base = function() return { [kind] = true } end, run = load,
    values = without(kind), elsewhere = { [kind] = "tests/options/quant_test.lua" },
    raises = { load_in_8bit = "both", load_in_4bit = "both" } })
end
s:recipe("accel.quant.BnbQuantizationConfig:from_dict", {
  base = function() return { load_in_4bit = true } end, run = function(call) return call():to_dict() end, passes_on = true, -- fields of other methods
})
local on_load = { device_map = { { [""] = 0 }, "auto" }, max_memory = { { [0] = 1e9 } }, no_split_module_classes = { { "Linear" } },
  offload_folder = { root .. "/none" }, offload_state_dict = { true } }
do -- the plain call's own warning names weights_location: here it must be named as without effect
  local heard, was = {}, warn
  warn = function(...) heard[#heard + 1] = table.concat { ... } end -- luacheck: ignore 121
  quant.load_and_quantize_model(net(), quant.BnbQuantizationConfig { load_in_8bit = true }, { weights_location = weights })
  warn = was -- luacheck: ignore 121
  assert(table.concat(heard, "\n"):find("weights_location has no effect on a model that has weights", 1, true))
end
s:variant("accel.quant.load_and_quantize_model", "loaded", {
  base = function() return { model = net(), bnb_quantization_config = quant.BnbQuantizationConfig { load_in_8bit = true } } end,
  run = function(call) return seen((call())) end, values = on_load,
  elsewhere = { weights_location = "tests/options/quant_test.lua" },
})
s:recipe("accel.quant.replace_with_bnb_layers", {
  base = function() return { model = net(), config = quant.BnbQuantizationConfig { load_in_8bit = true } } end,
  run = function(call) return seen((call())) end,
  values = { modules_to_not_convert = { { "0" } }, heads = { { "0" } } }, passes_on = true, -- lists of names
})
s:recipe("accel.quant.from_state_dict", {
  base = function()
    local state = {}
    local m = quant.load_and_quantize_model(net(), quant.BnbQuantizationConfig { load_in_4bit = true })
    for name, t in pairs(m:state_dict()) do state[name] = t end
    return { name = "0.weight", state = state }
  end,
  values = { device = { "meta" }, dtype = { "f64" } },
})
s:finish()
