--- Every optimizer against PyTorch 2.15 and schedulefree 1.4.1. Parameters start at cos(1.3 i + k) and get the
--- gradients sin(1.7 s + 0.9 i + 2.1 k) + 0.3 cos(s - i) in step s of 6 (element i of parameter k, both from 0);
--- parameter 1 misses steps 1 and 3 where `whole` is not set. The numbers are what those libraries gave in f64
--- (NAdam keeps its product of momenta in f32 there, as it does here): the first element and the last but one of
--- parameter 0, the last but one of parameter 1, the last of all, the sum of all.
local accel = require "accel"
local optim = accel.optim

local cases = {
  { "SGD", { lr = 0.1, momentum = 0.9, dampening = 0.3, weight_decay = 0.05 },
    { 0.6881121637352932, 0.9739774121426865, 0.461730056149253, -1.171084465924692, -1.738260226629158 } },
  { "SGD", { lr = 0.1, momentum = 0.9, nesterov = true, maximize = true },
    { 1.369461522985489, 0.6345167797688854, -0.0393524070233271, -0.6152534589152878, -0.6359410813322925 } },
  { "Adam", { lr = 0.05, weight_decay = 0.1 },
    { 0.8578670778596147, 0.8961428473598571, 0.2488112657994378, -1.083993465934243, -1.714034296252391 } },
  { "Adam", { lr = 0.05, amsgrad = true, maximize = true, betas = { 0.5, 0.7 } },
    { 1.092114545280475, 0.9142670072028227, 0.1465292003470118, -0.8978615052569818, -1.009997988805572 } },
  { "AdamW", { lr = 0.05, weight_decay = 0.1, amsgrad = true, betas = { 0.5, 0.7 } },
    { 0.8802534990648059, 0.874097775162095, 0.2221157456947793, -1.050798715909909, -1.639962165575557 } },
  { "Adagrad", { lr = 0.1, lr_decay = 0.1, weight_decay = 0.02, initial_accumulator_value = 0.3, eps = 1e-06 },
    { 0.9007894469501261, 0.9383483610881749, 0.2295368086545523, -1.078691671193673, -1.48459828969345 } },
  { "Adagrad", { lr = 0.1, maximize = true },
    { 1.157851688263533, 0.9275290641317687, 0.1437892171820751, -0.8329186775414609, -0.793092872028594 } },
  { "RMSprop", { lr = 0.05, alpha = 0.9, weight_decay = 0.05 },
    { 0.7318349273296436, 0.8618081971254954, 0.2461258726441385, -1.218624221121431, -2.2089003313763 } },
  { "RMSprop", { lr = 0.05, alpha = 0.9, momentum = 0.8, centered = true, maximize = true },
    { 1.867411967722012, 1.125055202418848, -0.1086092292995498, -0.1261424629803193, 2.192482008866985 } },
  { "Adamax", { lr = 0.05, betas = { 0.8, 0.95 }, weight_decay = 0.1 },
    { 0.8884402610910818, 0.8817693303929139, 0.2419133493024554, -1.067233790966519, -1.725833955332637 } },
  { "NAdam", { lr = 0.05, weight_decay = 0.1, momentum_decay = 0.01 },
    { 0.8912227694340235, 0.8860273398749469, 0.2099914528024589, -1.06333701284898, -1.644298460402132 } },
  { "NAdam", { lr = 0.05, weight_decay = 0.1, decoupled_weight_decay = true, maximize = true },
    { 1.061487545845907, 0.8850303819650553, 0.1576692542162608, -0.8698389064629181, -0.9998027261329853 } },
  { "RAdam", { lr = 0.05, betas = { 0.9, 0.9 }, weight_decay = 0.1 },
    { 0.9094087838289178, 0.9212323147568873, 0.263032931014096, -1.029509509046988, -1.424077082519863 } },
  { "RAdam", { lr = 0.05, betas = { 0.9, 0.9 }, weight_decay = 0.1, decoupled_weight_decay = true, maximize = true },
    { 1.03402496864295, 0.8432322272175048, 0.102944245306265, -0.8956882765172229, -1.198728835595971 } },
  { "Adadelta", { lr = 0.7, rho = 0.8, weight_decay = 0.1 },
    { 0.9961974484145576, 0.9071171334951326, 0.1866018363071272, -0.9921688759108229, -1.357560837471136 } },
  { "Rprop", { lr = 0.05, etas = { 0.4, 1.3 }, step_sizes = { 0.01, 0.08 } },
    { 0.9006000000000001, 0.8674467814501962, 0.2565123694225758, -1.089392496600445, -1.501388249446514 } },
  { "ASGD", { lr = 0.1, lambd = 0.05, alpha = 0.6, t0 = 3, weight_decay = 0.1 },
    { 0.8154532670714411, 0.9006119454852247, 0.203249063438996, -1.00408483145467, -1.340289640754165 } },
  { "Adafactor", { lr = 0.3, weight_decay = 0.1 },
    { 0.5511229897952198, 0.9852913267194275, 0.2181600314537406, -1.192684298487281, -1.532803580138732 } },
  { "Adafactor", { lr = 0.3, beta2_decay = -0.5, eps = { 0.01, 0.5 }, d = 1.5, maximize = true },
    { 1.286567132912054, 0.7198115823986631, 0.2048240672047741, -0.4340801985192063, -0.4130328653563871 } },
  { "AdamWScheduleFree", { lr = 0.05, weight_decay = 0.1, warmup_steps = 3, r = 0.5, betas = { 0.8, 0.9 } },
    { 0.9725304854052919, 0.8920902860391099, 0.1633923273582865, -0.9831784184984145, -1.435459609329835 } },
  { "SGDScheduleFree", { lr = 0.2, weight_decay = 0.1, warmup_steps = 3, weight_lr_power = 1.5 },
    { 0.9325960354405414, 0.8959842043538276, 0.1156909328361768, -0.9370191856280631, -1.415930120375498 } },
}
--- In f32, with the iteration in bf16: parameters of shapes (6, 3), (2, 7), (4, 4).
local matrices = {
  { "Muon", { lr = 0.02, adjust_lr_fn = "original", nesterov = false },
    { 0.9668838977813721, -0.3647676706314087, -0.6480696201324463, -0.857405960559845, -1.588457375764847 } },
  { "Muon", { lr = 0.02, adjust_lr_fn = "match_rms_adamw", nesterov = true },
    { 0.9809613227844238, -0.3709998726844788, -0.6306529641151428, -0.8663904070854187, -1.547706432640553 } },
  { "Muon", { lr = 0.02, adjust_lr_fn = "spectral_unclamped", nesterov = true },
    { 0.9675679802894592, -0.3801155388355255, -0.6307579278945923, -0.8590812087059021, -1.592818722128868 } },
}
local STEPS = 6

