-- Options of accel.nn.functional: each one changes results or gradients, warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/nn_functional_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder("nn", function(entry) return entry.name:find "^accel%.nn%.functional" ~= nil end)

local function x(...)
  return ((accel.arange(accel.zeros(...):numel()):to "f32" * 0.7):sin() * 1.5):reshape(...)
end
local F = "accel.nn.functional."
local function recipe(names, base, values, more)
  local list = {}
  for name in names:gmatch "%S+" do list[#list + 1] = F .. name end
  local all = { values = values, base = function()
    local own = {}
    for key, value in pairs(base) do
      own[key] = accel.is_tensor(value) and value:is_floating_point() and value:detach():clone():requires_grad_(true) or value
    end
    return own
  end, run = function(call, given)
    local results = table.pack(call())
    local first = results[1]
    if accel.is_tensor(first) and first.requires_grad then (first * first):sum():backward() end
    local grads = {}
    for key, value in pairs(given) do grads[key] = accel.is_tensor(value) and value.grad or nil end
    return results, grads
  end }
  for key, value in pairs(more or {}) do all[key] = value end
  s:recipe(list, all)
end

recipe("alpha_dropout dropout dropout3d", { x = x(4, 3, 2, 2, 2) + 3 }, { p = { 0.2 }, training = { false } },
  { passes_on = true })
recipe("dropout1d", { x = x(4, 3, 5) + 3 }, { p = { 0.2 }, training = { false } }, { passes_on = true })
recipe("dropout2d", { x = x(4, 3, 5, 2) + 3 }, { p = { 0.2 }, training = { false } }, { passes_on = true })
recipe("bilinear", { x1 = x(2, 3), x2 = x(2, 4), weight = x(5, 3, 4) }, { bias = { x(5) } })
local ids = accel.tensor { { 1, 2, 0 }, { 3, 1, 2 } }
recipe("embedding", { ids = ids, weight = x(5, 4) }, { padding_idx = { 1 }, max_norm = { 0.5 }, norm_type = { 1 } },
  { with = { norm_type = { max_norm = 0.5 } }, run = function(call, given)
    given.weight = accel.nn.Parameter(given.weight:detach():clone())
    local y = call()
    local seen = given.weight:detach():clone()
    y:sum():backward()
    return y, seen, given.weight.grad
  end })
recipe("embedding_bag", { ids = accel.tensor { 1, 2, 0, 3 }, weight = x(5, 4), offsets = accel.tensor { 0, 2 } }, {
  offsets = { accel.tensor { 0, 1 } }, max_norm = { 0.5 }, norm_type = { 1 }, mode = { "sum", "max" }, padding_idx = { 1 },
  per_sample_weights = { x(4) }, include_last_offset = { true },
}, { with = { norm_type = { max_norm = 0.5 }, per_sample_weights = { mode = "sum" } } })
-- the second text is longer than its 2 steps, so that its loss is infinite
recipe("ctc_loss", { log_probs = x(4, 2, 5):log_softmax(3), targets = accel.tensor { { 1, 2 }, { 3, 3 } },
  input_lengths = accel.tensor { 4, 2 }, target_lengths = accel.tensor { 2, 2 } },
  { blank = { 4 }, reduction = { "sum", "none" }, zero_infinity = { true } }, { with = { reduction = { zero_infinity = true } } })
recipe("softmin", { x = x(4, 6), dim = 2 }, { dim = { 1 } })
recipe("channel_shuffle", { x = x(1, 4, 2, 2), groups = 2 })
recipe("pixel_shuffle", { x = x(1, 4, 2, 2), upscale_factor = 2 })
recipe("pixel_unshuffle", { x = x(1, 1, 4, 4), downscale_factor = 2 })
recipe("gumbel_softmax", { logits = x(4, 6) }, { tau = { 0.3 }, hard = { true }, dim = { 1 } })
recipe("pairwise_distance", { x1 = x(4, 6), x2 = x(4, 6) * 0.3 }, { p = { 1 }, eps = { 0.5 } })
recipe("feature_alpha_dropout", { x = x(8, 6, 3) + 3, training = true }, { p = { 0.2 }, training = { false } }, { passes_on = true })
recipe("rrelu", { x = x(4, 6) * 4 }, { lower = { 0.01 }, upper = { 0.9 }, training = { true }, inplace = { true } }, { run = function(call, given)
  given.x = given.x:detach()
  local y = call()
  return y, given.x
end })
recipe("affine_grid", { theta = x(2, 2, 3), size = { 2, 1, 3, 4 } }, { size = { { 2, 1, 4, 4 } } })
recipe("local_response_norm", { x = x(2, 5, 3), size = 2 }, { size = { 4 }, alpha = { 0.5 }, beta = { 0.3 }, k = { 3.0 } })
recipe("triplet_margin_with_distance_loss", { anchor = x(4, 6), positive = x(4, 6) * 0.3, negative = x(4, 6) * -1 }, {
  distance_function = { function(a, b) return (a - b):abs():sum(2) end }, margin = { 9.0 }, swap = { true }, reduction = { "sum", "none" },
}, { with = { swap = { margin = 9.0 }, reduction = { margin = 9.0 }, distance_function = { margin = 9.0 } } })
local upsampled = { run = function(call, given)
  if given.scale_factor then given.size = nil end
  return call()
end }
recipe("upsample_bilinear upsample_nearest", { x = x(1, 2, 4, 3), size = { 6, 5 } }, { size = { { 5, 5 } }, scale_factor = { 3 } }, upsampled)
for n, shape in ipairs { { 1, 2, 8 }, { 1, 2, 8, 8 }, { 1, 1, 8, 8, 8 } } do
  local d = n .. "d"
  local window = { kernel_size = { 3 }, stride = { 1 }, padding = { 1 }, dilation = { 2 }, ceil_mode = { true } }
  recipe("max_pool" .. d .. "_with_indices", { x = x(table.unpack(shape)), kernel_size = 2 }, window,
    { with = { ceil_mode = { kernel_size = 3, stride = 2 } } })
  recipe("adaptive_max_pool" .. d .. "_with_indices", { x = x(table.unpack(shape)), output_size = 2 }, { output_size = { 3 } })
  recipe("lp_pool" .. d, { x = x(table.unpack(shape)):abs(), norm_type = 2, kernel_size = 2 },
    { norm_type = { 1 }, kernel_size = { 3 }, stride = { 1 }, ceil_mode = { true } }, { with = { ceil_mode = { kernel_size = 3, stride = 2 } } })
  local values, indices = accel["max_pool" .. d](x(table.unpack(shape)), 2, { return_indices = true })
  local larger = {}
  for i = 1, n do larger[i] = 9 end
  recipe("max_unpool" .. d, { x = values, indices = indices, kernel_size = 2 },
    { kernel_size = { 3 }, stride = { 3 }, padding = { 1 }, output_size = { larger }, indices = { indices * 0 } }, { raises = { padding = "index" } })
  if n > 1 then
    local base = { x = x(table.unpack(shape)), kernel_size = 2, output_size = 5, _random_samples = accel.full({ 1, shape[2], n }, 0.2) }
    local more = { kernel_size = { 3 }, output_size = { 4 }, output_ratio = { 0.5 }, _random_samples = { accel.full({ 1, shape[2], n }, 0.5) } }
    local run = { run = function(call, given)
      if given.output_ratio then given.output_size = nil end
      return table.pack(call())
    end }
    recipe("fractional_max_pool" .. d, base, more, run)
    recipe("fractional_max_pool" .. d .. "_with_indices", base, more, run)
  end
end
s:leave({ F .. "conv1d", F .. "conv2d", F .. "conv3d", F .. "upsample" }, "their options are those of the ops: tests/options/ops_test.lua")

s:finish()
