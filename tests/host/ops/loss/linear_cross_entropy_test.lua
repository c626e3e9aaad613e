-- linear_cross_entropy: values of PyTorch 2.15, our own linear and cross_entropy over tiles and blocks of rows,
-- layouts, corners, autocast, double backward, tied weights, threads, memory, refusals.
local accel = require "accel"

local self = arg and arg[0]

local function fill(shape, a, b)
  local n, v = 1, {}
  for _, s in ipairs(shape) do n = n * s end
  for i = 1, n do v[i] = a * math.sin(b * i) end
  return accel.tensor(v, { dtype = "f64" }):view(shape)
end
local function leaf(t) return t:detach():clone():requires_grad_() end
local function worst(a, b)
  if b:numel() == 0 then return 0 end
  return (a:to "f64" - b:to "f64"):abs():max():item() / math.max(b:to("f64"):abs():max():item(), 1e-30)
end

-- What the processes with another number of threads compute, and nothing else (below).
local function digest()
  accel.manual_seed(5)
  local x, w, b = accel.randn(1100, 40), accel.randn(3001, 40), accel.randn(3001)
  local t, lines = accel.randint(0, 3001, { 1100 }), {}
  for _, dtype in ipairs { "f32", "bf16" } do
    local X, W, B, l = leaf(x), leaf(w), leaf(b), nil
    accel.autocast({ device = "cpu", enabled = dtype == "bf16", dtype = "bf16" }, function()
      l = accel.linear_cross_entropy(X, W, t, B, { label_smoothing = 0.1 })
        + accel.linear_cross_entropy(X, W, t, B, { keep = true })
    end)
    l:backward()
    for _, v in ipairs { l:detach():view(1), X.grad, W.grad, B.grad } do
      local bits, n = v:reshape(-1):tolist(), 0
      for i = 1, #bits do n = (n * 31 + string.unpack("<i8", string.pack("<d", bits[i]))) % 2147483647 end
      lines[#lines + 1] = tostring(n)
    end
  end
  return table.concat(lines, " ")
end
if os.getenv "LCE_DIGEST" then
  print(digest())
  os.exit(0)
end

-- ---- PyTorch ----
do
  local x, w, b = fill({ 5, 2 }, 1.5, 1.3), fill({ 4, 2 }, 2.0, 0.7), fill({ 4 }, 0.5, 2.1)
  local cw, t = accel.tensor({ 0.5, 1.0, 2.0, 1.5 }, { dtype = "f64" }), accel.tensor { 2, 0, 1, 3, 2 }
  local cases = {
    { {}, { 3.99663994760249 },
      { 0.432606569120853, 0.635259561655945, -0.56402121327404, -0.678612191502111, -0.077521526162456,
        0.220845435664972, 0.260620646676969, -0.0119363475677452, -0.109470589149366, 0.183279391747633 },
      { 0.403720656675663, 0.624942556385073, 0.0641374559036041, -0.217123207475132, -0.0935659554500753,
        -0.521209393312397, -0.374292157129192, 0.113390044402456 } },
    { { linear_bias = b, weight = cw, label_smoothing = 0.1 }, { 3.68336097111845 },
      { 0.567362244796817, 0.921279255636576, -0.210720332132828, -0.226884645160925, -0.023692087050375,
        0.201638161386637, 0.205153174135953, -0.0297404214284265, -0.180129540556644, 0.237070331776238 },
      { 0.375830735085342, 0.471602287337226, 0.0517109087828442, -0.146143081480911, -0.0631130023846299,
        -0.538750621695928, -0.364428641483556, 0.213291415839612 },
      { 0.320181309557052, -0.0575458023893564, -0.373031530914663, 0.110396023746967 } },
    { { linear_bias = b, reduction = "none", ignore_index = 2, label_smoothing = 0.2 },
      { 0, 7.19915367953824, 2.97015069149862, 1.41030397961963, 0 },
      { 0, 0, -5.38239663185175, -5.88010495501698, -0.278288980338728, 4.07017982559991, 2.78467462631874,
        -1.32617183187518, 0, 0 },
      { 2.55818097485679, 6.34113328642814, -0.631666178675925, -3.46951825762127, 0.63710167505426,
        -3.61325245704671, -2.56361647123513, 0.741637428239839 },
      { 0.844958945766292, -2.39993367422085, 2.55986954447283, -1.00489481601827 } },
    { { reduction = "sum", weight = cw, ignore_index = 0 }, { 21.0900741957784 },
      { 4.32606569120853, 6.35259561655945, 0, 0, -0.38760763081228, 1.10422717832486, 1.95465485007727,
        -0.0895226067580894, -1.09470589149366, 1.83279391747633 },
      { 1.69435854393058, 2.32925724161739, 0.895363710419207, -0.813988245988348, -0.398182626359829,
        -3.89896187589958, -2.19153962798996, 2.38369288027054 } },
  }
  for i, c in ipairs(cases) do
    for _, keep in ipairs { false, true } do
      local o = { keep = keep }
      for k, v in pairs(c[1]) do o[k] = v end
      local bx, bw, bb = leaf(x), leaf(w), o.linear_bias and leaf(o.linear_bias)
      o.linear_bias = bb
      local l = accel.linear_cross_entropy(bx, bw, t, o)
      if l.ndim == 0 then l:backward() else l:backward(accel.arange(1, 6):to "f64") end
      for k, got in ipairs { l, bx.grad, bw.grad, bb and bb.grad } do
        local d = worst(got:detach():reshape(-1), accel.tensor(c[k + 1], { dtype = "f64" }))
        assert(d < 1e-12, ("PyTorch, case %d, result %d, keep %s: off by %g"):format(i, k, keep, d))
      end
    end
  end
end

-- ---- our own plain ops ----
-- Losses and gradients of one call: {loss, dinput, dlinear, dbias}
local function both(x, w, b, t, o, transposed, keep)
  local function run(fused)
    local X, W, B = leaf(x), leaf(w), b and leaf(b)
    local l
    local a = transposed and X:t() or X
    local m = transposed and W:t() or W
    if fused then
      local all = { linear_bias = B, keep = keep }
      for k, v in pairs(o) do all[k] = v end
      l = accel.linear_cross_entropy(a, m, t, all)
    else
      l = accel.cross_entropy(accel.linear(a, m, B), t, o)
    end
    if l.ndim == 0 then l:backward() else l:backward((accel.arange(l:numel()):to(l.dtype) * 0.01 + 1):view(l.shape)) end
    return { l:detach(), X.grad, W.grad, B and B.grad }
  end
  return run(true), run(false)
end
local function agree(label, bar, x, w, b, t, o, transposed)
  for _, keep in ipairs { false, true } do
    local got, want = both(x, w, b, t, o, transposed, keep)
    for i = 1, 4 do
      if want[i] then
        assert(got[i].dtype == want[i].dtype, label .. ": dtype of result " .. i)
        local d = worst(got[i], want[i])
        assert(d <= bar, ("%s, keep %s: result %d is off by %g"):format(label, keep, i, d))
      end
    end
  end
end

local bars = { f64 = 3e-14, f32 = 4e-6, f16 = 2e-3, bf16 = 2e-2 }
accel.manual_seed(3)
for dtype, bar in pairs(bars) do
  local function rand(...) return accel.randn(...):to(dtype) * 0.5 end
  local some = { dtype = dtype }
  -- several tiles, the last one short; two blocks of rows; one row; more classes than a tile of one row
  agree(dtype .. ", tiles", bar, rand(300, 16), rand(2500, 16), rand(2500), accel.randint(0, 2500, { 300 }), {})
  local t = accel.randint(0, 1501, { 1100 })
  agree(dtype .. ", blocks", bar, rand(1100, 9), rand(1501, 9), rand(1501),
    t:masked_fill(accel.rand(1100):lt(0.3), -100), { reduction = "none" })
  agree(dtype .. ", one row", bar, rand(1, 3), rand(300007, 3), nil, accel.tensor { 299999 }, { reduction = "sum" })
  agree(dtype .. ", weights", bar, rand(280, 5), rand(1031, 5), rand(1031), accel.randint(0, 1031, { 280 }),
    { weight = accel.rand(1031, some) + 0.5, label_smoothing = 0.3 })
  agree(dtype .. ", all smooth", bar, rand(33, 5), rand(7, 5), nil, accel.randint(0, 7, { 33 }),
    { label_smoothing = 1.0 })
  agree(dtype .. ", views", bar, rand(16, 300), rand(16, 2500), nil, accel.randint(0, 2500, { 300 }), {}, true)
end

-- leading dims, i32 targets, an expanded and a strided bias, a gradient of one input alone
do
  local x, w, t = fill({ 2, 3, 4 }, 1, 0.7), fill({ 6, 4 }, 1, 1.1), accel.tensor { { 0, 5, 2 }, { 1, 1, 3 } }
  local flat = accel.linear_cross_entropy(x:view(6, 4), w, t:reshape(6), { reduction = "none" })
  local y = accel.linear_cross_entropy(x, w, t:to "i32", { reduction = "none" })
  local one = accel.linear_cross_entropy(x[1][1], w, t[1][1], { reduction = "none" })
  assert(y:equal(flat:view(2, 3)) and one.ndim == 0)
  local b = fill({ 12 }, 1, 0.3)
  local strided = b:view(6, 2):select(2, 1)
  assert(accel.linear_cross_entropy(x, w, t, strided):equal(accel.linear_cross_entropy(x, w, t, strided:clone())))
  assert(worst(accel.linear_cross_entropy(x, w, t, accel.full({ 1 }, 3, { dtype = "f64" }):expand(6)),
    accel.linear_cross_entropy(x, w, t)) < 1e-14, "a bias that is the same everywhere changes nothing")
  local B = leaf(strided)
  accel.linear_cross_entropy(x, w, t, B):backward()
  assert(B.grad:sum():abs():item() < 1e-14 and B.grad:abs():max():item() > 0.01)
  local W = leaf(w)
  accel.linear_cross_entropy(x, W, t):backward()
  assert(W.grad ~= nil and x.grad == nil)
end

-- ---- corners ----
do
  local w = fill({ 5, 3 }, 1, 0.7)
  local none = accel.zeros(0, 3, { dtype = "f64" })
  local nobody = accel.zeros(0, { dtype = "i64" })
  local function nan(v) return v ~= v end
  assert(nan(accel.linear_cross_entropy(none, w, nobody):item()), "the mean of no rows")
  local W, X = leaf(w), leaf(none)
  accel.linear_cross_entropy(X, W, nobody, { reduction = "sum" }):backward()
  assert(W.grad:abs():sum():item() == 0 and X.grad:numel() == 0)
  -- every row ignored
  local x, skip = leaf(fill({ 2, 3 }, 1, 0.3)), accel.tensor { -100, -100 }
  assert(nan(accel.linear_cross_entropy(x, w, skip):item()))
  local l = accel.linear_cross_entropy(x, W, skip, { reduction = "sum" })
  assert(l:item() == 0)
  x.grad, W.grad = nil, nil
  l:backward()
  assert(x.grad:abs():sum():item() == 0 and W.grad:abs():sum():item() == 0)
  -- logits of any size; classes that cannot be; NaN
  local big = accel.tensor({ { 1e4, 0.0 }, { -1e4, 0.0 } }, { dtype = "f32" })
  local id = accel.tensor({ { 1.0, 0.0 }, { 0.0, 1.0 }, { -1.0, 0.0 } })
  local each = accel.linear_cross_entropy(big, id, accel.tensor { 0, 0 }, { reduction = "none" })
  assert(each:equal(accel.tensor { 0.0, 2e4 }))
  local never = accel.full({ 400000 }, -math.huge)
  never[400000], never[300000] = 0.0, 0.0
  local wide, one = accel.zeros(400000, 1), accel.zeros(1, 1)
  assert(math.abs(accel.linear_cross_entropy(one, wide, accel.tensor { 399999 }, never):item() - math.log(2)) < 1e-6,
    "a tile with nothing but -inf adds nothing")
  assert(accel.linear_cross_entropy(one, wide, accel.tensor { 5 }, never):item() == math.huge)
  assert(nan(accel.linear_cross_entropy(one, wide, accel.tensor { 5 }, accel.full({ 400000 }, -math.huge)):item()))
  -- what is kept of a tile stands on the largest logit so far: nothing at all, then one that leaves the rest at 0
  local function kept(bias, target)
    local b, x1, w1 = leaf(bias), accel.full({ 1, 1 }, 2.0):requires_grad_(), leaf(wide)
    accel.linear_cross_entropy(x1, w1, target, b, { keep = true }):backward()
    return b.grad, w1.grad
  end
  local db, dw = kept(never, accel.tensor { 399999 })
  assert(math.abs(db[300000]:item() - 0.5) < 1e-6 and math.abs(db[400000]:item() + 0.5) < 1e-6)
  assert(db:abs():sum():item() < 1.00001 and math.abs(dw[300000]:item() - 1) < 1e-6)
  -- ... however small the logits that come after nothing at all
  for dtype, low in pairs { f32 = -110.0, bf16 = -110.0, f64 = -800.0 } do
    local given = dtype == "bf16" and "f32" or dtype
    local X, W = accel.randn(40, 8, { dtype = given }), accel.randn(30000, 8, { dtype = given }) * 0.1
    local bias, t = accel.full({ 30000 }, low, { dtype = given }), accel.randint(9000, 30000, { 40 })
    bias[{ { 1, 8000 } }] = -math.huge
    local grads = {}
    for i, keep in ipairs { false, true } do
      local gx, gw = leaf(X), leaf(W)
      accel.autocast({ device = "cpu", dtype = "bf16", enabled = dtype == "bf16" }, function()
        accel.linear_cross_entropy(gx, gw, t, bias, { keep = keep }):backward()
      end)
      grads[i] = { gx.grad, gw.grad }
    end
    for i = 1, 2 do
      local d = worst(grads[2][i], grads[1][i])
      assert(d < (dtype == "bf16" and 2e-2 or 1e-5), ("%s: %g"):format(dtype, d))
    end
  end
  local rising = accel.zeros(400000)
  rising[400000] = 1e4
  db = kept(rising, accel.tensor { 0 })
  assert(db[1]:item() == -1 and db[400000]:item() == 1 and db:abs():sum():item() == 2)
  never[7] = 0 / 0
  assert(nan(accel.linear_cross_entropy(one, wide, accel.tensor { 0 }, never):item()))
end

-- ---- autocast: inputs stay as they are, products are short, the loss and sums are not ----
for _, dtype in ipairs { "bf16", "f16" } do
  local x, w, t = accel.randn(300, 64), accel.randn(2500, 64) * 0.1, accel.randint(0, 2500, { 300 })
  local function grads(in_dtype, lowered, keep)
    local X, W = leaf(x:to(in_dtype)), leaf(w)
    if not lowered then X, W = leaf(x:to "f64"), leaf(w:to "f64") end
    local l
    if lowered then
      local _ <close> = accel.autocast { device = "cpu", dtype = dtype }
      l = accel.linear_cross_entropy(X, W, t, { keep = keep })
    else
      l = accel.linear_cross_entropy(X, W, t)
    end
    l:backward()
    return l, X.grad, W.grad
  end
  local l, dx, dw = grads("f64", false)
  for _, in_dtype in ipairs { "f32", dtype } do
    for _, keep in ipairs { false, true } do
      local a, adx, adw = grads(in_dtype, true, keep)
      assert(a.dtype == "f32" and adx.dtype == in_dtype and adw.dtype == "f32")
      assert(worst(a:detach(), l:detach()) < 1e-3 and worst(adx, dx) < 2e-2 and worst(adw, dw) < 2e-2, dtype)
    end
  end
  local _ <close> = accel.autocast { device = "cpu", dtype = dtype }
  assert(accel.linear_cross_entropy(x:to "f64", w:to "f64", t).dtype == "f64")
end

-- ---- second derivatives; one weight in two places ----
do
  local x, w, t = fill({ 4, 3 }, 1, 0.7), fill({ 5, 3 }, 1, 1.1), accel.tensor { 0, 4, 2, 1 }
  local function second(fused, keep)
    local X, W = leaf(x), leaf(w)
    local l = fused and accel.linear_cross_entropy(X, W, t, { keep = keep })
      or accel.cross_entropy(accel.linear(X, W), t)
    local g = accel.grad({ l }, { X, W }, { create_graph = true })
    return accel.grad({ (g[1] * g[1]):sum() + (g[2] * g[2] * g[2]):sum() }, { X, W })
  end
  local a, b, kept = second(true), second(false), second(true, true)
  assert(worst(a[1], b[1]) < 1e-12 and worst(a[2], b[2]) < 1e-12)
  assert(worst(kept[1], b[1]) < 1e-12 and worst(kept[2], b[2]) < 1e-12)
  local function tied(fused)
    local W = leaf(w)
    local h = accel.nn.functional.embedding(t, W)
    local l = fused and accel.linear_cross_entropy(h, W, t) or accel.cross_entropy(accel.linear(h, W), t)
    l:backward()
    return W.grad
  end
  assert(worst(tied(true), tied(false)) < 1e-13)
end

-- ---- memory: no more than a twentieth of the logits ----
do
  local N, V, K = 520, 50257, 16 -- more than one block of rows
  local x, w, t = leaf(accel.randn(N, K)), leaf(accel.randn(V, K)), accel.randint(0, V, { N })
  for _, lowered in ipairs { false, true } do
    x.grad, w.grad = nil, nil
    collectgarbage()
    collectgarbage()
    accel.reset_peak_memory()
    local base, l = accel.mem_stats().live_bytes, nil
    if lowered then
      accel.autocast({ device = "cpu", dtype = "bf16" }, function() l = accel.linear_cross_entropy(x, w, t) end)
    else
      l = accel.linear_cross_entropy(x, w, t)
    end
    local forward = accel.mem_stats().peak_bytes - base
    assert(accel.mem_stats().live_bytes - base < 4 * N * 8, "forward keeps a number per row")
    accel.reset_peak_memory()
    l:backward()
    local backward = accel.mem_stats().peak_bytes - base - (N + V) * K * 4
    local logits = N * V * (lowered and 2 or 4)
    assert(forward <= 0.05 * logits and backward <= 0.05 * logits,
      ("%.1f %% and %.1f %% of the logits"):format(100 * forward / logits, 100 * backward / logits))
    assert(forward > 0.001 * logits, "the counters see the scratch")
    -- kept where it leads to a gradient, and only there
    local function holds(inputs)
      collectgarbage()
      collectgarbage()
      local before, kept = accel.mem_stats().live_bytes, nil
      accel.autocast({ device = "cpu", dtype = "bf16", enabled = lowered }, function()
        kept = accel.linear_cross_entropy(inputs[1], inputs[2], t, { keep = true })
      end)
      local bytes = accel.mem_stats().live_bytes - before
      assert(kept.ndim == 0)
      return bytes
    end
    local held = holds { x, w }
    assert(held > logits and held < 1.02 * logits, held / logits)
    assert(holds { x:detach(), w:detach() } < 4 * N * 8)
    accel.no_grad(function() assert(holds { x, w } < 4 * N * 8) end)
  end
  -- weights of f32 are rounded as products read them: beside a tile there is a copy of the input, none of a tile's
  -- weights; products on AMX do not round
  local f <close> = io.open "/proc/cpuinfo"
  if not (f and f:read "a":find "amx_bf16") then
    x, w = accel.randn(N, 768), accel.randn(V, 768)
    local _ <close> = accel.autocast { device = "cpu", dtype = "bf16" }
    accel.reset_peak_memory()
    local base, logits = accel.mem_stats().live_bytes, N * V * 2
    accel.linear_cross_entropy(x, w, t)
    local peak = accel.mem_stats().peak_bytes - base
    assert(peak <= 0.04 * logits, ("%.1f %% of the logits"):format(100 * peak / logits))
  end
end

-- ---- the same bits with any number of threads ----
do
  local run = (os.getenv "ACCEL_TEST_BUILD" or "build/dev") .. "/bin/accel-run"
  local want
  -- On AMX oneDNN multiplies bf16 in several threads, and LeakSanitizer crashes as it reads the thread-local data of oneDNN 2.6.3.
  local without = (os.getenv "ACCEL_TEST_SANITIZE" or "") ~= "" and "ACCEL_ONEDNN=0 " or ""
  for _, threads in ipairs { 1, 2, 4 } do
    local p = assert(io.popen(("%sLCE_DIGEST=1 ACCEL_NUM_THREADS=%d '%s' '%s' 2>&1"):format(without, threads, run, self)))
    local got = p:read "a":match "([%d ]+)\n$"
    assert(p:close() and got, "the run with " .. threads .. " threads failed")
    want = want or got
    assert(got == want, ("%d threads: %s instead of %s"):format(threads, got, want))
  end
end

-- ---- the module; the meta device ----
do
  local m = accel.nn.LinearCrossEntropyLoss(3, 4,
    { bias = true, weight = accel.tensor { 1.0, 2, 1, 1 }, label_smoothing = 0.1 })
  local x, t = accel.randn(2, 3), accel.tensor { 1, 3 }
  local want = accel.cross_entropy(m.linear(x), t, { weight = m.weight, label_smoothing = 0.1 })
  assert(worst(m(x, t):detach(), want:detach()) < 1e-6)
  local names = {}
  for k in pairs(m:state_dict()) do names[#names + 1] = k end
  table.sort(names)
  assert(table.concat(names, " ") == "linear.bias linear.weight weight")
  assert(#accel.nn.LinearCrossEntropyLoss(3, 4):parameters() == 1)
  local function held(keep) -- bytes between forward and backward: of 64 rows of 4096 logits
    local loss, rows, classes = accel.nn.LinearCrossEntropyLoss(8, 4096, { keep = keep }), accel.randn(64, 8), accel.randint(0, 4096, { 64 })
    accel.collect()
    local before = accel.mem_stats().live_bytes
    local l <close> = loss(rows, classes)
    return accel.mem_stats().live_bytes - before, l
  end
  assert(held(true) >= 64 * 4096 * 4 and held(false) < 64 * 4096, "logits are kept")
  local l = accel.nn.LinearCrossEntropyLoss(3, 4, { device = "meta", reduction = "none" })(
    accel.zeros(2, 3, { device = "meta" }), accel.zeros(2, { dtype = "i64", device = "meta" }))
  assert(l.device == "meta" and l.shape[1] == 2)
end

-- ---- refusals ----
local function refused(pattern, ...)
  local ok, message = pcall(...)
  assert(not ok and tostring(message):find(pattern), tostring(message))
end
local f, x, w, t = accel.linear_cross_entropy, accel.ones(2, 3), accel.ones(4, 3), accel.tensor { 0, 1 }
refused("linear_cross_entropy: .*hold classes %(i64 or i32%), got f32 of shape %(2, 4%) %(for probabilities", f, x, w,
  accel.ones(2, 4))
refused("target has to hold classes %(i64 or i32%), not bool", f, x, w, t:gt(0))
refused("linear_weight %(classes, features%), got shapes %(2, 3%) and %(4, 2, 3%)", f, x, accel.ones(4, 2, 3), t)
refused("%(2, 3%) and %(4, 5%) cannot be multiplied: 3 and 5", f, x, accel.ones(4, 5), t)
refused("target of shape %(3%) does not fit input of shape %(2, 3%)", f, x, w, accel.tensor { 0, 1, 2 })
refused("target of shape %(2, 1%) does not fit", f, x, w, t:view(2, 1))
refused("needs a linear_bias of shape %(4%), got %(3%)", f, x, w, t, accel.ones(3))
refused("weight of shape %(3%) does not fit 4 classes", f, x, w, t, { weight = accel.ones(3) })
refused("weight must be floating point, not i64", f, x, w, t, { weight = accel.ones(4, { dtype = "i64" }) })
refused("label_smoothing 1.5 is not between 0 and 1", f, x, w, t, { label_smoothing = 1.5 })
refused("target 4 at position 2 is not one of the 4 classes %(0 to 3; ignore_index is %-100%)", f, x, w,
  accel.tensor { 0, 4 })
refused("input must be floating point, not i64", f, x:to "i64", w, t)
refused("input is .*f32.* but linear_weight is .*bf16.*; cast one of them", f, x, w:to "bf16", t)
refused("did you mean 'linear_bias'", f, x, w, t, { linear_bais = accel.ones(4) })
refused("'reduction' to 'linear_cross_entropy'", f, x, w, t, { reduction = "avg" })
accel.autocast({ device = "cpu", dtype = "bf16" }, function()
  refused("input is .*f64.* but linear_weight is", f, x:to "f64", w, t)
end)
