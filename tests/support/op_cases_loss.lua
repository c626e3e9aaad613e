-- Cases of losses of pairs (see op_cases.lua). Inputs and targets lie apart, so that differences do not cross a kink.
local c = require "op_cases"
local real, range, constant, index = c.real, c.range, c.constant, c.index
local case, big = c.case, c.big

local L = {}

-- x, t: makers of input and target. more: options of every call.
local function pairs_of(x, t, options, words)
  local function with(reduction)
    local o = { reduction = reduction }
    for k, v in pairs(options or {}) do o[k] = v end
    return { args = { o }, ints = false, loss = 4 }
  end
  local list = {
    case("mean", { x(3, 4), t(3, 4) }, with "mean"),
    case("sum", { x(2, 3, 2), t(2, 3, 2) }, with "sum"),
    case("none", { x(3, 4), t(3, 4) }, with "none"),
    case("rank 0", { x(), t() }, with "mean"),
    case("empty sum", { x(0, 3), t(0, 3) }, with "sum"),
    case("empty none", { x(0, 3), t(0, 3) }, with "none"),
    big(with "mean", x(200, 330), t(200, 330)),
    big(with "none", x(200, 330), t(200, 330)),
  }
  for _, word in ipairs(words or {}) do list[#list + 1] = case(word, { x(3, 4), t(3, 4) }, with(word)) end
  return list
end
local function low(...) return range(-2, -0.1, ...) end
local function high(...) return range(0.2, 2, ...) end
local function inside(...) return range(0.1, 0.9, ...) end

L.mse_loss = pairs_of(real, real)
L.l1_loss = pairs_of(low, high)
L.smooth_l1_loss = pairs_of(low, high, { beta = 10.0 })
L.smooth_l1_loss[#L.smooth_l1_loss + 1] = case("far", { low(3, 4), high(3, 4) }, { args = { { beta = 0.2 } }, ints = false, loss = 4 })
L.huber_loss = pairs_of(low, high, { delta = 10.0 })
L.huber_loss[#L.huber_loss + 1] = case("far", { low(3, 4), high(3, 4) }, { args = { { delta = 0.2 } }, ints = false, loss = 4 })
L.kl_div = pairs_of(low, inside, {}, { "batchmean" })
L.kl_div[#L.kl_div + 1] = case("log", { low(3, 4), low(3, 4) }, { args = { { log_target = true } }, ints = false, loss = 4 })
L.binary_cross_entropy = pairs_of(inside, inside)
L.binary_cross_entropy[#L.binary_cross_entropy + 1] = case("weight", { inside(3, 4), inside(3, 4), high(4) }, {
  call = function(f, x, t, w) return f(x, t, { weight = w }) end, ints = false, loss = 4,
})
L.binary_cross_entropy_with_logits = pairs_of(real, inside)
table.insert(L.binary_cross_entropy_with_logits, case("weights", { real(3, 4), inside(3, 4), high(4), high(3, 1) }, {
  call = function(f, x, t, w, p) return f(x, t, { weight = w, pos_weight = p, reduction = "sum" }) end, ints = false, loss = 8,
}))
L.poisson_nll_loss = pairs_of(real, high)
for _, k in ipairs(L.poisson_nll_loss) do k.roundings = 4 end
table.insert(L.poisson_nll_loss, case("full", { high(3, 4), constant(1.5, 4, 3, 4) }, {
  args = { { full = true, log_input = false } }, ints = false, loss = 8, roundings = 8,
}))
L.gaussian_nll_loss = {
  case("rank 0", { real(), real(), high() }, { ints = false, loss = 4, roundings = 4 }),
  case("empty", { real(0, 3), real(0, 3), high(1, 3) }, { args = { { reduction = "sum" } }, ints = false, loss = 4 }),
  case("a variance for each last dim", { real(3, 3), real(3, 3), high(3) }, { ints = false, loss = 4 }),
  case("mean", { real(3, 4), real(3, 4), high(3, 4) }, { ints = false, loss = 4 }),
  case("row, full", { real(3, 4), real(3, 4), high(3, 1) }, {
    args = { { full = true, reduction = "none" } }, ints = false, loss = 4, roundings = 4,
  }),
}

local function sign(i) -- a target of 1 and -1
  return function(f, ...)
    local t = { ... }
    t[i] = t[i]:to(t[1].dtype) * 2 - 1
    return f(table.unpack(t))
  end
end
L.hinge_embedding_loss = {
  case("mean", { high(3, 4), index(2, 3, 4) }, { call = sign(2), ints = false, loss = 4 }),
  case("rank 0", { high(), index(2) }, { call = sign(2), ints = false, loss = 4 }),
  big({ call = sign(2), ints = false, loss = 4 }, high(200, 330), index(2, 200, 330)),
}
L.margin_ranking_loss = {
  case("mean", { low(5), high(5), index(2, 5) }, { call = sign(3), ints = false, loss = 4, roundings = 4, floor = 2 }),
  case("rank 0", { low(), high(), index(2) }, { call = sign(3), ints = false, loss = 4, roundings = 4, floor = 2 }),
}
L.cosine_embedding_loss = {
  case("rows", { real(4, 3), real(4, 3), index(2, 4) }, { call = sign(3), ints = false, loss = 8 }),
  case("one", { real(3), real(3), index(2) }, { call = sign(3), ints = false, loss = 8 }),
}
L.soft_margin_loss = {
  case("mean", { real(3, 4), real(3, 4) }, { ints = false, loss = 4 }),
  case("rank 0, none", { real(), real() }, { args = { { reduction = "none" } }, ints = false, loss = 4 }),
}
L.multi_margin_loss = {
  case("mean", { real(3, 4), index(4, 3) }, { ints = false, loss = 4, roundings = 4 }),
  case("squared, weighted", { real(3, 4), index(4, 3), real(4) }, {
    call = function(f, x, t, w) return f(x, t, { p = 2, margin = 1.5, weight = w, reduction = "none" }) end, ints = false, loss = 8, roundings = 4,
  }),
  case("one row", { real(4), index(4) }, { args = { { reduction = "sum" } }, ints = false, loss = 4, roundings = 4 }),
}
L.multilabel_margin_loss = {
  case("mean", { real(3, 4), index(4, 3, 4) }, { ints = false, loss = 8, roundings = 4 }),
  case("up to -1", { real(3, 4), index(4, 3, 4) }, {
    call = function(f, x, t) return f(x, t - 1, { reduction = "none" }) end, ints = false, loss = 8, roundings = 4,
  }),
  case("one row", { real(4), index(4, 4) }, { ints = false, loss = 8, roundings = 4 }),
}
L.multilabel_soft_margin_loss = {
  case("mean", { real(3, 4), real(3, 4) }, { ints = false, loss = 4, roundings = 4 }),
  case("weighted, none", { real(3, 4), real(3, 4), real(4) }, {
    call = function(f, x, t, w) return f(x, t, { weight = w, reduction = "none" }) end, ints = false, loss = 4, roundings = 4,
  }),
}
-- No second derivative, as in PyTorch.
L.ctc_loss = {
  case("rows", { real(5, 3, 4), index(4, 3, 2), index(6, 3), index(3, 3) }, {
    args = { { blank = 3, reduction = "none", zero_infinity = true } }, ints = false, loss = 8, once = true, wide_result = true,
  }),
  case("mean", { real(9, 2, 4), index(3, 2, 2), index(3, 2), index(3, 2) }, {
    call = function(f, x, t, i, l) return f(x, t, i + 7, l, 3) end, ints = false, loss = 8, once = true, wide_result = true,
  }),
}
L.triplet_margin_loss = {
  case("mean", { real(4, 3), real(4, 3), real(4, 3) }, { args = { { margin = 9.0 } }, ints = false, loss = 8 }),
  case("swap", { real(4, 3), real(4, 3), real(4, 3) }, {
    args = { { margin = 9.0, swap = true, reduction = "none" } }, ints = false, loss = 8,
  }),
}

local function entropy(options) return { args = options and { options } or {}, ints = false, loss = 4 } end
L.nll_loss = {
  case("mean", { low(4, 3), index(3, 4) }, entropy()),
  case("none, ignore", { low(4, 3), index(3, 4) }, entropy { reduction = "none", ignore_index = 1 }),
  case("weight", { low(4, 3), index(3, 4), constant(0.5, 1.5, 3) }, {
    call = function(f, x, t, w) return f(x, t, { weight = w }) end, ints = false, loss = 4,
  }),
  case("spatial", { low(2, 3, 2), index(3, 2, 2) }, entropy { reduction = "sum" }),
  case("one", { low(3), index(3) }, entropy()),
  case("empty sum", { low(0, 3), index(3, 0) }, entropy { reduction = "sum" }),
}

-- input, linear_weight, target, then linear_bias and class weights
local function head(o)
  return { loss = 4, call = function(f, x, w, t, b, cw)
    local all = { linear_bias = b, weight = cw }
    for k, v in pairs(o or {}) do all[k] = v end
    return f(x, w, t, all)
  end }
end
L.linear_cross_entropy = {
  case("mean", { real(4, 3), real(5, 3), index(5, 4) }, head()),
  case("bias", { real(4, 3), real(5, 3), index(5, 4), real(5) }, head()),
  case("sum", { real(4, 3), real(5, 3), index(5, 4) }, head { reduction = "sum" }),
  case("none", { real(2, 3, 2), real(5, 2), index(5, 2, 3) }, head { reduction = "none" }),
  case("ignored", { real(6, 2), real(3, 2), index(3, 6), real(3) }, head { ignore_index = 1 }),
  case("weights, smoothing", { real(4, 3), real(5, 3), index(5, 4), real(5), constant(0.5, 1.5, 5) },
    head { label_smoothing = 0.2 }),
  case("keep", { real(4, 3), real(5, 3), index(5, 4), real(5) }, head { keep = true }),
  case("one", { real(3), real(4, 3), index(4) }, head()),
  case("no features", { real(2, 0), real(4, 0), index(4, 2), real(4) }, head()),
  case("empty sum", { real(0, 3), real(4, 3), index(4, 0), real(4) }, head { reduction = "sum" }),
  big(head(), real(300, 24), real(2500, 24), index(2500, 300), real(2500)),
}

return L
