--- nn.functional: that the names are there, and what is more than one op.
local accel = require "accel"
local nn = accel.nn
local F = nn.functional

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local function close(got, want, bar)
  local function walk(a, b, at)
    if type(b) == "table" then
      assert(#a == #b, at .. ": lengths differ")
      for i = 1, #b do walk(a[i], b[i], at .. "." .. i) end
    else
      assert(math.abs(a - b) <= (bar or 1e-12), ("%s: %.17g, wanted %.17g"):format(at, a, b))
    end
  end
  walk(type(got) == "userdata" and got:tolist() or got, type(want) == "userdata" and want:tolist() or want, "value")
end

local function f64(list) return accel.tensor(list, { dtype = "f64" }) end

do -- every name that PyTorch's page lists and ported scripts use
  for name in ([[conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d unfold fold
    avg_pool1d avg_pool2d max_pool1d max_pool2d adaptive_max_pool1d adaptive_max_pool2d adaptive_avg_pool1d
    adaptive_avg_pool2d scaled_dot_product_attention threshold relu hardtanh hardswish relu6 elu selu celu leaky_relu
    prelu glu gelu logsigmoid hardshrink tanhshrink softsign softplus softmin softmax softshrink gumbel_softmax
    log_softmax tanh sigmoid hardsigmoid silu mish batch_norm group_norm instance_norm layer_norm rms_norm normalize
    linear bilinear dropout alpha_dropout dropout1d dropout2d dropout3d embedding embedding_bag one_hot
    pairwise_distance cosine_similarity cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss
    binary_cross_entropy binary_cross_entropy_with_logits kl_div cosine_embedding_loss margin_ranking_loss
    triplet_margin_loss poisson_nll_loss gaussian_nll_loss hinge_embedding_loss pixel_shuffle pixel_unshuffle channel_shuffle pad
    interpolate upsample rope swiglu alibi_slopes]]):gmatch "%S+" do
    assert(type(F[name]) == "function", name .. " is missing")
  end
end

do -- convolutions with padding in words, by position and by name
  local x, w, b = accel.randn(2, 3, 6, 7), accel.randn(4, 3, 3, 4), accel.randn(4)
  local want = accel.conv2d(accel.pad(x, { 1, 2, 1, 1 }), w, b)
  close(F.conv2d(x, w, b, 1, "same"), want, 1e-6)
  close(F.conv2d(x, w, b, { padding = "same" }), want, 1e-6)
  close(F.conv2d(x, w, { padding = "same", bias = b }), want, 1e-6)
  close(F.conv2d(x, w, b, { padding = "valid", stride = 2 }), accel.conv2d(x, w, b, 2), 1e-6)
  close(F.conv2d(x, w, b, { stride = 2, padding = 1 }), accel.conv2d(x, w, b, 2, 1), 1e-6)
  close(F.conv1d(x:select(3, 1), w:select(3, 1), nil, 1, "same", 2),
    accel.conv1d(accel.pad(x:select(3, 1), { 3, 3 }), w:select(3, 1), nil, 1, 0, 2), 1e-6)
  fails("conv2d: padding 'same' needs stride 1, got 2", F.conv2d, x, w, b, 2, "same")
  fails("padding must be a number, a list, 'same' or 'valid', got 'sane'", F.conv2d, x, w, b, 1, "sane")
end

do -- dropouts: what is kept is scaled, whole channels fall together, the mean stays
  accel.manual_seed(5)
  local x = accel.ones(40, 50, 3, 2)
  for p, n_values in pairs { [0.25] = 2, [0.5] = 2 } do
    local y = F.dropout2d(x, p)
    local per_channel = y:amax { 3, 4 }
    assert((y - per_channel:unsqueeze(3):unsqueeze(4)):abs():max():item() == 0, "a channel is one")
    local kept = per_channel:gt(0):to("f32"):mean():item()
    assert(math.abs(kept - (1 - p)) < 0.05 and math.abs(per_channel:max():item() - 1 / (1 - p)) < 1e-6)
    assert(n_values == 2 and math.abs(y:mean():item() - 1) < 0.1)
  end
  local y = F.dropout1d(accel.ones(2000, 4), 0.5) -- (C, L)
  assert((y - y:amax(2, true)):abs():max():item() == 0 and math.abs(y:mean():item() - 1) < 0.1)
  y = F.dropout3d(accel.ones(500, 2, 2, 2), 0.5) -- without a batch
  assert((y - y:amax({ 2, 3, 4 }, true)):abs():max():item() == 0 and math.abs(y:mean():item() - 1) < 0.2)
  y = F.dropout(accel.ones(10000), 0.2)
  assert(math.abs(y:gt(0):to("f32"):mean():item() - 0.8) < 0.02 and math.abs(y:max():item() - 1.25) < 1e-6)
  for _, name in ipairs { "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout" } do
    local rank = name == "dropout1d" and 3 or name == "dropout2d" and 4 or 5
    local shape = { 2, 2, 2, 2, 2 }
    while #shape > rank do table.remove(shape) end
    local t = accel.ones(shape)
    assert(F[name](t, 0.5, false) == t and F[name](t, 0) == t, name)
    assert(F[name](t, 1):abs():max():item() == 0, name)
    t:requires_grad_(true)
    F[name](t, 0.5):sum():backward()
    assert(t.grad, name)
  end
  local z = accel.randn(100, 100)
  z = F.alpha_dropout(z, 0.3)
  local mean = z:mean():item()
  assert(math.abs(mean) < 0.05 and math.abs((z - mean):square():mean():item() - 1) < 0.05)
  fails("dropout2d: expected %(N, C, H, W%), got shape %(3%)", F.dropout2d, accel.ones(3))
  accel.manual_seed(9)
  local a = nn.Dropout2d(0.5)(x)
  accel.manual_seed(9)
  close(F.dropout2d(x, 0.5), a, 0)
end

do -- gumbel_softmax: sums to one, hard is one-hot with soft gradients, frequencies follow the logits
  accel.manual_seed(2)
  local logits = accel.tensor { 0.5, 1.5, 0.0 }:expand(3000, 3):contiguous():requires_grad_(true)
  local soft = F.gumbel_softmax(logits, 0.7)
  close(soft:sum(2), accel.ones(3000), 1e-5)
  local hard = F.gumbel_softmax(logits, { tau = 0.7, hard = true })
  close(hard:amax(2), accel.ones(3000), 1e-6)
  close(hard:detach():mean(1), accel.softmax(accel.tensor { 0.5, 1.5, 0.0 }, 1):tolist(), 0.03)
  local weighted = hard * accel.arange(3):to "f32"
  weighted:sum():backward()
  assert(logits.grad:abs():sum():item() > 0)
end

do -- values of small functions
  local x = f64 { -2, -0.5, 0, 0.5, 2 }
  close(F.softsign(x), { -2 / 3, -1 / 3, 0, 1 / 3, 2 / 3 })
  close(F.tanhshrink(x):narrow(1, 5, 1), { 2 - 0.9640275800758169 })
  close(F.hardshrink(x, 0.5), { -2, 0, 0, 0, 2 })
  close(F.softshrink(x), { -1.5, 0, 0, 0, 1.5 })
  close(F.threshold(x, 0.5, 9), { 9, 9, 9, 9, 2 })
  close(F.prelu(x, f64 { 0.1 }), { -0.2, -0.05, 0, 0.5, 2 })
  close(F.glu(f64 { { 1, 2, 0, 0 } }), { { 0.5, 1 } })
  fails("glu: x of shape %(5%) has no halves", F.glu, x)
  fails("prelu: the weight has shape %(3%), and x %(2, 5%)", F.prelu, accel.ones(2, 5), accel.ones(3))
  fails("softshrink: lambd must be 0 or more, not %-1", F.softshrink, x, -1)
  close(F.pairwise_distance(f64 { { 1, 2 } }, f64 { { 4, 6 } }, { eps = 0, keepdim = true }), { { 5 } })
  fails("bilinear: x1 %(2, 2%) and x2 %(2, 4%) do not fit a weight of shape %(4, 2, 3%): they must be %(..., 2%) and",
    F.bilinear, accel.ones(2, 2), accel.ones(2, 4), accel.ones(4, 2, 3))
  fails("pixel_shuffle: 3 channels are not a multiple of 2 squared", F.pixel_shuffle, accel.ones(1, 3, 2, 2), 2)
  fails("pixel_unshuffle: 3 x 2 pixels are not a multiple of 2", F.pixel_unshuffle, accel.ones(1, 3, 3, 2), 2)
  fails("expected %(..., C, H, W%), got shape %(3%)", F.pixel_shuffle, accel.ones(3), 2)
  fails("channel_shuffle: expected %(N, C, ...%) with C a multiple of 3", F.channel_shuffle, accel.ones(1, 4, 2), 3)
end

do -- embedding: the rows that are used are shortened in place, the others not
  local w = accel.tensor { { 3.0, 4.0 }, { 0.3, 0.4 }, { 6.0, 8.0 } }
  close(F.embedding(accel.tensor { 0, 1, 0 }, w, { max_norm = 1 }), { { 0.6, 0.8 }, { 0.3, 0.4 }, { 0.6, 0.8 } }, 1e-6)
  close(w, { { 0.6, 0.8 }, { 0.3, 0.4 }, { 6, 8 } }, 1e-6)
  local m = nn.Embedding.from_pretrained(w, { padding_idx = 1 })
  assert(not m.weight.requires_grad and m.num_embeddings == 3 and m.padding_idx == 1 and #m:parameters() == 1)
  close(m(accel.tensor { { 2 } }), { { { 6, 8 } } })
  m = nn.Embedding.from_pretrained(w, { freeze = false })
  m(accel.tensor { 1, 1 }):sum():backward()
  close(m.weight.grad, { { 0, 0 }, { 2, 2 }, { 0, 0 } })
  fails("expected a tensor of rank 2, got shape %(3%)", nn.Embedding.from_pretrained, accel.ones(3))
  fails("weight must be a tensor of shape %(2, 2%), got %(3, 2%)", nn.Embedding, 2, 2, { weight = w })
  fails("embedding_bag: mode must be one of sum, mean, max, got 'min'", F.embedding_bag, accel.tensor { 1 }, w,
    accel.tensor { 0 }, { mode = "min" })
  fails("need offsets", F.embedding_bag, accel.tensor { 1 }, w)
  fails("per_sample_weights need mode 'sum'", F.embedding_bag, accel.tensor { { 1 } }, w,
    { per_sample_weights = accel.ones(1, 1) })
  fails("are bags already, without offsets", F.embedding_bag, accel.tensor { { 1 } }, w, accel.tensor { 0 })
end

do -- sequences of different lengths
  local pad = nn.utils.rnn.pad_sequence
  local s = { f64 { 1, 2, 3 }, f64 { 4 }, f64 { 5, 6 } }
  close(pad(s), { { 1, 4, 5 }, { 2, 0, 6 }, { 3, 0, 0 } })
  close(pad(s, true, -1), { { 1, 2, 3 }, { 4, -1, -1 }, { 5, 6, -1 } })
  close(pad(s, { batch_first = true, padding_side = "left" }), { { 1, 2, 3 }, { 0, 0, 4 }, { 0, 5, 6 } })
  assert(pad { accel.ones(2, 4, 3), accel.ones(1, 4, 3) }:size(2) == 2)
  local back = nn.utils.rnn.unpad_sequence(pad(s), accel.tensor { 3, 1, 2 })
  for i = 1, 3 do close(back[i], s[i]) end
  fails("sequence 2 of shape %(1, 2%) differs from the first, %(1, 3%)", pad, { accel.ones(1, 3), accel.ones(1, 2) })
  fails("expected a list of tensors, got an empty one", pad, {})
end

do -- options of dropouts and embedding: by position or in a table, and none of them is lost
  local x = accel.ones(4, 5, 6, 7, 8)
  for name, view in pairs { dropout = x, dropout1d = x:flatten(3), dropout2d = x:flatten(4), dropout3d = x, alpha_dropout = x } do
    local f = F[name]
    for _, y in ipairs { f(view, 0.5, { training = false }), f(view, { training = false }), f(view, 0.5, false),
      f(view, { p = 0 }), f(view, { p = 0.5, training = false }), f(view, 0) } do
      assert(accel.equal(y, view), name)
    end
    assert(not accel.equal(f(view, { p = 0.5 }), view) and not accel.equal(f(view, 0.5, { training = true }), view), name)
    fails(name .. ": unknown option 'trainning'; did you mean 'training'", f, view, 0.5, { trainning = false })
    fails(name .. ": p must ", f, view, 1.5)
    fails(name .. ": option 'training' must be a boolean", f, view, 0.5, 1)
  end
  local w = accel.ones(3, 2, { requires_grad = true })
  F.embedding(accel.tensor { 0, 1 }, w, 1):sum():backward()
  close(w.grad, { { 1, 1 }, { 0, 0 }, { 0, 0 } })
  fails("embedding: unknown option 'max_nrom'; did you mean 'max_norm'", F.embedding, accel.tensor { 0 }, w, { max_nrom = 1 })
end

do -- convolutions with padding as a word: every option counts, by position or by name
  local x, w, b = accel.rand(1, 2, 7, 6), accel.rand(3, 2, 3, 3), accel.rand(3)
  local want = F.conv2d(x, w, b, 1, 2, 2)
  close(F.conv2d(x, w, b, { padding = "same", dilation = 2 }), want)
  close(F.conv2d(x, w, b, 1, "same", { dilation = 2 }), want)
  close(F.conv2d(x, w, b, 1, "same", { 2, 2 }), want)
  close(F.conv2d(x, w, { bias = b, padding = "same", dilation = 2 }), want)
  close(F.conv2d(x, w, nil, { 2, 1 }, { padding = "valid" }), F.conv2d(x, w, nil, { 2, 1 }))
  close(F.conv2d(x, accel.ones(2, 1, 1, 1), { padding = "same", groups = 2 }), x)
  fails("conv2d: unknown option 'dilatoin'; did you mean 'dilation'", F.conv2d, x, w, { padding = "same", dilatoin = 2 })
  fails("conv2d: 'stride' is given by position and as an option", F.conv2d, x, w, b, 1, { padding = "same", stride = 1 })
end
