-- Options of the layers of accel.nn: each one changes results or gradients of training or evaluation, the parameters, or what is written
-- into the input; or it warns, or raises (support/option_sweep.lua).
--   accel-run tests/options/nn_layers_test.lua [NAME]
-- tier: sampled
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local class = require "accel.util.class"
local sweep = require "option_sweep"
local nn = accel.nn

local function is_layer(entry)
  local object = accel.nn
  for key in entry.name:gsub("^accel%.nn%.", ""):gsub(":.*", ""):gmatch "[^.]+" do object = object[key] end
  return class.isclass(object) and object ~= nn.Module and class.isinstance(setmetatable({}, object), nn.Module)
    and not entry.name:find "parallel"
end
local s = sweep.folder("nn", is_layer)
s:sampled(4)

local function x(...)
  return ((accel.arange(accel.zeros(...):numel()):to "f32" * 0.7):sin() * 1.5):reshape(...)
end
local function layer(names, base, inputs, more)
  local recipe = { base = function() return accel.nn.deepcopy(base) end,
    inputs = type(inputs) == "function" and inputs or function() return { inputs } end }
  for key, value in pairs(more or {}) do recipe[key] = value end
  local list = {}
  for name in names:gmatch "%S+" do list[#list + 1] = "accel.nn." .. name end
  s:recipe(list, recipe)
end

-- ---- activations ----
local wide = x(4, 6) * 4
layer("CELU ELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU Mish ReLU ReLU6 SELU SiLU Softplus Softshrink", {}, wide,
  { values = { min_val = { -2 }, max_val = { 0.5 }, threshold = { 0.7 }, lambd = { 1.5 } }, with = { lambd = { lambd = 0.1 } } })
layer("Threshold", { threshold = 0.1, value = 5.0 }, wide)
layer("GELU", {}, wide, { values = { approximate = { "tanh" } } })
layer("GLU LogSoftmax Softmax Softmin", { dim = 2 }, x(4, 6), { values = { dim = { 1, -2 } } })
layer("PReLU", {}, x(2, 4, 3), { values = { num_parameters = { 4 }, init = { 0.7 } } })
layer("RReLU", {}, wide, { values = { lower = { 0.01 }, upper = { 0.9 }, inplace = { true } } })
layer("FeatureAlphaDropout", {}, x(8, 6, 3) + 3)
layer("AlphaDropout Dropout Dropout3d", {}, x(2, 6, 3, 2, 2) + 3)
layer("Dropout1d", {}, x(4, 6, 3) + 3)
layer("Dropout2d", {}, x(4, 6, 3, 2) + 3)

-- ---- pools, pads, shapes ----
layer("AdaptiveAvgPool1d AdaptiveMaxPool1d", { output_size = 2 }, x(2, 3, 8))
layer("AdaptiveAvgPool2d AdaptiveMaxPool2d", { output_size = 2 }, x(2, 3, 8, 6))
local pool = { values = { stride = { 1, 2 }, padding = { 1 }, ceil_mode = { true }, count_include_pad = { false },
  divisor_override = { 3 }, dilation = { 2 } },
  with = { count_include_pad = { padding = 1 }, ceil_mode = { stride = 2 } } }
layer("AvgPool1d MaxPool1d", { kernel_size = 3 }, x(2, 3, 8), pool)
layer("AvgPool2d MaxPool2d", { kernel_size = 3 }, x(2, 3, 8, 8), pool)
layer("AdaptiveAvgPool3d AdaptiveMaxPool3d", { output_size = 2 }, x(2, 2, 5, 6, 4))
layer("AvgPool3d MaxPool3d", { kernel_size = 3 }, x(2, 2, 8, 6, 6), pool)
local norm_pool = { values = { norm_type = { 1 }, stride = { 1 }, ceil_mode = { true } }, with = { ceil_mode = { stride = 2 } } }
layer("LPPool1d", { norm_type = 2, kernel_size = 3 }, x(2, 3, 8):abs(), norm_pool)
layer("LPPool2d", { norm_type = 2, kernel_size = 3 }, x(2, 3, 8, 8):abs(), norm_pool)
layer("LPPool3d", { norm_type = 2, kernel_size = 3 }, x(2, 2, 8, 6, 6):abs(), norm_pool)
local function unpooled(shape)
  return function(o)
    local k = o.kernel_size or 2
    return { accel.nn.functional["max_pool" .. #shape - 2 .. "d_with_indices"](x(table.unpack(shape)), k, k) }
  end, { base = function() return { kernel_size = 2 } end, values = { kernel_size = { 3 }, stride = { 3 }, padding = { 1 } },
    raises = { padding = "scatter" } }
end
layer("MaxUnpool1d", {}, unpooled { 1, 2, 12 })
layer("MaxUnpool2d", {}, unpooled { 1, 2, 12, 12 })
layer("MaxUnpool3d", {}, unpooled { 1, 1, 12, 12, 12 })
local function fractional(n)
  return { base = function() return { kernel_size = 2, output_size = 5 } end, run = function(call, given)
    if given.output_ratio then given.output_size = nil end
    return call()(x(1, 2, table.unpack({ 8, 8, 8 }, 1, n)))
  end, values = { kernel_size = { 3 }, output_size = { 4 }, output_ratio = { 0.5 }, _random_samples = { accel.full({ 1, 2, n }, 0.5) } } }
end
layer("FractionalMaxPool2d", {}, x(1), fractional(2))
layer("FractionalMaxPool3d", {}, x(1), fractional(3))
layer("LocalResponseNorm", { size = 2 }, x(2, 5, 3), { values = { size = { 4 }, alpha = { 0.5 }, beta = { 0.3 }, k = { 3.0 } } })
layer("ConstantPad3d", { padding = 1, value = 0.2 }, x(1, 2, 3, 4, 3))
layer("CircularPad3d ReflectionPad3d ReplicationPad3d ZeroPad3d", { padding = 1 }, x(1, 2, 3, 4, 3))
layer("ConstantPad1d", { padding = 1, value = 0.2 }, x(2, 3, 8))
layer("ConstantPad2d", { padding = 1, value = 0.2 }, x(2, 3, 8, 8))
layer("CircularPad1d ReflectionPad1d ReplicationPad1d ZeroPad1d", { padding = 1 }, x(2, 3, 8))
layer("CircularPad2d ReflectionPad2d ReplicationPad2d ZeroPad2d", { padding = 1 }, x(2, 3, 8, 8))
layer("ChannelShuffle", { groups = 2 }, x(2, 4, 3, 3))
layer("PixelShuffle", { upscale_factor = 2 }, x(1, 4, 2, 2))
layer("PixelUnshuffle", { downscale_factor = 2 }, x(1, 1, 4, 4))
layer("Flatten", {}, x(2, 3, 4), { values = { start_dim = { 1 }, end_dim = { 2 } } })
layer("Unflatten", { dim = 2, unflattened_size = { 2, 3 } }, x(2, 6))
layer("Fold", { output_size = { 4, 4 }, kernel_size = 2 }, function(o)
  local n = o.padding and 25 or o.stride and 4 or o.dilation and 4 or 9
  return { x(2, 8, n) }
end, { values = { dilation = { 2 }, padding = { 1 }, stride = { 2 } } })
layer("Unfold", { kernel_size = 2 }, x(2, 2, 5, 5), { values = { dilation = { 2 }, padding = { 1 }, stride = { 2 } } })
layer("Upsample", {}, x(2, 2, 4, 3), { base = function() return { size = { 6, 5 } } end, run = function(call, given)
  if given.scale_factor then given.size = nil end
  return call()(x(2, 2, 4, 3))
end, values = { size = { { 5, 5 } }, scale_factor = { 2 }, recompute_scale_factor = { true }, align_corners = { true },
  mode = { "bilinear", "bicubic", "area", "nearest-exact" } },
  with = { align_corners = { mode = "bilinear" },
    recompute_scale_factor = { size = sweep.none, scale_factor = 1.7, mode = "bilinear" } } })
layer("UpsamplingBilinear2d UpsamplingNearest2d", {}, x(1), { base = function() return { size = { 6, 5 } } end, run = function(call, given)
  if given.scale_factor then given.size = nil end
  return call()(x(2, 2, 4, 3))
end, values = { size = { { 5, 5 } }, scale_factor = { 3 } } })
layer("CosineSimilarity", {}, function() return { x(4, 6), x(6, 4):t():contiguous() } end, { values = { dim = { 1 }, eps = { 100 } } })
layer("PairwiseDistance", {}, function() return { x(4, 6), x(6, 4):t():contiguous() } end, { values = { p = { 1 }, eps = { 0.5 } } })

-- ---- linear, convolutions, embeddings, norms ----
layer("Linear", { in_features = 6, out_features = 3 }, x(4, 6))
layer("Bilinear", { in1_features = 6, in2_features = 4, out_features = 3 }, function() return { x(5, 6), x(5, 4) } end)
local conv = { values = { stride = { 2 }, padding = { 1 }, dilation = { 2 }, groups = { 2 }, padding_mode = { "reflect", "replicate", "circular" },
  output_padding = { 1 } }, with = { padding_mode = { padding = 1 }, output_padding = { stride = 2 } } }
local transposed = { values = setmetatable({ padding_mode = { "reflect" } }, { __index = conv.values }), with = conv.with,
  raises = { padding_mode = "must be one of zeros" } }
layer("Conv1d", { in_channels = 4, out_channels = 6, kernel_size = 3 }, x(2, 4, 8), conv)
layer("Conv2d", { in_channels = 4, out_channels = 6, kernel_size = 3 }, x(2, 4, 6, 7), conv)
layer("Conv3d", { in_channels = 4, out_channels = 6, kernel_size = 2 }, x(2, 4, 4, 3, 4), conv)
layer("ConvTranspose1d", { in_channels = 4, out_channels = 6, kernel_size = 3 }, x(2, 4, 8), transposed)
layer("ConvTranspose2d", { in_channels = 4, out_channels = 6, kernel_size = 3 }, x(2, 4, 6, 7), transposed)
layer("ConvTranspose3d", { in_channels = 4, out_channels = 6, kernel_size = 2 }, x(2, 4, 4, 3, 4), transposed)
local ids = accel.tensor { { 1, 2, 0 }, { 3, 1, 2 } }
local embedding = { values = { padding_idx = { 1 }, max_norm = { 0.5 }, norm_type = { 1 }, weight = { x(5, 4) }, mode = { "sum", "max" } },
  with = { norm_type = { max_norm = 0.5 } } }
layer("Embedding", { num_embeddings = 5, embedding_dim = 4 }, ids, embedding)
layer("EmbeddingBag", { num_embeddings = 5, embedding_dim = 4 }, function(o)
  if o.include_last_offset == nil then return { ids } end
  return { accel.tensor { 1, 2, 0, 3 }, accel.tensor { 0, 2, 3 } }
end, { values = { padding_idx = { 1 }, max_norm = { 0.5 }, norm_type = { 1 }, mode = { "sum", "max" } },
  with = { norm_type = { max_norm = 0.5 }, include_last_offset = { include_last_offset = false } } })
local quantised = { values = { dtype = { "bf16" }, compress_statistics = { false }, quant_type = { "nf4" }, blocksize = { 32, 128 } } }
layer("Embedding4bit Embedding8bit", { num_embeddings = 70, embedding_dim = 64 }, ids, quantised)
s:recipe({ "accel.nn.EmbeddingFP4", "accel.nn.EmbeddingNF4" }, {
  run = function(call, given)
    given.num_embeddings, given.embedding_dim = given.num_embeddings or 70, given.embedding_dim or 64
    return require "option_observer".layer(call(), ids)
  end,
  values = { dtype = { "bf16" }, compress_statistics = { false }, blocksize = { 32, 128 }, num_embeddings = { 71 }, embedding_dim = { 32 } },
})
layer("Linear4bit", { in_features = 64, out_features = 70 }, x(3, 64),
  { values = { compute_dtype = { "bf16" }, quant_type = { "nf4" }, blocksize = { 32, 128 } } })
layer("Linear8bitLt", { in_features = 64, out_features = 7 }, x(3, 64), { values = { threshold = { 1.0 } },
  raises = { has_fp16_weights = "nn.Linear" } })
local norm = { values = { eps = { 0.5 }, momentum = { 0.5 } }, with = {} }
layer("BatchNorm1d", { num_features = 4 }, x(5, 4), norm)
layer("BatchNorm2d", { num_features = 4 }, x(3, 4, 2, 2), norm)
layer("BatchNorm3d", { num_features = 4 }, x(3, 4, 2, 2, 2), norm)
layer("SyncBatchNorm", { num_features = 4 }, x(3, 4, 2, 2),
  { values = norm.values, elsewhere = { process_group = "tests/stdlib/nn/sync_batch_norm_test.lua" } })
local instance = { values = norm.values, with = { momentum = { track_running_stats = true },
  bias = { affine = true }, device = { affine = true }, dtype = { affine = true } } }
layer("InstanceNorm1d", { num_features = 4 }, x(3, 4, 3), instance)
layer("InstanceNorm2d", { num_features = 4 }, x(3, 4, 2, 2), instance)
layer("InstanceNorm3d", { num_features = 4 }, x(3, 4, 2, 2, 2), instance)
layer("GroupNorm", { num_groups = 2, num_channels = 4 }, x(3, 4, 5), norm)
layer("LayerNorm RMSNorm", { normalized_shape = 6 }, x(3, 6), norm)

-- ---- losses ----
local function loss(names, inputs, values, with)
  layer(names, {}, inputs, { values = values, with = with })
end
local reduction = { reduction = { "sum", "none" } }
local function also(more)
  for key, value in pairs(reduction) do more[key] = more[key] or value end
  return more
end
local p = function() return { x(4, 6):sigmoid(), x(6, 4):t():sigmoid():contiguous() } end
loss("BCELoss", p, also { weight = { accel.full({ 6 }, 0.3) } })
loss("BCEWithLogitsLoss", p, also { weight = { accel.full({ 6 }, 0.3) }, pos_weight = { accel.full({ 6 }, 0.3) } })
loss("L1Loss MSELoss HuberLoss SmoothL1Loss", function() return { x(4, 6), x(6, 4):t():contiguous() } end, also { beta = { 0.2 }, delta = { 0.2 } })
loss("KLDivLoss", function() return { x(4, 6):log_softmax(2), x(6, 4):t():softmax(2):contiguous() } end,
  { reduction = { "sum", "none", "batchmean" }, log_target = { true } })
loss("PoissonNLLLoss", function() return { x(4, 6):abs(), x(6, 4):t():abs():contiguous() * 3 } end,
  also { log_input = { false }, full = { true }, eps = { 0.5 } }, { eps = { log_input = false } })
loss("GaussianNLLLoss", function() return { x(4, 6), x(6, 4):t():contiguous(), x(4, 6):abs() } end, also { full = { true }, eps = { 0.9 } })
local labels = function() return { x(4, 6), accel.tensor { 1, 0, 3, 5 } } end
loss("CrossEntropyLoss NLLLoss", labels, also { weight = { accel.arange(6):to "f32" }, ignore_index = { 3 }, label_smoothing = { 0.2 } })
loss("CTCLoss", function() -- the second text is longer than its 2 steps, so that its loss is infinite
  return { x(4, 2, 5):log_softmax(3), accel.tensor { { 1, 2 }, { 3, 3 } }, accel.tensor { 4, 2 }, accel.tensor { 2, 2 } }
end, also { blank = { 4 }, zero_infinity = { true } }, { reduction = { zero_infinity = true } })
local signs = accel.tensor { 1.0, -1, 1, -1 }
loss("CosineEmbeddingLoss", function() return { x(4, 6), x(6, 4):t():contiguous(), signs } end, also { margin = { -0.5, 0.2 } })
loss("MarginRankingLoss", function() return { x(4), x(4) * -1, signs } end, also { margin = { 0.4 } })
loss("HingeEmbeddingLoss", function() return { x(4), signs } end, also { margin = { 0.4 } })
loss("TripletMarginLoss", function() return { x(4, 6), x(6, 4):t():contiguous(), x(4, 6) * -1 } end,
  also { margin = { 9.0 }, p = { 1 }, eps = { 0.5 }, swap = { true } })
loss("SoftMarginLoss", function() return { x(4), signs } end, reduction)
loss("MultiMarginLoss", labels, also { weight = { accel.arange(6):to "f32" }, p = { 2 }, margin = { 0.2 } })
loss("MultiLabelMarginLoss", function() return { x(2, 3), accel.tensor { { 1, 0, -1 }, { 2, -1, 0 } } } end, reduction)
loss("MultiLabelSoftMarginLoss", p, also { weight = { accel.full({ 6 }, 0.3) } })
loss("TripletMarginWithDistanceLoss", function() return { x(4, 6), x(6, 4):t():contiguous(), x(4, 6) * -1 } end, also {
  margin = { 9.0 }, swap = { true }, distance_function = { function(a, b) return (a - b):abs():sum(2) end },
})
layer("AdaptiveLogSoftmaxWithLoss", { in_features = 8, n_classes = 12, cutoffs = { 3, 6 }, div_value = 2.0 },
  function() return { x(5, 8), accel.tensor { 0, 4, 11, 7, 2 } } end,
  { values = { in_features = { 9 }, n_classes = { 13 }, cutoffs = { { 4 } }, div_value = { 1.5 }, head_bias = { true } }, inputs = function(o)
    return { x(5, o.in_features or 8), accel.tensor { 0, 4, 11, 7, 2 } }
  end })
layer("LinearCrossEntropyLoss", { in_features = 6, num_classes = 7 }, labels,
  { elsewhere = { keep = "tests/host/ops/loss/linear_cross_entropy_test.lua" },
    values = also { weight = { accel.arange(7):to "f32" }, bias = { true }, ignore_index = { 3 }, label_smoothing = { 0.2 } } })

-- ---- recurrent, attention, transformers ----
local rnn = { values = { num_layers = { 2 }, nonlinearity = { "relu" }, dropout = { 0.5 }, proj_size = { 2 } },
  with = { dropout = { num_layers = 2 } } }
layer("GRU LSTM RNN", { input_size = 4, hidden_size = 3 }, x(5, 2, 4), rnn)
layer("GRUCell LSTMCell RNNCell", { input_size = 4, hidden_size = 3 }, x(5, 4), rnn)


local function mask(...) return accel.tensor { ... } end
local one_apart = accel.eye(5, 5):to "bool" -- each place but itself
local late = { { false, false, false, false, true }, { false, false, false, true, true } }
local attention = { values = { dropout = { 0.5 }, kdim = { 6 }, vdim = { 6 } } }
layer("MultiheadAttention", { embed_dim = 4, num_heads = 2 }, function(o)
  return { x(5, 2, 4), x(5, 2, o.kdim or 4) * 0.7, x(5, 2, o.vdim or 4) * 0.3 }
end, attention)
s:recipe("accel.nn.MultiheadAttention:forward", {
  base = function() return { query = x(5, 2, 4), key = x(5, 2, 4) * 0.7, value = x(5, 2, 4) * 0.3 } end,
  run = function(call) return call(nn.MultiheadAttention(4, 2)) end,
  values = {
    key = { x(5, 2, 4) }, value = { x(5, 2, 4) }, attn_mask = { one_apart }, key_padding_mask = { mask(table.unpack(late)) },
    need_weights = { false }, average_attn_weights = { false }, is_causal = { true },
  },
})

local small = { d_model = 4, nhead = 2, dim_feedforward = 6, dropout = 0.0 }
local function of_layers(more)
  local all = {}
  for _, t in ipairs { small, more or {} } do
    for key, value in pairs(t) do all[key] = value end
  end
  return all
end
local transformer = {
  dropout = { 0.5 }, activation = { "gelu" }, norm_first = { true }, layer_norm_eps = { 0.5 }, batch_first = { true }, bias = { false },
  dtype = { "f64" }, device = { "meta" }, nhead = { 1 }, dim_feedforward = { 5 },
}
local observer = require "option_observer"
local function encoder_layer(more) return nn.TransformerEncoderLayer(of_layers(more)) end
local function decoder_layer(more) return nn.TransformerDecoderLayer(of_layers(more)) end
s:recipe({ "accel.nn.TransformerEncoderLayer", "accel.nn.TransformerDecoderLayer" }, {
  run = function(call, given, entry)
    for name, value in pairs(small) do
      if given[name] == nil then given[name] = value end
    end
    local d = given.d_model
    return observer.layer(call(), x(5, 2, d), entry.name:find "Decoder" and x(5, 2, d) * 0.5 or nil)
  end,
  values = setmetatable({ d_model = { 6 } }, { __index = transformer }),
})
layer("Transformer", of_layers { num_encoder_layers = 1, num_decoder_layers = 1 }, function() return { x(5, 2, 4), x(5, 2, 4) * 0.5 } end, {
  values = setmetatable({
    num_encoder_layers = { 2 }, num_decoder_layers = { 2 },
    custom_encoder = { nn.Identity() }, custom_decoder = { nn.Identity() },
  }, { __index = transformer }),
})
s:recipe({ "accel.nn.TransformerEncoder", "accel.nn.TransformerDecoder" }, {
  base = function() return { num_layers = 2 } end,
  run = function(call, given, entry)
    local decodes = entry.name:find "Decoder"
    local name = decodes and "decoder_layer" or "encoder_layer"
    given[name] = given[name] or (decodes and decoder_layer or encoder_layer)()
    return observer.layer(call(), x(5, 2, 4), decodes and x(5, 2, 4) * 0.5 or nil)
  end,
  values = { num_layers = { 1 }, norm = { nn.LayerNorm(4) }, encoder_layer = { encoder_layer { norm_first = true } },
    decoder_layer = { decoder_layer { norm_first = true } } },
})
local masks = {}
for _, of in ipairs { "src_", "tgt_", "memory_", "" } do
  masks[of .. "mask"], masks[of .. "key_padding_mask"], masks[of .. "is_causal"] = { one_apart }, { mask(table.unpack(late)) }, { true }
end
local function built(name)
  if name:find "DecoderLayer" then return decoder_layer() end
  if name:find "EncoderLayer" then return encoder_layer() end
  if name:find "Decoder" then return nn.TransformerDecoder(decoder_layer(), 1) end
  if name:find "Encoder" then return nn.TransformerEncoder(encoder_layer(), 1) end
  return nn.Transformer(of_layers { num_encoder_layers = 1, num_decoder_layers = 1 })
end
local function forward(names, inputs)
  local list = {}
  for name in names:gmatch "%S+" do list[#list + 1] = "accel.nn." .. name .. ":forward" end
  s:recipe(list, { base = function() return inputs end, run = function(call, _, entry) return call(built(entry.name)) end, values = masks })
end
forward("TransformerEncoder TransformerEncoderLayer", { src = x(5, 2, 4) })
forward("TransformerDecoder TransformerDecoderLayer", { tgt = x(5, 2, 4), memory = x(5, 2, 4) * 0.5 })
forward("Transformer", { src = x(5, 2, 4), tgt = x(5, 2, 4) * 0.5 })
s:recipe("accel.nn.Transformer:generate_square_subsequent_mask", {
  base = function() return { n = 3 } end, values = { requires_grad = { true } },
})

-- ---- containers and what else takes options ----
s:recipe("accel.nn.Embedding:from_pretrained", {
  base = function() return { weight = x(5, 4) } end,
  run = function(call)
    local layer_ = call()
    return observer.layer(layer_, ids)
  end,
  values = { freeze = { false }, padding_idx = { 1 }, max_norm = { 0.5 }, norm_type = { 1 } },
  with = { norm_type = { max_norm = 0.5 }, padding_idx = { freeze = false } },
})
s:recipe({ "accel.nn.ModuleList:pop", "accel.nn.Sequential:pop" }, {
  run = function(call, _, entry)
    local list = (entry.name:find "Sequential" and nn.Sequential or nn.ModuleList) { nn.Linear(2, 3), nn.ReLU(), nn.Linear(4, 1) }
    return call(list), list:state_dict()
  end,
  values = { i = { 1 } },
})
s:recipe("accel.nn.SyncBatchNorm:convert_sync_batchnorm", {
  elsewhere = { process_group = "tests/stdlib/nn/sync_batch_norm_test.lua" }, base = function() return { module = nn.BatchNorm1d(2) } end,
})
s:leave({ "accel.nn.GRUCell:states", "accel.nn.LSTMCell:states", "accel.nn.RNNCell:states" }, "of the library")
s:leave({ "accel.nn.ModuleDict", "accel.nn.ModuleList", "accel.nn.ParameterDict", "accel.nn.ParameterList", "accel.nn.Sequential" },
  "containers, whose table holds members")

s:finish()
