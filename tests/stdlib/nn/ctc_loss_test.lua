-- ctc_loss against its definition: the probability of a target is the sum over all paths of classes that become the target when repeats and
-- then blanks are taken out. All paths are counted, for random inputs; gradients are compared with finite differences.
--   accel-run tests/stdlib/nn/ctc_loss_test.lua [SEED]
local accel = require "accel"
local F = accel.nn.functional

local seed = tonumber(arg[1] or os.getenv "ACCEL_TEST_SEED") or 1
print(("seed %d"):format(seed))
math.randomseed(seed)
accel.manual_seed(seed)

--- -log of the sum over all paths of T classes; p[t][c + 1] are log probabilities.
local function by_definition(p, T, C, blank, target)
  local total, path = 0.0, {}
  local function walk(t, log)
    if t > T then
      local out, last = {}, nil
      for _, c in ipairs(path) do
        if c ~= last and c ~= blank then out[#out + 1] = c end
        last = c
      end
      if table.concat(out, ",") == table.concat(target, ",") then total = total + math.exp(log) end
      return
    end
    for c = 0, C - 1 do
      path[t] = c
      walk(t + 1, log + p[t][c + 1])
    end
    path[t] = nil
  end
  walk(1, 0.0)
  return -math.log(total)
end

for trial = 1, 12 do
  local C, T, N, blank = math.random(2, 4), math.random(1, 6), 3, 0
  blank = math.random(0, C - 1)
  local classes = {}
  for c = 0, C - 1 do
    if c ~= blank then classes[#classes + 1] = c end
  end
  local S, rows, inputs, lengths = 3, {}, {}, {}
  for b = 1, N do
    rows[b], inputs[b], lengths[b] = {}, math.random(1, T), math.random(0, S)
    for s = 1, S do rows[b][s] = classes[math.random(#classes)] end
  end
  local x = accel.randn(T, N, C, { dtype = "f64" })
  local log_probs = x:log_softmax(3)
  local got = F.ctc_loss(log_probs, accel.tensor(rows, { dtype = "i64" }), inputs, lengths, { blank = blank, reduction = "none" }):tolist()
  local flat = {}
  local sum, mean = 0.0, 0.0
  for b = 1, N do
    local target, p = table.move(rows[b], 1, lengths[b], 1, {}), {}
    for _, class in ipairs(target) do flat[#flat + 1] = class end
    for t = 1, inputs[b] do p[t] = log_probs[t][b]:tolist() end
    local want = by_definition(p, inputs[b], C, blank, target)
    assert(got[b] == want or math.abs(got[b] - want) < 1e-9 * math.max(1, math.abs(want)),
      ("trial %d, row %d: %.12g, not %.12g"):format(trial, b, got[b], want))
    sum, mean = sum + want, mean + want / math.max(lengths[b], 1) / N
  end
  if sum < math.huge then
    local opts = { blank = blank, reduction = "sum" }
    assert(math.abs(F.ctc_loss(log_probs, accel.tensor(flat, { dtype = "i64" }), inputs, lengths,
      opts):item() - sum) < 1e-9 * math.max(1, sum),
      "targets one after the other")
    opts.reduction = "mean"
    assert(math.abs(F.ctc_loss(log_probs, accel.tensor(rows, { dtype = "i64" }), inputs, lengths,
      opts):item() - mean) < 1e-9 * math.max(1, mean))
    accel.autograd.gradcheck(function(v)
      return F.ctc_loss(v:log_softmax(3), accel.tensor(rows, { dtype = "i64" }), inputs, lengths, opts)
    end, { x:detach():requires_grad_(true) })
  end
end

-- a target that does not fit: infinite, or with zero_infinity nothing and no gradient
local x = accel.zeros({ 2, 1, 3 }, { dtype = "f64", requires_grad = true })
local long = accel.tensor { { 1, 1 } }
assert(F.ctc_loss(x:log_softmax(3), long, { 2 }, { 2 }):item() == math.huge)
local none = F.ctc_loss(x:log_softmax(3), long, { 2 }, { 2 }, { zero_infinity = true })
none:backward()
assert(none:item() == 0 and x.grad:abs():sum():item() == 0)

local function fails(pattern, ...)
  local ok, err = pcall(F.ctc_loss, ...)
  assert(not ok and tostring(err):find(pattern), tostring(err))
end
local lp = accel.zeros(3, 1, 4):log_softmax(3)
fails("blank 4 is not one of the 4 classes", lp, long, { 3 }, { 2 }, { blank = 4 })
fails("input_lengths%[1%] must be an integer in 0 .. 3, got 4", lp, long, { 4 }, { 2 })
fails("must be a class in 0 .. 3 other than blank 1", lp, long, { 3 }, { 2 }, { blank = 1 })
fails("reduction", lp, long, { 3 }, { 2 }, { reduction = "middle" })
assert(accel.nn.CTCLoss { blank = 0, reduction = "sum" } (lp, long, { 3 }, { 2 }):item() > 0)
