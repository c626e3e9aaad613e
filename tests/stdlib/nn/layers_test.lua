--- Layers and functional forms against PyTorch's values.
local accel = require "accel"
local nn = accel.nn
local F = nn.functional

local function close(got, want, bar)
  local function walk(a, b, at)
    if type(b) == "table" then
      assert(#a == #b, at)
      for i = 1, #b do walk(a[i], b[i], at .. "." .. i) end
    else
      assert(math.abs(a - b) <= (bar or 1e-12), ("%s: %.17g, wanted %.17g"):format(at, a, b))
    end
  end
  walk(type(got) == "userdata" and got:tolist() or got, want, "value")
end

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local x = accel.tensor({ { 0.5, -1.0, 2.0 }, { 1.5, 0.25, -0.75 } }, { dtype = "f64" })

close(nn.LayerNorm(3, { dtype = "f64" })(x), {
  { 0.0, -1.2247407889290967, 1.2247407889290967 }, { 1.2674929643309851, -0.09053521173792756,
    -1.176957752593058 },
})
close(nn.RMSNorm(3, { eps = 1e-5, dtype = "f64" })(x), {
  { 0.37796339311536103, -0.7559267862307221, 1.5118535724614441 },
  { 1.5322537610191536, 0.2553756268365256, -0.7661268805095768 },
})
close(nn.RMSNorm(3)(x:to "f32"), {
  { 0.37796443700790405, -0.7559288740158081, 1.5118577480316162 },
  { 1.532261610031128, 0.255376935005188, -0.766130805015564 },
}, 2e-7)
close(nn.GELU()(x), {
  { 0.34573123063700656, -0.15865525393145702, 1.9544997361036416 },
  { 1.399789198096713, 0.14967658142073093, -0.16997051428265111 },
})
close(nn.GELU { approximate = "tanh" } (x), {
  { 0.34571400982514394, -0.15880800939172324, 1.954597694087775 },
  { 1.3995715769802328, 0.149675350701685, -0.17003944483437966 },
})
close(nn.SiLU()(x), {
  { 0.3112296656009273, -0.2689414213699951, 1.7615941559557646 },
  { 1.2263617142904655, 0.14054412522144952, -0.24061597561845527 },
})
close(nn.Softmax(2)(x), {
  { 0.1752903921400367, 0.039112573270687456, 0.7855970345892759 },
  { 0.7184403411510649, 0.20583660399765152, 0.07572305485128351 },
})
close(nn.Softmax(-1)(x), nn.LogSoftmax(2)(x):exp():tolist())
close(nn.ReLU()(x), { { 0.5, 0, 2 }, { 1.5, 0.25, 0 } })
close(nn.Tanh()(x), { { 0.46211715726000976, -0.7615941559557649, 0.9640275800758169 },
  { 0.9051482536448664, 0.24491866240370913, -0.6351489523872873 } })
close(nn.Sigmoid()(x), { { 0.6224593312018546, 0.2689414213699951, 0.8807970779778823 },
  { 0.8175744761936437, 0.5621765008857981, 0.320821300824607 } })

do -- Linear
  local m = nn.Linear(3, 2, { dtype = "f64" })
  m:load_state_dict {
    weight = accel.tensor({ { 0.1, 0.2, -0.3 }, { 0.4, -0.5, 0.6 } }, { dtype = "f64" }),
    bias = accel.tensor({ 0.01, -0.02 }, { dtype = "f64" }),
  }
  close(m(x), { { -0.74, 1.88 }, { 0.435, 0.005 } }, 1e-15)
  assert(nn.Linear(3, 2, { bias = false }).bias == nil)
  fails("unknown option 'bais'; did you mean 'bias'", nn.Linear, 3, 2, { bais = false })
end

do -- arguments are checked by the layer that takes them, at the script's line
  local here = "^[^\n]*layers_test.lua:%d+: "
  local function refuses(pattern, class, ...)
    local args = table.pack(...)
    fails(here .. pattern, function() class(table.unpack(args, 1, args.n)) end)
  end
  refuses("Linear: out_features must be a positive integer, got nil", nn.Linear, 3)
  refuses("Linear: in_features must be a positive integer, got nil", nn.Linear)
  refuses("Linear: in_features must be a positive integer, got 'a'", nn.Linear, "a", 3)
  refuses("Linear: in_features must be a positive integer, got 3.5", nn.Linear, 3.5, 1)
  refuses("Linear: out_features must be a positive integer, got 0", nn.Linear, 3, 0)
  assert(nn.Linear(6 / 2, 1).in_features == 3)
  refuses("Embedding: num_embeddings must be a positive integer, got nil", nn.Embedding)
  refuses("Embedding: padding_idx must be an integer, got 'x'", nn.Embedding, 3, 2, { padding_idx = "x" })
  refuses("LayerNorm: normalized_shape must be a positive integer or a list of them, got nil", nn.LayerNorm)
  refuses("LayerNorm: eps must be at least 0, got %-1", nn.LayerNorm, 3, { eps = -1 })
  refuses("RMSNorm: normalized_shape%[2%] must be a positive integer, got %-1", nn.RMSNorm, { 2, -1 })
  refuses("RMSNorm: normalized_shape is an empty list", nn.RMSNorm, {})
  refuses("GELU: approximate must be one of none, tanh, got 'tan'", nn.GELU, { approximate = "tan" })
  refuses("Softmax: dim must be an integer, got nil", nn.Softmax)
  refuses("Flatten: start_dim must be an integer, got 'x'", nn.Flatten, "x")
  refuses("Unflatten: unflattened_size must be a positive integer or a list of them, got nil", nn.Unflatten, 1)
  refuses("CrossEntropyLoss: reduction must be one of mean, sum, none, got 'avg'", nn.CrossEntropyLoss,
    { reduction = "avg" })
  refuses("clip_grad_norm_: expected parameters or a list of them, got nil", nn.utils.clip_grad_norm_, nil, 1)
  refuses("clip_grad_norm_: max_norm must be a number, got nil", nn.utils.clip_grad_norm_, {})
end

do -- losses
  local y = accel.tensor({ 2, 0 }, { dtype = "i64" })
  close(nn.CrossEntropyLoss()(x, y):item(), 0.28599195303219055)
  close(nn.CrossEntropyLoss()(x, accel.tensor({ 2, -100 }, { dtype = "i64" })):item(), 0.24131129665715703)
  close(nn.CrossEntropyLoss { reduction = "sum" } (x, y):item(), 2 * 0.28599195303219055)
  local zero = accel.zeros_like(x)
  close(nn.MSELoss()(x, zero):item(), (0.25 + 1 + 4 + 2.25 + 0.0625 + 0.5625) / 6)
  close(nn.MSELoss { reduction = "sum" } (x, zero):item(), 8.125)
  close(nn.MSELoss { reduction = "none" } (x, zero), { { 0.25, 1, 4 }, { 2.25, 0.0625, 0.5625 } })
  fails("differ in shape", F.mse_loss, x, accel.zeros(3))
end

do -- Embedding: rows by 0-based values, a padding row without gradient
  local m = nn.Embedding(4, 2, { padding_idx = 0 })
  close(m.weight:tolist()[1], { 0, 0 })
  local ids = accel.tensor({ { 1, 0 }, { 3, 1 } }, { dtype = "i64" })
  local out = m(ids)
  assert(out.shape[1] == 2 and out.shape[2] == 2 and out.shape[3] == 2)
  close(out:tolist()[2][1], m.weight:tolist()[4], 0)
  out:sum():backward()
  close(m.weight.grad, { { 0, 0 }, { 2, 2 }, { 0, 0 }, { 1, 1 } }, 0)
  fails("padding_idx 4 is outside", nn.Embedding, 4, 2, { padding_idx = 4 })
end

do -- Dropout: share, scale, gradient through the same mask
  accel.manual_seed(3)
  local big = accel.ones(20000, { requires_grad = true })
  local out = nn.Dropout(0.25)(big)
  local kept = out:gt(0):to("f32"):sum():item()
  assert(math.abs(kept / 20000 - 0.75) < 0.02, kept)
  close(out:max():item(), 1 / 0.75, 1e-6)
  out:sum():backward()
  assert(big.grad:eq(out):to("f32"):sum():item() == 20000)
  fails("p must lie in 0 .. 1", nn.Dropout, 1.5)
end

do -- shapes
  local t = accel.zeros(2, 3, 4)
  assert(table.concat(nn.Flatten()(t).shape, ",") == "2,12")
  assert(table.concat(nn.Flatten(1, 2)(t).shape, ",") == "6,4")
  assert(table.concat(nn.Unflatten(3, { 2, 2 })(t).shape, ",") == "2,3,2,2")
  assert(table.concat(nn.Unflatten(-1, { 2, 2 })(t).shape, ",") == "2,3,2,2")
  assert(nn.Identity()(t) == t)
end

do -- default initialisation: bounds and spread of PyTorch's
  accel.manual_seed(1)
  local m = nn.Linear(100, 400)
  local bound = 0.1
  assert(m.weight:max():item() <= bound and m.weight:max():item() > 0.99 * bound)
  assert((-m.weight):max():item() <= bound and (-m.weight):max():item() > 0.99 * bound)
  assert(m.bias:max():item() <= bound and m.bias:max():item() > 0.9 * bound)
  local function moments(t)
    local v = t:detach():to("f64"):reshape(-1)
    local mean = v:mean():item()
    return mean, math.sqrt(((v - mean) * (v - mean)):mean():item())
  end
  local mean, std = moments(m.weight)
  assert(math.abs(mean) < 1e-3 and math.abs(std - bound / math.sqrt(3)) < 1e-3)
  mean, std = moments(nn.Embedding(200, 200).weight)
  assert(math.abs(mean) < 0.03 and math.abs(std - 1) < 0.03)
  local init, t = nn.init, accel.empty(300, 100)
  mean, std = moments(init.xavier_normal_(t, 2))
  assert(math.abs(mean) < 2e-3 and math.abs(std - 2 * math.sqrt(2 / 400)) < 3e-3)
  init.xavier_uniform_(t)
  assert(math.abs(t:max():item() - math.sqrt(6 / 400)) < 1e-3)
  mean, std = moments(init.kaiming_normal_(t, { mode = "fan_out", nonlinearity = "relu" }))
  assert(math.abs(mean) < 2e-3 and math.abs(std - math.sqrt(2 / 300)) < 2e-3)
  init.kaiming_uniform_(t, { a = math.sqrt(5) })
  assert(t:max():item() <= 0.1 and t:max():item() > 0.099)
  init.trunc_normal_(t, 0, 1, -0.5, 0.5)
  assert(t:max():item() <= 0.5 and t:max():item() > 0.49 and (-t):max():item() <= 0.5)
  assert(select(1, init.fans(accel.empty(8, 4, 3, 3))) == 36 and select(2,
    init.fans(accel.empty(8, 4, 3, 3))) == 72)
  assert(init.ones_(t):sum():item() == 30000 and init.zeros_(t):sum():item() == 0)
  assert(init.eye_(accel.empty(3, 4)):sum():item() == 3 and init.calculate_gain "relu" == math.sqrt(2))
  local p = nn.Parameter(accel.zeros(2, 2))
  assert(init.constant_(p, 5) == p and p:sum():item() == 20 and p.requires_grad)
  fails("unknown nonlinearity", init.calculate_gain, "rleu")
  fails("at least 2 dimensions", init.xavier_uniform_, accel.empty(3))
end
