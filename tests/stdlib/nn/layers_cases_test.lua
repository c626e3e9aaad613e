--- Layers against PyTorch: outputs, gradients by inputs and parameters, and buffers of the cases that
--- make_nn.py wrote into nn_cases.safetensors. States are loaded by PyTorch's names.
local accel = require "accel"
local nn = accel.nn
local utils = nn.utils

local here = debug.getinfo(1, "S").source:match "^@(.*)layers_cases_test%.lua$" or "./"
local data = assert(accel.load(here .. "nn_cases.safetensors"))
local BAR = 1e-10

-- ---- the layers, by case; a second function says how they are called ----
local makes, calls = {}, {}

local function case(name, make, call) makes[name], calls[name] = make, call end

case("bilinear", function() return nn.Bilinear(3, 2, 4) end)
case("embedding_padding", function() return nn.Embedding(5, 3, { padding_idx = 3 }) end)
case("embedding_max_norm", function() return nn.Embedding(5, 3, { max_norm = 1.0 }) end)
case("embedding_max_norm1", function() return nn.Embedding(5, 3, { max_norm = 1.5, norm_type = 1 }) end)
case("bag_mean", function() return nn.EmbeddingBag(6, 3) end)
case("bag_sum_offsets", function() return nn.EmbeddingBag(6, 3, { mode = "sum" }) end)
case("bag_mean_offsets", function() return nn.EmbeddingBag(6, 3, { padding_idx = 2 }) end)
case("bag_max_offsets", function() return nn.EmbeddingBag(6, 3, { mode = "max" }) end)
case("bag_max_padding", function() return nn.EmbeddingBag(6, 3, { mode = "max", padding_idx = 0 }) end)
case("bag_weights", function() return nn.EmbeddingBag(6, 3, { mode = "sum" }) end,
  function(m, x, w) return m(x, nil, w) end)
case("bag_last", function() return nn.EmbeddingBag(6, 3, { mode = "sum", include_last_offset = true }) end)

case("conv1d", function() return nn.Conv1d(2, 4, 3, { stride = 2, padding = 1, dilation = 2, groups = 2 }) end)
case("conv1d_same", function() return nn.Conv1d(2, 3, 4, { padding = "same", dilation = 2 }) end)
case("conv1d_circular", function() return nn.Conv1d(2, 3, 3, { padding = 2, padding_mode = "circular" }) end)
case("conv1d_reflect_same", function() return nn.Conv1d(1, 2, 4, { padding = "same", padding_mode = "reflect" }) end)
case("conv2d", function() return nn.Conv2d(2, 3, { 3, 2 }, { 2, 1 }, { 1, 0 }, { bias = false }) end)
case("conv2d_valid", function() return nn.Conv2d(1, 2, 2, { padding = "valid" }) end)
case("conv2d_same", function() return nn.Conv2d(2, 2, { 3, 5 }, { padding = "same", groups = 2 }) end)
case("conv2d_replicate", function() return nn.Conv2d(1, 2, 3, { padding = { 1, 2 }, padding_mode = "replicate" }) end)
case("conv2d_unbatched", function() return nn.Conv2d(2, 1, 2) end)
case("conv3d", function() return nn.Conv3d(1, 2, 2, { padding = 1 }) end)
case("conv_transpose1d", function() return nn.ConvTranspose1d(2, 4, 3, 2, 1, 1, { groups = 2, dilation = 2 }) end)
case("conv_transpose2d", function() return nn.ConvTranspose2d(2, 3, { 2, 3 }, { stride = 2, padding = { 0, 1 } }) end)
case("conv_transpose2d_size", function() return nn.ConvTranspose2d(1, 2, 3, { stride = 2, padding = 1 }) end,
  function(m, x) return m(x, { 6, 5 }) end)
case("conv_transpose3d", function() return nn.ConvTranspose3d(1, 2, 2, { stride = 2 }) end)

case("max_pool1d", function() return nn.MaxPool1d(3, 2, 1) end)
case("max_pool2d", function() return nn.MaxPool2d({ 2, 3 }, { stride = { 2, 1 }, padding = 1, ceil_mode = true }) end)
case("max_pool2d_dilated", function() return nn.MaxPool2d(2, 1, { dilation = 2 }) end)
case("avg_pool1d", function() return nn.AvgPool1d(3, 2, 1) end)
case("avg_pool2d", function() return nn.AvgPool2d(2, { ceil_mode = true, padding = 1, count_include_pad = false }) end)
case("avg_pool2d_divisor", function() return nn.AvgPool2d({ 2, 3 }, { divisor_override = 5 }) end)
case("adaptive_avg_pool1d", function() return nn.AdaptiveAvgPool1d(3) end)
case("adaptive_avg_pool2d", function() return nn.AdaptiveAvgPool2d { 2, false } end)
case("adaptive_max_pool1d", function() return nn.AdaptiveMaxPool1d(3) end)
case("adaptive_max_pool2d", function() return nn.AdaptiveMaxPool2d { 3, 2 } end)