local function filled(shape, dtype, value)
  local n, v = 1, {}
  for _, extent in ipairs(shape) do n = n * extent end
  for i = 0, n - 1 do v[i + 1] = value(i) end
  local t = accel.tensor(v, { dtype = "f64" })
  return (#shape == 0 and t:select(1, 1):clone() or t:view(shape)):to(dtype):clone()
end

local function run(class, options, shapes, dtype, whole)
  local params = {}
  for k, shape in ipairs(shapes) do
    params[k] = filled(shape, dtype, function(i) return math.cos(1.3 * i + k - 1) end)
    params[k].requires_grad = true
  end
  local o = optim[class](params, options)
  if o.train then o:train() end
  for s = 0, STEPS - 1 do
    for k, shape in ipairs(shapes) do
      local missing = not whole and k == 2 and (s == 1 or s == 3)
      params[k].grad = not missing and filled(shape, dtype, function(i)
        return math.sin(1.7 * s + 0.9 * i + 2.1 * (k - 1)) + 0.3 * math.cos(s - i)
      end) or nil
    end
    o:step()
  end
  if o.eval then o:eval() end
  return params
end

local function compare(case, shapes, dtype, whole, bar)
  local params, sum = run(case[1], case[2], shapes, dtype, whole), 0.0
  for _, p in ipairs(params) do sum = sum + p:detach():to("f64"):sum():item() end
  local function at(p, i) return p:detach():reshape(-1)[i]:item() end
  local got = {
    at(params[1], 1), at(params[1], -2), at(params[2], -2), at(params[#params], -1), sum,
  }
  for i, want in ipairs(case[3]) do
    assert(math.abs(got[i] - want) <= bar * math.max(1, math.abs(want)),
      ("%s %s: number %d is %.17g, wanted %.17g"):format(case[1], dtype, i, got[i], want))
  end
end

local shapes = { { 3, 4 }, { 5 }, { 2, 2, 3 }, {} }
for _, case in ipairs(cases) do
  local whole = case[1]:find "Free" ~= nil
  compare(case, shapes, "f64", whole, 1e-13)
  compare(case, shapes, "f32", whole, 3e-6)
  compare(case, shapes, "bf16", whole, 0.15)
end
for _, case in ipairs(matrices) do compare(case, { { 6, 3 }, { 2, 7 }, { 4, 4 } }, "f32", true, 2e-3) end

do -- Lion by its formula
  local p, m = { 0.5, -1.0, 2.0 }, { 0.0, 0.0, 0.0 }
  local t = accel.tensor(p, { dtype = "f64" })
  local o = optim.Lion({ t }, { lr = 0.01, betas = { 0.8, 0.9 }, weight_decay = 0.1 })
  for s = 1, 5 do
    local g = { math.sin(s), math.cos(2 * s), math.sin(3 * s + 1) }
    t.grad = accel.tensor(g, { dtype = "f64" })
    o:step()
    for i = 1, 3 do
      local u = 0.8 * m[i] + 0.2 * g[i]
      p[i] = p[i] * (1 - 0.01 * 0.1) - 0.01 * (u > 0 and 1 or -1)
      m[i] = 0.9 * m[i] + 0.1 * g[i]
      assert(math.abs(t[i]:item() - p[i]) < 1e-14)
    end
  end
end

-- Adan by its formula: the two ways of decay, uphill, and a step that misses its gradient, after which the difference is that from
-- the gradient before.
for _, o in ipairs { {}, { weight_decay = 0.2 }, { weight_decay = 0.2, no_prox = true }, { maximize = true } } do
  local b1, b2, b3, lr, decay = 0.8, 0.7, 0.95, 0.03, o.weight_decay or 0
  o.lr, o.betas, o.eps = lr, { b1, b2, b3 }, 1e-3
  local p, m, v, n, before = { 0.5, -1.0, 2.0 }, { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 }, nil
  local t, step = accel.tensor(p, { dtype = "f64" }), 0
  local adan = optim.Adan({ t }, o)
  for s = 1, 6 do
    local g = s ~= 3 and { math.sin(s), math.cos(2 * s), math.sin(3 * s + 1) } or nil
    t.grad = g and accel.tensor(g, { dtype = "f64" })
    adan:step()
    step = step + (g and 1 or 0)
    for i = 1, g and 3 or 0 do
      if o.maximize then g[i] = -g[i] end
      local d = before and g[i] - before[i] or 0
      m[i] = b1 * m[i] + (1 - b1) * g[i]
      v[i] = b2 * v[i] + (1 - b2) * d
      n[i] = b3 * n[i] + (1 - b3) * (g[i] + b2 * d) ^ 2
      local u = (m[i] / (1 - b1 ^ step) + b2 * v[i] / (1 - b2 ^ step)) / (math.sqrt(n[i] / (1 - b3 ^ step)) + 1e-3)
      if o.no_prox then p[i] = p[i] * (1 - lr * decay) - lr * u
      else p[i] = (p[i] - lr * u) / (1 + lr * decay) end
      assert(math.abs(t[i]:item() - p[i]) < 1e-14, ("step %d: %.17g, not %.17g"):format(s, t[i]:item(), p[i]))
    end
    before = g or before
  end
end

do -- Newton-Schulz: singular values near one, vectors kept; the tall one as the wide one
  accel.manual_seed(3)
  local x = accel.randn(12, 30)
  for _, tall in ipairs { false, true } do
    local y = (tall and x:t() or x):newton_schulz { dtype = "f64" }
    if tall then y = y:t() end
    local gram = y:matmul(y:t()) -- eigenvalues are squares of singular values
    local v = accel.ones(12, { dtype = "f64" })
    for _ = 1, 200 do
      v = gram:matmul(v)
      v = v / (v * v):sum():sqrt()
    end
    local top = (gram:matmul(v) * v):sum():sqrt():item()
    assert(top > 0.7 and top < 1.3, "largest singular value " .. top)
    local trace = 0.0
    for i = 1, 12 do trace = trace + gram[i][i]:item() end
    assert(trace / 12 > 0.4 and trace / 12 < 1.5)
    local a = y:matmul(x:to("f64"):t()) -- U S V' times V D U' is symmetric
    assert((a - a:t()):abs():max():item() < 1e-9 * a:abs():max():item())
  end
  local ok, why = pcall(accel.newton_schulz, accel.ones(3, 2), { steps = 1 << 40 })
  assert(not ok and tostring(why):find("steps in 0 .. 99", 1, true), tostring(why))
  local half = accel.ones(3, 2):newton_schulz()
  assert(half.dtype == "bf16" and #half.shape == 2)
end

do -- updates of a Muon matrix have the size that adjust_lr_fn says; weight decay by the unadjusted rate
  local sizes = { original = math.sqrt(4), match_rms_adamw = 0.2 * math.sqrt(8), spectral_unclamped = math.sqrt(4) }
  for name, scale in pairs(sizes) do
    local p, q = accel.zeros(8, 2), accel.ones(8, 2)
    p.grad = accel.ones(8, 2)
    p.grad[1][1] = 3
    q.grad = p.grad:clone()
    optim.Muon({ p }, { lr = 0.1, adjust_lr_fn = name }):step()
    optim.Muon({ q }, { lr = 0.1, adjust_lr_fn = name, weight_decay = 0.5 }):step()
    local most = p:abs():max():item()
    assert(most <= 0.1 * scale * 1.3 and most > 0.05 * scale * 0.5, name .. " " .. most)
    assert((q - p - 0.95):abs():max():item() < 1e-6)
  end
end
