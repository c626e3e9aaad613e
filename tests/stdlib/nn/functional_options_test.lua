--- Options of nn.functional: every function takes them by name, with the result of the call by position, and refuses a name it does
--- not have. The functions are read from the module, so that a new one is swept without a row here.
local accel = require "accel"
local F, nan = accel.nn.functional, 0 / 0

local function same(name, got, want)
  local a, b = got:detach(), want:detach()
  assert(a.dtype == b.dtype, ("%s: dtype %s, wanted %s"):format(name, a.dtype, b.dtype))
  local x, y = a:to("f64"):reshape(-1):tolist(), b:to("f64"):reshape(-1):tolist()
  assert(#x == #y, name .. ": shapes differ")
  for i = 1, #x do assert(x[i] == y[i] or (x[i] ~= x[i] and y[i] ~= y[i]), ("%s: element %d is %g, wanted %g"):format(name, i, x[i], y[i])) end
end

-- what stands before the options where a function needs it to get that far
local x, ids, weight = accel.ones(1, 4, 2, 2), accel.tensor { { 0, 1 } }, accel.eye(2)
local before = {
  dropout = { x }, dropout1d = { accel.ones(1, 2, 2) }, dropout2d = { x }, dropout3d = { accel.ones(1, 1, 1, 1, 2) }, alpha_dropout = { x },
  feature_alpha_dropout = { x },
  embedding = { ids, weight }, embedding_bag = { ids, weight }, gumbel_softmax = { x }, alibi_slopes = false,
  ctc_loss = { accel.ones(2, 1, 3), accel.tensor { { 1 } }, accel.tensor { 2 }, accel.tensor { 1 } },
}

local n = 0
for name in next, getmetatable(F).__names do assert(F[name]) end -- those that are loaded on first use
for name, fn in next, F do
  local prefix = before[name]
  if prefix ~= false then
    local args = table.move(prefix or {}, 1, prefix and #prefix or 0, 1, {})
    args[#args + 1] = { no_such_option = 1 }
    local ok, err = pcall(fn, table.unpack(args))
    assert(not ok, name .. " takes an option that it does not have")
    assert(tostring(err):find("no_such_option", 1, true), ("%s says %q, which names no option"):format(name, tostring(err)))
    n = n + 1
  end
end
assert(n > 80, "only " .. n .. " functions were swept")

local v, labels = accel.tensor { -1.0, 0.25, 0.75, nan, 2.0 }, accel.tensor { 1, 0 }
local w = accel.ones(2, 3, 2)
for name, calls in pairs {
  hardshrink = { { v, 0.3 }, { v, { lambd = 0.3 } } },
  softshrink = { { v, 0.3 }, { v, { lambd = 0.3 } } },
  threshold = { { v, 0.3, 7 }, { v, { threshold = 0.3, value = 7 } } },
  glu = { { x, 2 }, { x, { dim = 2 } } },
  prelu = { { x, accel.ones(4) }, { x, { weight = accel.ones(4) } } },
  softmin = { { v, 1, "f64" }, { v, { dim = 1, dtype = "f64" } } },
  bilinear = { { accel.ones(3), accel.ones(2), w, accel.ones(2) }, { accel.ones(3), accel.ones(2), { weight = w, bias = accel.ones(2) } } },
  pairwise_distance = { { x, x * 2, 1, 0, true }, { x, x * 2, { p = 1, eps = 0, keepdim = true } } },
  pixel_shuffle = { { x, 2 }, { x, { upscale_factor = 2 } } },
  pixel_unshuffle = { { x, 2 }, { x, { downscale_factor = 2 } } },
  channel_shuffle = { { x, 2 }, { x, { groups = 2 } } },
  embedding = { { ids, weight, 0 }, { ids, weight, { padding_idx = 0 } } },
  dropout = { { x, 0.5, false }, { x, { p = 0.5, training = false } } },
  cosine_similarity = { { x, x, 3, 1e-3 }, { x, x, { dim = 3, eps = 1e-3 } } },
  cross_entropy = { { accel.ones(2, 3), labels, nil, 0, n = 4 }, { accel.ones(2, 3), labels, { ignore_index = 0 } } },
} do
  same(name, F[name](table.unpack(calls[2])), F[name](table.unpack(calls[1], 1, calls[1].n or #calls[1])))
end

-- one implementation: the function is the op, and NaN stays NaN in both and in the module
for name, module in pairs { hardshrink = accel.nn.Hardshrink(), softshrink = accel.nn.Softshrink(), threshold = accel.nn.Threshold(0.3, 7),
  softsign = accel.nn.Softsign(), tanhshrink = accel.nn.Tanhshrink() } do
  local want = name == "threshold" and accel.threshold(v, 0.3, 7) or accel[name](v)
  assert(F[name] == accel[name], name .. " is not the op")
  same(name, module(v), want)
  assert(want[4]:item() ~= want[4]:item(), name .. " loses NaN")
end

-- layers by name, also those whose constructors name their parameters
local built = accel.nn.Linear { in_features = 3, out_features = 2, bias = false }
assert(built.in_features == 3 and built.bias == nil)
assert(accel.nn.Bilinear { in1_features = 2, in2_features = 3, out_features = 4 }.out_features == 4)
assert(accel.nn.Embedding { num_embeddings = 3, embedding_dim = 2 }.num_embeddings == 3)
assert(accel.nn.GroupNorm { num_groups = 1, num_channels = 2 }.num_groups == 1)
assert(accel.nn.LayerNorm { normalized_shape = 4, eps = 1e-3 }.eps == 1e-3)
local ok, err = pcall(accel.nn.Linear, { in_features = 3, out_feature = 2 })
assert(not ok and tostring(err):find("did you mean 'out_features'", 1, true), tostring(err))

-- bags of 16 bits: summed in f32 and rounded once
for _, dtype in ipairs { "bf16", "f16" } do
  local table_ = accel.full({ 2, 1 }, 1.0, { dtype = dtype })
  table_[2] = 0.001953125
  local many = accel.cat({ accel.zeros(1, { dtype = "i64" }), accel.ones(2048, { dtype = "i64" }) })
  for mode, want in pairs { sum = 5.0, mean = 5 / 2049 } do
    local exact = accel.tensor({ want }, { dtype = dtype }):item()
    local offsets = accel.zeros(1, { dtype = "i64" })
    assert(F.embedding_bag(many, table_, { offsets = offsets, mode = mode }):item() == exact, dtype .. " " .. mode)
    assert(F.embedding_bag(many:unsqueeze(1), table_, { mode = mode }):item() == exact, dtype .. " " .. mode .. " in rows")
  end
end
do -- a row that is left out does not make NaN of the others, an infinite one is a value
  local t = accel.tensor { { math.huge }, { 1.0 }, { -math.huge } }
  for _, mode in ipairs { "sum", "mean", "max" } do
    assert(F.embedding_bag(accel.tensor { { 0, 1 } }, t, { mode = mode, padding_idx = 0 }):item() == 1)
    assert(F.embedding_bag(accel.tensor { 0, 1 }, t, { offsets = accel.tensor { 0 }, mode = mode, padding_idx = 0 }):item() == 1)
  end
  assert(F.embedding_bag(accel.tensor { 2 }, t, { offsets = accel.tensor { 0 }, mode = "max" }):item() == -math.huge)
  assert(F.embedding_bag(accel.tensor { { 0 } }, t, { mode = "max", padding_idx = 0 }):item() == 0)
end

assert(F.pixel_shuffle(accel.ones(1, 0, 1, 1), 1).shape[2] == 0 and F.pixel_unshuffle(accel.ones(0, 1, 2, 2), 2).shape[2] == 4)
