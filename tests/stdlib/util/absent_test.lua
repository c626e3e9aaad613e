-- Names of PyTorch and Accelerate that are not here: every module says what to use; names that nobody knows stay nil.
--   accel-run tests/stdlib/util/absent_test.lua
local accel = require "accel"
local absent = require "accel.util.absent"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local says = ranks.fails

local modules = { "accelerator", "nn", "optim", "data", "dist", "models", "metrics", "text", "amp", "autograd", "util" }

-- what is read raises, at the script's line, with what to use
says("accel.MegatronEngine is not in accel yet (Megatron-LM's own classes); accel.Accelerator { megatron",
  function() return accel.MegatronEngine {} end)
says('accel.load_offloaded_weights is not in accel; accel.accelerator.OffloadedWeightsLoader reads an offload folder',
  function() return accel.load_offloaded_weights() end)
says("accel.accelerator.FSDPModule is not in accel yet (sharding of models by other means", function()
  return accel.accelerator.FSDPModule
end)
says("accel.nn.DataParallel is not in accel; accelerator:prepare(model)", function() return accel.nn.DataParallel end)
says("accel.optim.AdaLomo is not in accel", function() return accel.optim.AdaLomo end)
says("accel.multiprocessing is not in accel", function() return accel.multiprocessing end)
says("accel.data.DistributedSampler is not in accel", function() return accel.data.DistributedSampler end)
do
  local ok, err = pcall(function() return accel.nn.DataParallel end)
  assert(not ok and tostring(err):find "absent_test.lua:%d+: accel.nn.DataParallel is not in accel", err)
end

-- names of the table are nowhere else, whatever module is asked; each says something
local n = 0
for _, name in ipairs(absent.names()) do
  n = n + 1
  local text = absent.explain(name)
  assert(text and text:find(name, 1, true) and #text > #name + 20, name)
  if not name:find "^accel%-run " then
    assert(not pcall(function() return accel[name] end), "accel." .. name)
    for _, module in ipairs(modules) do
      assert(not pcall(function() return accel[module][name] end), module .. "." .. name)
      assert(rawget(accel[module], name) == nil, "rawget raises nothing")
    end
  end
end
assert(n > 150, n)

-- names of PyTorch's namespaces: free in other modules
assert(absent.reason("Tensor", "values") and absent.explain "to_sparse" and absent.explain "torch.seed")
assert(accel.nn.values == nil and accel.seq == nil and not pcall(function() return accel.seed end))

says("accel.vision.datasets is not in accel; accel.vision.ImageFolder", function() return accel.vision.datasets end)
says("accel.vision.io.decode_png is not in accel; accel.vision.io.decode_image", function() return accel.vision.io.decode_png end)
says("accel.audio.transforms.Vol is not in accel; multiply", function() return accel.audio.transforms.Vol end)
says("accel.vision.transforms.GaussianNoise is not in accel", function() return accel.vision.transforms.GaussianNoise end)
says("accel.func.functionalize is not in accel", function() return accel.func.functionalize end)

-- scripts may ask for every other name
assert(accel.no_such_thing == nil and accel.nn.no_such_thing == nil and accel.accelerator.no_such_thing == nil)
assert(accel.nn[1] == nil and accel.optim[true] == nil)

-- as it is written, in any case, with what stands before it
for _, name in ipairs { "FSDP", "fsdp", "WandB", "save_accelerator_state", "Accelerator:lomo_backward",
  "accelerate.utils.MegatronEngine", "torch.nn.DataParallel" } do
  assert(absent.explain(name), name)
end
assert(absent.explain "torchrun":find("accel-run --num-processes", 1, true))
assert(absent.explain "no_such_thing" == nil and absent.explain "" == nil and absent.explain "Linear" == nil)
assert(absent.feature "torch_tp_plugin" and absent.feature "set_breakpoint" == false and absent.feature "x" == nil)

-- what the texts name is there
local function find(path)
  local value = accel
  for key in path:gmatch "[%w_]+" do value = value and value[key] end
  return value
end
for _, name in ipairs(absent.names()) do
  for path in absent.explain(name):gmatch "%f[%w]accel%.([%a][%w_.]*)" do
    path = path:gsub("%.$", "")
    local own = path == name or "accel." .. path == name or path:match "[^.]+$" == name
    assert(own or find(path) ~= nil, ("%s: there is no accel.%s"):format(name, path))
  end
  for method in absent.explain(name):gmatch "accelerator:([%w_]+)" do
    assert(accel.Accelerator[method], ("%s: no method %s"):format(name, method))
  end
end

-- methods of tensors and modules that PyTorch has: said where the error ends a script
for code, part in accel.pairs {
  ["accel.ones(2):cuda()"] = "a tensor has no field or method 'cuda'; tensors and models go to a device by x:to \"cuda:0\"",
  ["accel.ones(2):numpy()"] = "a tensor has no field or method 'numpy'; t:tolist() makes tables",
  ["accel.ones(2):resize_(1)"] = "no field or method 'resize_'; make a new tensor",
  ["accel.lstm_cell()"] = "accel.lstm_cell is not in accel; nn.RNN, nn.LSTM, nn.GRU",
  ["accel.nn.Linear(1, 1):cuda()"] = "Module:cuda is not in accel; tensors and models go to a device by x:to",
  ["accel.nn.Linear(1, 1):cpu()"] = "model:to \"cpu\" moves it",
} do
  local _, err = xpcall(assert(load("local accel = require 'accel' " .. code)), accel.traceback)
  assert(tostring(err):find(part, 1, true), ("%s: %s"):format(code, err))
end

-- the Accelerator says the same of its methods and attributes
local a = accel.Accelerator()
says("Accelerator:set_breakpoint is not in accel; the method is accelerator:set_trigger()", function()
  a:set_breakpoint()
end)
says("the method is accelerator:check_trigger()", function() a:check_breakpoint() end)
says("Accelerator:lomo_backward is not in accel yet (fused backward", function() a:lomo_backward() end)
assert(a.mine == nil and a.scaler == nil and a.my_own_attribute == nil)
