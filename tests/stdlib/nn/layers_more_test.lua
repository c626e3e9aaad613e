--- Layers: arguments, messages, printing, names in states, modes, dtypes, devices without bytes.
local accel = require "accel"
local nn = accel.nn

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local function names(map)
  local out = {}
  for name in pairs(map) do out[#out + 1] = name end
  return table.concat(out, " ")
end

local function max_difference(a, b) return (a:to "f64" - b:to "f64"):abs():max():item() end

do -- positional arguments in PyTorch's order, then options; mistakes are told at the script's line
  local m = nn.Conv2d(4, 8, { 3, 5 }, 2, { 1, 2 }, 1, 2, false, "circular")
  assert(m.kernel_size[2] == 5 and m.stride[2] == 2 and m.groups == 2 and m.bias == nil)
  assert(m.padding_mode == "circular" and m.padding[2] == 2)
  assert(nn.Linear(2, 3, false).bias == nil and nn.LayerNorm(3, 1e-3).eps == 1e-3)
  assert(nn.Conv2d { in_channels = 1, out_channels = 2, kernel_size = 3 }.out_channels == 2)
  assert(nn.MaxPool2d(2, { ceil_mode = true }).ceil_mode and nn.MaxPool2d({ 2, 3 }).stride[2] == 3)
  local here = "^[^\n]*layers_more_test.lua:%d+: "
  local function refuses(pattern, class, ...)
    local args = table.pack(...)
    fails(here .. pattern, function() class(table.unpack(args, 1, args.n)) end)
  end
  refuses("Conv2d: unknown option 'pading'; did you mean 'padding'", nn.Conv2d, 1, 2, 3, { pading = 1 })
  refuses("Conv2d: 'stride' is given by position and as an option", nn.Conv2d, 1, 2, 3, 1, { stride = 1 })
  refuses("Conv2d: kernel_size must be an integer of at least 1, or a list of 2, got nil", nn.Conv2d, 1, 2)
  refuses("Conv2d: kernel_size must be a number or a list of 2, got a list of 3", nn.Conv2d, 1, 2, { 1, 2, 3 })
  refuses("Conv2d: stride must be an integer of at least 1, or a list of 2, got 0", nn.Conv2d, 1, 2, 3, 0)
  refuses("Conv2d: in_channels %(3%) must be a multiple of groups %(2%)", nn.Conv2d, 3, 2, 3, { groups = 2 })
  refuses("Conv2d: padding must be one of same, valid, got 'sane'", nn.Conv2d, 1, 2, 3, { padding = "sane" })
  refuses("Conv2d: padding 'same' needs stride 1, got %(2, 2%)", nn.Conv2d, 1, 2, 3, 2, "same")
  refuses("Conv2d: padding_mode must be one of zeros, reflect, replicate, circular, got 'zero'", nn.Conv2d, 1, 2, 3,
    { padding_mode = "zero" })
  refuses("Conv2d: option 'bias' must be a boolean, got number", nn.Conv2d, 1, 2, 3, { bias = 1 })
  refuses("ConvTranspose2d: padding_mode must be one of zeros", nn.ConvTranspose2d, 1, 2, 3,
    { padding_mode = "reflect" })
  refuses("ReLU: takes at most 1 arguments, then options; argument 2 is 3", nn.ReLU, true, 3)
  refuses("MaxPool2d: padding 2 may be at most half of kernel_size 3", nn.MaxPool2d, 3, { padding = 2 })
  refuses("AdaptiveAvgPool2d: output_size must be", nn.AdaptiveAvgPool2d)
  refuses("GroupNorm: num_channels %(5%) must be a multiple of num_groups %(2%)", nn.GroupNorm, 2, 5)
  refuses("BatchNorm2d: momentum must lie in 0 .. 1, got 2", nn.BatchNorm2d, 3, { momentum = 2 })
  refuses("Upsample: give either size or scale_factor", nn.Upsample)
  refuses("Upsample: mode must be one of", nn.Upsample, { size = 2, mode = "cubic" })
  refuses("ZeroPad2d: padding must be a number or a list of 4, got a list of 2", nn.ZeroPad2d, { 1, 2 })
  refuses("ConstantPad1d: value must be a number, got nil", nn.ConstantPad1d, 1)
  refuses("Dropout: p must lie in 0 .. 1, got 1.5", nn.Dropout, 1.5)
  refuses("MultiheadAttention: embed_dim %(6%) must be a multiple of num_heads %(4%)", nn.MultiheadAttention, 6, 4)
  refuses("TransformerEncoderLayer: activation must be 'relu', 'gelu', a function or a module, got 'gulu'",
    nn.TransformerEncoderLayer, 4, 2, { activation = "gulu" })
  refuses("TransformerEncoder: encoder_layer: expected a module, got nil", nn.TransformerEncoder, nil, 2)
  refuses("LSTM: proj_size must be an integer from 0 to hidden_size %- 1, got 5", nn.LSTM, 2, 5, { proj_size = 5 })
  refuses("RNN: nonlinearity must be one of tanh, relu, got 'gelu'", nn.RNN, 2, 5, { nonlinearity = "gelu" })
  fails("BatchNorm2d: expected %(N, C, H, W%), got shape %(2, 3%)", nn.BatchNorm2d(3), accel.ones(2, 3))
  fails("InstanceNorm2d: expected %(N, C, H, W%) or %(C, H, W%) with C = 3", nn.InstanceNorm2d(3), accel.ones(2, 3))
  fails("Unflatten: dimension 2 of shape %(2, 7%) cannot be cut into %(3, %-1%)", nn.Unflatten(2, { 3, -1 }),
    accel.ones(2, 7))
  fails("output_size %(9, 9%) is out of reach: dimension 1 can be 5 .. 6", nn.ConvTranspose2d(1, 1, 3, 2, 1),
    accel.ones(1, 1, 3, 3), { 9, 9 })
end

do -- printed as PyTorch prints them
  for text, m in pairs {
    ["Conv2d(1, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))"] = nn.Conv2d(1, 8, 3, { padding = 1 }),
    ["Conv1d(2, 4, kernel_size=(3,), stride=(2,), padding=(1,), dilation=(2,), groups=2, bias=false, "
      .. "padding_mode=reflect)"] = nn.Conv1d(2, 4, 3, 2, 1, 2, 2, false, "reflect"),
    ["ConvTranspose2d(2, 3, kernel_size=(2, 3), stride=(2, 2), output_padding=(1, 1))"] =
      nn.ConvTranspose2d(2, 3, { 2, 3 }, 2, 0, 1),
    ["Conv2d(1, 1, kernel_size=(3, 3), stride=(1, 1), padding=same)"] = nn.Conv2d(1, 1, 3, { padding = "same" }),
    ["BatchNorm1d(3, eps=1e-05, momentum=None, affine=true, bias=true, track_running_stats=true)"] =
      nn.BatchNorm1d(3, { momentum = false }),
    ["GroupNorm(2, 4, eps=1e-05, affine=true, bias=true)"] = nn.GroupNorm(2, 4),
    ["MaxPool2d(kernel_size=(2, 3), stride=1, padding=0, dilation=1, ceil_mode=false)"] = nn.MaxPool2d({ 2, 3 }, 1),
    ["AdaptiveAvgPool2d(output_size=(2, None))"] = nn.AdaptiveAvgPool2d { 2, false },
    ["Embedding(4, 2, padding_idx=1, max_norm=2)"] = nn.Embedding(4, 2, { padding_idx = 1, max_norm = 2 }),
    ["LeakyReLU(negative_slope=0.2)"] = nn.LeakyReLU(0.2), ["ReLU(inplace=true)"] = nn.ReLU { inplace = true },
    ["Upsample(size=(3, 4), mode='bilinear')"] = nn.Upsample { size = { 3, 4 }, mode = "bilinear" },
    ["ConstantPad1d(padding=(1, 1), value=2)"] = nn.ConstantPad1d(1, 2), ["GELU(approximate='none')"] = nn.GELU(),
    ["LSTM(3, 2, num_layers=2, bidirectional=true)"] = nn.LSTM(3, 2, 2, { bidirectional = true }),
    ["Unflatten(dim=2, unflattened_size=(2, 3))"] = nn.Unflatten(2, { 2, 3 }),
  } do
    assert(tostring(m) == text, tostring(m))
  end
end

do -- names in PyTorch's order
  assert(names(nn.TransformerEncoderLayer(4, 2):state_dict()) == "self_attn.in_proj_weight self_attn.in_proj_bias "
    .. "self_attn.out_proj.weight self_attn.out_proj.bias linear1.weight linear1.bias linear2.weight linear2.bias "
    .. "norm1.weight norm1.bias norm2.weight norm2.bias")
  assert(names(nn.TransformerEncoderLayer(4, 2):named_children())
    == "self_attn linear1 dropout linear2 norm1 norm2 dropout1 dropout2")
  assert(names(nn.BatchNorm2d(2):state_dict()) == "weight bias running_mean running_var num_batches_tracked")
  assert(names(nn.LSTM(2, 3, { bidirectional = true }):state_dict()) == "weight_ih_l0 weight_hh_l0 bias_ih_l0 "
    .. "bias_hh_l0 weight_ih_l0_reverse weight_hh_l0_reverse bias_ih_l0_reverse bias_hh_l0_reverse")
  assert(names(nn.MultiheadAttention(4, 2, { kdim = 3, add_bias_kv = true }):state_dict()) == "q_proj_weight "
    .. "k_proj_weight v_proj_weight in_proj_bias bias_k bias_v out_proj.weight out_proj.bias")
end

do -- training and eval of batch norm: the batch's statistics, then the tracked ones
  local m, x = nn.BatchNorm2d(2, { momentum = 0.5 }):to "f64", accel.randn(4, 2, 3, 3, { dtype = "f64" }) * 3 + 1
  local y = m(x)
  assert(y:mean { 1, 3, 4 }:abs():max():item() < 1e-12 and m.num_batches_tracked:item() == 1)
  assert(max_difference(m.running_mean, x:mean { 1, 3, 4 } * 0.5) < 1e-12)
  m:eval()
  local before = m.running_mean:clone()
  local z = m(x)
  assert(max_difference(m.running_mean, before) == 0 and m.num_batches_tracked:item() == 1)
  local mean, var = m.running_mean:view(1, 2, 1, 1), m.running_var:view(1, 2, 1, 1)
  assert(max_difference(z, (x - mean) / (var + 1e-5):sqrt()) < 1e-12)
  m:reset_running_stats()
  assert(m.running_mean:sum():item() == 0 and m.running_var:sum():item() == 2 and m.num_batches_tracked:item() == 0)
  local both = nn.BatchNorm1d(2, { momentum = false }):to "f64" -- the mean over all batches
  local a, b = accel.randn(5, 2, { dtype = "f64" }), accel.randn(5, 2, { dtype = "f64" })
  both(a)
  both(b)
  assert(max_difference(both.running_mean, (a:mean(1) + b:mean(1)) / 2) < 1e-12)
  assert(nn.BatchNorm2d(2, { bias = false }).bias == nil)
  local count = both.num_batches_tracked:item()
  fails("training needs more than one value per channel", both, a:narrow(1, 1, 1))
  assert(both.num_batches_tracked:item() == count, "a call that fails counts nothing")
  local half = nn.BatchNorm2d(2):to "bf16"
  assert(half(accel.ones(2, 2, 2, 2, { dtype = "bf16" })).dtype == "bf16" and half.num_batches_tracked.dtype == "i64")
end

do -- attention: with and without weights it is one function; masks say what they need
  accel.manual_seed(1)
  local m = nn.MultiheadAttention(8, 2, { batch_first = true }):to "f64"
  local x = accel.randn(3, 5, 8, { dtype = "f64" })
  local pad = accel.tensor { { false, false, false, true, true }, { false, false, false, false, false },
    { false, true, false, false, true } }
  for _, o in ipairs { {}, { is_causal = true }, { key_padding_mask = pad },
    { key_padding_mask = pad, is_causal = true } } do
    local slow, weights = m(x, o)
    o.need_weights = false
    local fast, none = m(x, o)
    assert(max_difference(slow, fast) < 1e-12 and none == nil and weights.ndim == 3)
    assert((weights:sum(-1) - 1):abs():max():item() < 1e-12)
    if o.is_causal then assert(weights:triu(1):abs():sum():item() == 0) end
    if o.key_padding_mask then assert(weights:select(3, 5):narrow(1, 1, 1):abs():sum():item() == 0) end
  end
  local first = nn.MultiheadAttention(8, 2):to "f64"
  first:load_state_dict(m:state_dict())
  assert(max_difference(first(x:transpose(1, 2)):transpose(1, 2), m(x)) < 1e-12, "time first")
  local same = first(x:select(1, 1))
  assert(max_difference(same, m(x):select(1, 1)) < 1e-12, "without a batch")
  local _, all = m(x, x, x, { average_attn_weights = false })
  assert(all.ndim == 4 and all:size(2) == 2)
  fails("attn_mask must have shape %(5, 5%) or %(6, 5, 5%), got %(5, 4%)", m, x, { attn_mask = accel.ones(5, 4) })
  fails("key_padding_mask must have shape %(3, 5%), got %(5, 3%)", m, x, { key_padding_mask = pad:t() })
  fails("attn_mask must be bool or float, got i64", m, x, { attn_mask = accel.zeros(5, 5, { dtype = "i64" }) })
  fails("widths must be 8, 8 and 8; got query %(3, 5, 7%)", m, accel.ones(3, 5, 7))
  fails("must all have 3 dimensions, or 2 without a batch", m, x, accel.ones(5, 8), x)
  fails("unknown option 'mask'", m, x, { mask = pad })
  local dropped = nn.MultiheadAttention(8, 2, { dropout = 0.5, batch_first = true }):to "f64"
  local _, w = dropped(x)
  assert(w:eq(0):any():item())
  _, w = dropped:eval()(x)
  assert(not w:eq(0):any():item())
end

do -- attention: a batch that only one of the inputs has is a mistake, not repeated
  local m, first = nn.MultiheadAttention(4, 2), nn.MultiheadAttention(4, 2, { batch_first = true })
  local q, k = accel.ones(3, 2, 4), accel.ones(5, 1, 4)
  fails("query's batch; got query %(3, 2, 4%), key %(5, 1, 4%)", m, q, k, k)
  fails("query's batch", first, q, k, k)
  fails("the same number of positions", m, q, accel.ones(5, 2, 4), accel.ones(6, 2, 4))
  fails("the same number of positions", m, accel.ones(3, 4), accel.ones(5, 4), accel.ones(6, 4))
  assert(m(accel.ones(3, 4), accel.ones(5, 4), accel.ones(5, 4)).shape[1] == 3)
end

do -- encoder layers are copies: equal at first, apart later
  local encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, { dropout = 0, batch_first = true }), 2)
  local a, b = encoder.layers[1], encoder.layers[2]
  assert(max_difference(a.linear1.weight, b.linear1.weight) == 0 and a.linear1.weight ~= b.linear1.weight)
  assert(#encoder:parameters() == 24)
  encoder(accel.randn(2, 3, 4), { is_causal = true }):sum():backward()
  for name, p in encoder:named_parameters() do assert(p.grad, name) end
  local squared = nn.TransformerEncoderLayer(4, 2, { activation = function(x) return x:relu():square() end })
  assert(squared(accel.randn(3, 2, 4)):size(3) == 4)
  local mask = nn.Transformer.generate_square_subsequent_mask(3):tolist()
  assert(mask[1][2] == -math.huge and mask[2][1] == 0 and mask[3][3] == 0)
end

do -- recurrence over more steps than one op can cut, against the cell
  accel.manual_seed(4)
  local layer, cell = nn.LSTM(3, 4):to "f64", nn.LSTMCell(3, 4):to "f64"
  local state = {}
  for _, name in ipairs { "weight_ih", "weight_hh", "bias_ih", "bias_hh" } do state[name] = layer[name .. "_l0"] end
  cell:load_state_dict(state)
  local x = accel.randn(150, 2, 3, { dtype = "f64", requires_grad = true })
  local y, h, c = layer(x)
  local hs, cs
  for t = 1, 150 do hs, cs = cell(x[t], hs, cs) end
  assert(max_difference(y[150], hs) < 1e-12 and max_difference(h[1], hs) < 1e-12 and max_difference(c[1], cs) < 1e-12)
  y:sum():backward()
  assert(x.grad:abs():sum(3):gt(0):all():item())
  local deep = nn.GRU(3, 4, 3, { dropout = 0.5 })
  local a, b = deep(x:to "f32"), deep(x:to "f32")
  assert(max_difference(a, b) > 0 and max_difference(deep:eval()(x:to "f32"), (deep(x:to "f32"))) == 0)
  fails("GRU: expected %(L, N, 3%) or without a batch %(L, 3%), got %(4, 2, 5%)", deep, accel.ones(4, 2, 5))
  fails("the initial state must have shape %(3, 2, 4%), got %(1, 2, 4%)", deep, accel.ones(5, 2, 3),
    accel.ones(1, 2, 4))
  fails("LSTMCell: the state must have shape %(2, 4%)", nn.LSTMCell(3, 4), accel.ones(2, 3), accel.ones(4))
end

do -- every layer in f32, bf16 and f16, and on a device without bytes: dtype and shape stay
  local images, rows, seq = { 2, 4, 6, 6 }, { 3, 8 }, { 5, 2, 8 }
  local layers = {
    { nn.Conv2d, { 4, 6, 3 }, images }, { nn.ConvTranspose2d, { 4, 6, 3 }, images }, { nn.MaxPool2d, { 2 }, images },
    { nn.AvgPool2d, { 2 }, images }, { nn.AdaptiveAvgPool2d, { 2 }, images }, { nn.BatchNorm2d, { 4 }, images },
    { nn.GroupNorm, { 2, 4 }, images }, { nn.InstanceNorm2d, { 4 }, images }, { nn.Dropout2d, { 0.5 }, images },
    { nn.PixelShuffle, { 2 }, images }, { nn.Upsample, { { scale_factor = 2 } }, images },
    { nn.Linear, { 8, 3 }, rows },
    { nn.ReflectionPad2d, { 1 }, images }, { nn.LayerNorm, { 8 }, rows }, { nn.RMSNorm, { 8 }, rows },
    { nn.PReLU, { 8 }, rows }, { nn.GLU, {}, rows }, { nn.Hardshrink, {}, rows }, { nn.Softsign, {}, rows },
    { nn.LSTM, { 8, 4 }, seq }, { nn.GRU, { 8, 4 }, seq }, { nn.TransformerEncoderLayer, { 8, 2 }, seq },
    { nn.MultiheadAttention, { 8, 2 }, seq },
  }
  for _, entry in ipairs(layers) do
    local class, args, shape = table.unpack(entry)
    local m = class(table.unpack(args))
    local want = m(accel.randn(shape)).shape
    for _, dtype in ipairs { "bf16", "f16", "f64" } do
      local y = m:to(dtype)(accel.randn(shape):to(dtype):requires_grad_(true))
      assert(y.dtype == dtype, m.__name)
      y:to("f32"):sum():backward()
    end
    local y = m:to "f32":to "meta"(accel.empty(shape, { device = "meta" }))
    assert(y.device == "meta" and #y.shape == #want, m.__name)
    for i = 1, #want do assert(y.shape[i] == want[i], m.__name) end
  end
end

do -- inplace writes over the input
  local x = accel.tensor { -1.0, 2.0 }
  local y = nn.ReLU(true)(x)
  assert(y == x and x:tolist()[1] == 0)
  assert(nn.ReLU()(x) ~= x)
end
