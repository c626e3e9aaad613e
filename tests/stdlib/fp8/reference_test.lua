--- Delayed scaling against TransformerEngine's formula, layers with scales of the tensor at hand against torchao, and which layers take
--- part (tests/reference/fp8, made by make/fp8.py).
local accel = require "accel"
local A = accel.accelerator
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local stored, metadata = accel.load(ranks.tests .. "reference/fp8/fp8.safetensors"), ranks.json "reference/fp8/fp8.json"
local nn = accel.nn

-- ---- TransformerEngine: six tensors, amax given by hand, on one layer of the real class for input and weight ----
local MOST = { e4m3 = 448, e5m2 = 57344 }
local amax, cases = stored["te.amax"], 0
for name in metadata.cases:gmatch "%S+" do
  local format, algo, length, margin = name:match "^te%.(%w+)%.([%w_]+)%.(%d+)%.(%d+)$"
  length, margin = math.tointeger(length), math.tointeger(margin)
  local n = amax.shape[2]
  local scale, history = accel.ones(n), accel.zeros(length, n)
  for step = 1, amax.shape[1] do
    history[1]:copy_(accel.maximum(history[1], amax[step]))
    accel.fp8_update_scale_(scale, history, MOST[format], margin, algo == "most_recent")
    assert(accel.equal(scale, stored[name .. ".scale"][step]), ("%s: scales of step %d"):format(name, step))
    assert(accel.equal(history, stored[name .. ".history"][step]), ("%s: history of step %d"):format(name, step))
  end
  cases = cases + 1
end
assert(cases == 16)

-- the same through layers: their recorded amax is that of their tensors, their scales follow by the formula
for _, algo in ipairs { "most_recent", "max" } do
  local layer = nn.Sequential(nn.Linear(32, 48))
  local scaling = accel.fp8.convert_model(layer, A.TERecipeKwargs { amax_history_len = 3, margin = 1, amax_compute_algo = algo })
  local seen, optimizer = {}, accel.optim.SGD(layer:parameters(), { lr = 0.5 })
  for step = 1, 6 do
    local x = accel.randn(8, 32) * step
    x.requires_grad = true
    local weight = layer[1].weight:detach():abs():max():item()
    local y = accel.fp8.autocast(scaling, layer, x)
    local dy = accel.randn(8, 48) / step
    y:backward(dy)
    seen[step] = { x:detach():abs():max():item(), weight, dy:abs():max():item() }
    optimizer:step()
    optimizer:zero_grad()
    scaling:flush()
    for i, t in ipairs { { scaling.scale_fwd[1], 448 }, { scaling.scale_fwd[2], 448 }, { scaling.scale_bwd[1], 57344 } } do
      local most = seen[step][i]
      -- of three rows TransformerEngine writes zeros over one: two steps count beside the present one
      for back = 1, algo == "max" and 2 or 0 do most = math.max(most, seen[step - back] and seen[step - back][i] or 0) end
      local want = (accel.tensor { t[2] / 2 } / accel.tensor { most }):item()
      assert(t[1]:item() == want, ("%s, step %d, tensor %d: %.9g, not %.9g"):format(algo, step, i, t[1]:item(), want))
    end
  end
end

-- ---- blocks of MXFP8 ----
for _, format in ipairs { "e4m3", "e5m2" } do
  local got = require("accel.fp8.granular").mx(stored["mx.x"], format)
  assert(accel.equal(got, stored["mx." .. format]), ("mx %s: off by %g"):format(format, (got - stored["mx." .. format]):abs():max():item()))
end

-- ---- torchao ----
local function near(got, want, what)
  local off = (got:to "f64" - want:to "f64"):abs():max():item()
  assert(off <= 2e-6 * want:abs():max():item(), ("%s: off by %g of %g"):format(what, off, want:abs():max():item()))
end
local function layer_as_stored(kind, prefix, config)
  local function of(name) return stored[prefix .. name] end
  local layer = nn.Linear(48, 32, { bias = of "bias" ~= nil })
  local model = nn.Sequential(layer)
  accel.no_grad(function()
    layer.weight:copy_(of "weight")
    if layer.bias then layer.bias:copy_(of "bias") end
  end)
  local scaling = accel.fp8.convert_model(model, A.AORecipeKwargs {
    config = config, module_filter_func = function() return true end,
  })
  assert(scaling.converted == 1)
  local x = of("x"):clone()
  x.requires_grad = true
  local y = model(x)
  y:backward(of "dy")
  near(y:detach(), of "y", kind .. " y")
  near(x.grad, of "dx", kind .. " dx")
  near(layer.weight.grad, of "dweight", kind .. " dweight")
  if layer.bias then near(layer.bias.grad, of "dbias", kind .. " dbias") end
end
for _, kind in ipairs { "plain", "pow2" } do
  for _, with in ipairs { "none", "bias" } do
    layer_as_stored(kind, ("ao.%s.%s."):format(kind, with), { round_scales_to_power_of_2 = kind == "pow2" })
  end
end
for _, recipe in ipairs { "rowwise", "rowwise_with_gw_hp" } do
  layer_as_stored(recipe, ("ao.%s."):format(recipe), { recipe_name = recipe })
end

-- ---- which layers take part ----
local function model()
  return nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 48), nn.Linear(48, 17), nn.Linear(17, 64),
    nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, 16))
end
local function taking_part(recipe)
  local m, names = model(), {}
  accel.fp8.convert_model(m, recipe)
  for name, module in pairs(m:named_modules()) do
    if rawget(module, "forward") then names[#names + 1] = name end
  end
  return table.concat(names, " ")
end
assert(taking_part(A.AORecipeKwargs {}) == metadata["ao.layers"], taking_part(A.AORecipeKwargs {}))
assert(taking_part(A.TERecipeKwargs {}) == "0 1 4.0 5")
assert(taking_part(A.MSAMPRecipeKwargs {}) == "0 1 4.0 5")