case("batch_norm1d", function() return nn.BatchNorm1d(3) end)
case("batch_norm1d_3d", function() return nn.BatchNorm1d(3, 1e-2, 0.3) end)
case("batch_norm2d", function() return nn.BatchNorm2d(2) end)
case("batch_norm2d_eval", function() return nn.BatchNorm2d(2):eval() end)
case("batch_norm2d_cumulative", function() return nn.BatchNorm2d(2, { momentum = false }) end)
case("batch_norm2d_plain", function()
  return nn.BatchNorm2d(2, { affine = false, track_running_stats = false }):eval()
end)
case("batch_norm3d", function() return nn.BatchNorm3d(2) end)
case("group_norm", function() return nn.GroupNorm(2, 4) end)
case("group_norm_plain", function() return nn.GroupNorm(3, 3, { eps = 1e-3, affine = false }) end)
case("instance_norm1d", function() return nn.InstanceNorm1d(2, { affine = true }) end)
case("instance_norm1d_unbatched", function() return nn.InstanceNorm1d(2) end)
case("instance_norm2d_track", function()
  return nn.InstanceNorm2d(2, { affine = true, track_running_stats = true })
end)
case("instance_norm2d_track_eval", function() return nn.InstanceNorm2d(2, { track_running_stats = true }):eval() end)
case("instance_norm3d", function() return nn.InstanceNorm3d(1) end)
case("layer_norm", function() return nn.LayerNorm { 3, 4 } end)
case("rms_norm", function() return nn.RMSNorm(4, { eps = 1e-3 }) end)

for name, make in pairs {
  relu = nn.ReLU, relu6 = nn.ReLU6, gelu = nn.GELU, silu = nn.SiLU, tanh = nn.Tanh, sigmoid = nn.Sigmoid,
  logsigmoid = nn.LogSigmoid, selu = nn.SELU, hardsigmoid = nn.Hardsigmoid, hardswish = nn.Hardswish,
  softsign = nn.Softsign, tanhshrink = nn.Tanhshrink, mish = nn.Mish, glu = nn.GLU, prelu = nn.PReLU,
  softmax2d = nn.Softmax2d,
} do
  case(name, function() return make() end)
end
case("gelu_tanh", function() return nn.GELU "tanh" end)
case("softmax", function() return nn.Softmax(1) end)
case("log_softmax", function() return nn.LogSoftmax(-1) end)
case("softmin", function() return nn.Softmin(2) end)
case("leaky_relu", function() return nn.LeakyReLU(0.2) end)
case("elu", function() return nn.ELU(1.5) end)
case("celu", function() return nn.CELU(0.7) end)
case("hardtanh", function() return nn.Hardtanh(-0.5, 1.5) end)
case("hardshrink", function() return nn.Hardshrink(0.75) end)
case("softshrink", function() return nn.Softshrink(0.75) end)
case("softplus", function() return nn.Softplus(2, 3) end)
case("threshold", function() return nn.Threshold(0.25, -3) end)
case("glu_dim", function() return nn.GLU(2) end)
case("prelu_channels", function() return nn.PReLU(4) end)
case("prelu_images", function() return nn.PReLU(2) end)

case("zero_pad1d", function() return nn.ZeroPad1d { 1, 2 } end)
case("zero_pad2d", function() return nn.ZeroPad2d { 1, -1, 2, 0 } end)
case("constant_pad1d", function() return nn.ConstantPad1d(2, 1.5) end)
case("constant_pad2d", function() return nn.ConstantPad2d({ 0, 1, 1, 2 }, -0.5) end)
case("reflection_pad1d", function() return nn.ReflectionPad1d { 2, 1 } end)
case("reflection_pad2d", function() return nn.ReflectionPad2d { 1, 2, 1, 0 } end)
case("replication_pad1d", function() return nn.ReplicationPad1d { 2, 1 } end)
case("replication_pad2d", function() return nn.ReplicationPad2d { 1, 2, 1, 0 } end)
case("circular_pad1d", function() return nn.CircularPad1d { 2, 1 } end)
case("circular_pad2d", function() return nn.CircularPad2d { 1, 2, 1, 0 } end)
case("pixel_shuffle", function() return nn.PixelShuffle(2) end)
case("pixel_unshuffle", function() return nn.PixelUnshuffle(2) end)
case("channel_shuffle", function() return nn.ChannelShuffle(3) end)
case("unfold", function() return nn.Unfold({ 2, 3 }, { dilation = 1, padding = 1, stride = { 1, 2 } }) end)
case("fold", function() return nn.Fold({ 3, 4 }, { 2, 3 }, { padding = 1, stride = { 1, 2 } }) end)
case("flatten", function() return nn.Flatten(2, 3) end)
case("unflatten", function() return nn.Unflatten(2, { 2, -1 }) end)
case("upsample_nearest", function() return nn.Upsample { scale_factor = 2 } end)
case("upsample_linear", function() return nn.Upsample { scale_factor = 2.5, mode = "linear" } end)
case("upsample_bilinear", function()
  return nn.Upsample { size = { 5, 4 }, mode = "bilinear", align_corners = true }
end)
case("upsample_bicubic", function() return nn.Upsample { size = { 5, 4 }, mode = "bicubic" } end)
case("cosine_similarity", function() return nn.CosineSimilarity { dim = 2, eps = 1e-6 } end)
case("pairwise_distance", function() return nn.PairwiseDistance(3, { eps = 1e-3, keepdim = true }) end)

local E, H = 6, 2
case("mha", function() return nn.MultiheadAttention(E, H) end)
case("mha_self", function() return nn.MultiheadAttention(E, H, { bias = false, batch_first = true }) end)
case("mha_key_value", function() return nn.MultiheadAttention(E, H) end,
  function(m, q, k) return m(q, k, k, { average_attn_weights = false }) end)
case("mha_dims", function()
  return nn.MultiheadAttention(E, H, { kdim = 4, vdim = 3, add_bias_kv = true, add_zero_attn = true })
end)
local function masked(m, q, k, v, attn, pad) return m(q, k, v, { attn_mask = attn, key_padding_mask = pad }) end
local function masked_fast(m, q, k, v, attn, pad) return m(q, k, v, pad, false, attn) end
case("mha_masks", function() return nn.MultiheadAttention(E, H) end, masked)
case("mha_masks_flash", function() return nn.MultiheadAttention(E, H, { add_bias_kv = true }) end, masked_fast)
case("mha_float_mask", function() return nn.MultiheadAttention(E, H) end,
  function(m, q, k, v, attn, pad) return masked_fast(m, q, k, v, attn, pad:to "f64" * -2) end)
case("mha_causal", function() return nn.MultiheadAttention(E, H, { batch_first = true }) end,
  function(m, x) return m(x, x, x, { is_causal = true, need_weights = false }) end)
case("mha_causal_weights", function() return nn.MultiheadAttention(E, H, { batch_first = true }) end,
  function(m, x) return m(x, { is_causal = true }) end)
case("mha_unbatched", function() return nn.MultiheadAttention(E, H) end)

local small = { dim_feedforward = 5, dropout = 0 }
local first = { dim_feedforward = 5, dropout = 0, norm_first = true, batch_first = true }
local causal = nn.Transformer.generate_square_subsequent_mask(3, { dtype = "f64" })
case("encoder_layer", function() return nn.TransformerEncoderLayer(E, H, small) end,
  function(m, x, pad) return m(x, { src_key_padding_mask = pad }) end)
case("encoder_layer_first", function()
  return nn.TransformerEncoderLayer(E, H, {
    dim_feedforward = 5, dropout = 0, norm_first = true, batch_first = true, activation = "gelu", bias = false,
    layer_norm_eps = 1e-3,
  })
end, function(m, x) return m(x, { is_causal = true }) end)
case("encoder", function()
  return nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, small), 2, nn.LayerNorm(E))
end)
case("decoder_layer", function() return nn.TransformerDecoderLayer(E, H, small) end, function(m, x, memory, pad)
  return m(x, memory, { tgt_mask = causal, tgt_is_causal = true, memory_key_padding_mask = pad })
end)
case("decoder_layer_first", function() return nn.TransformerDecoderLayer(E, H, first) end)
case("transformer", function() return nn.Transformer(E, H, 1, 1, 5, { dropout = 0 }) end,
  function(m, x, y) return m(x, y, { tgt_mask = causal }) end)

case("weight_norm", function() return utils.weight_norm(nn.Linear(3, 2)) end)
case("weight_norm_all", function() return utils.weight_norm(nn.Conv1d(2, 3, 2), { dim = false }) end)
case("weight_norm_dim2", function() return utils.weight_norm(nn.Linear(3, 2), "weight", 2) end)
case("parametrized_weight_norm", function() return utils.parametrizations.weight_norm(nn.Linear(3, 2)) end)
case("spectral_norm", function() return utils.parametrizations.spectral_norm(nn.Linear(3, 4)) end)
case("spectral_norm_eval", function()
  return utils.parametrizations.spectral_norm(nn.Conv1d(2, 3, 2), { n_power_iterations = 2 }):eval()
end)

case("rnn", function() return nn.RNN(3, 2, 2) end)
case("rnn_relu", function() return nn.RNN(3, 2, { nonlinearity = "relu", bias = false, batch_first = true }) end)
case("lstm", function() return nn.LSTM(3, 2, 2, { bidirectional = true }) end)
case("lstm_state", function() return nn.LSTM(3, 2, { batch_first = true }) end,
  function(m, x, h, c) return m(x, { h, c }) end)
case("lstm_proj", function() return nn.LSTM(3, 4, 2, { proj_size = 2 }) end)
case("gru", function() return nn.GRU(3, 2, { num_layers = 2, bidirectional = true }) end)
case("gru_unbatched", function() return nn.GRU(3, 2) end)
case("rnn_cell", function() return nn.RNNCell(3, 2) end)
case("lstm_cell", function() return nn.LSTMCell(3, 2) end)
case("gru_cell", function() return nn.GRUCell(3, 2, { bias = false }) end)

-- ---- the run ----
local cases = {} -- name -> key -> tensor
for key, t in pairs(data) do
  local name, rest = key:match "^([^/]+)/(.*)$"
  cases[name] = cases[name] or {}
  cases[name][rest] = t
end

-- PyTorch computes these gradients with constants of single precision.
local loose = { celu = 1e-7, hardsigmoid = 1e-7 }

local function close(label, got, want)
  assert(got, label .. ": there is none")
  want = want:to "f64"
  local a, b = got.shape, want.shape
  assert(#a == #b, label .. ": ranks differ")
  for i = 1, #a do assert(a[i] == b[i], ("%s: dimension %d is %d, not %d"):format(label, i, a[i], b[i])) end
  if want:numel() == 0 then return end
  local scale = math.max(want:abs():max():item(), 1)
  local err = (got:detach():to "f64" - want):abs():max():item()
  local bar = loose[label:match "^[^:]+"] or BAR
  assert(err <= bar * scale, ("%s: error %g"):format(label, err)) -- NaN fails too
end

--- The entries of a case below a prefix, by what follows it.
local function below(entries, prefix)
  local out = {}
  for key, t in pairs(entries) do
    if key:sub(1, #prefix) == prefix then out[key:sub(#prefix + 1)] = t end
  end
  return out
end

local function run(name, entries)
  local m = makes[name]()
  m:to "f64"
  local result = m:load_state_dict(below(entries, "state/"))
  assert(#result.missing_keys == 0 and #result.unexpected_keys == 0)
  local inputs, n = {}, 0
  while entries["in" .. n] do
    local t = entries["in" .. n]
    if t.dtype == "f32" then t = t:to "f64" end
    n = n + 1
    inputs[n] = t
    if entries["din" .. n - 1] then t:requires_grad_(true) end
  end
  local outs = table.pack((calls[name] or m)(table.unpack(calls[name] and { m, table.unpack(inputs) } or inputs)))
  local cots, flat = {}, {}
  for i = 0, math.huge do
    local want = entries["out" .. i]
    if not want then break end
    close(("%s: output %d"):format(name, i), outs[i + 1], want)
    flat[i + 1], cots[i + 1] = outs[i + 1], entries["cot" .. i]:to "f64"
  end
  assert(#flat == outs.n or outs[outs.n] == nil, name .. ": more outputs than PyTorch's")
  accel.backward(flat, cots)
  for i = 1, n do
    local want = entries["din" .. i - 1]
    if want and not (want:abs():max():item() == 0 and inputs[i].grad == nil) then
      close(("%s: gradient of input %d"):format(name, i), inputs[i].grad, want)
    end
  end
  local grads, after = below(entries, "grad/"), below(entries, "after/")
  for key, p in m:named_parameters() do
    if grads[key] then close(("%s: gradient of %s"):format(name, key), p.grad, grads[key])
    else assert(p.grad == nil, name .. ": " .. key .. " has a gradient") end
    grads[key] = nil
  end
  assert(next(grads) == nil, name .. ": a parameter is missing")
  for key, b in pairs(m:named_buffers()) do
    close(("%s: buffer %s"):format(name, key), b, after[key] or entries["state/" .. key])
  end
end

local failed = 0
for name, entries in pairs(cases) do
  if not makes[name] then
    print(("FAIL %s: no such layer here"):format(name))
    failed = failed + 1
  else
    local ok, message = xpcall(run, debug.traceback, name, entries)
    if not ok then
      print(("FAIL %s: %s"):format(name, message))
      failed = failed + 1
    end
  end
end
for name in pairs(makes) do assert(cases[name], name .. ": make_nn.py writes no such case") end
assert(failed == 0, ("%d cases failed"):format(failed))
