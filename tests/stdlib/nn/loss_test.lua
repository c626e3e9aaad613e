--- Loss modules against torch.nn's values (literals), every reduction; options that are refused; what of them is
--- in the state_dict and moves with the module.
local accel = require "accel"
local nn = accel.nn

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

--- want: numbers in order, one for a result of rank 0.
local function close(got, want, what)
  local list = #got.shape == 0 and { got:item() } or got:reshape(-1):tolist()
  want = type(want) == "number" and { want } or want
  assert(#got.shape == 0 and #want == 1 or #list == #want, what .. ": shape")
  for i, v in ipairs(want) do
    local off = math.abs(list[i] - v)
    assert(off <= 2e-6 * math.max(1, math.abs(v)), ("%s[%d]: %.7g, not %.7g"):format(what, i, list[i], v))
  end
end

local x = accel.tensor { { 0.5, -1.0, 2.0 }, { 1.5, 0.25, -0.75 } }
local a = accel.tensor { { 0.2, -1.5, 3.0 }, { 0.7, 0.1, -2.0 } }
local classes = accel.tensor { 2, 0 }
local weight = accel.tensor { 0.5, 2.0, 1.0 }
local log_p = x:log_softmax(2)
local signs = accel.tensor { { 1.0, -1.0, 1.0 }, { -1.0, 1.0, -1.0 } }

--- values: reduction -> what torch gives; opts are those beside it.
local function check(name, inputs, opts, values)
  for reduction, want in pairs(values) do
    local o = { reduction = reduction }
    for key, value in pairs(opts) do o[key] = value end
    close(nn[name](o)(table.unpack(inputs)), want, name .. " " .. reduction)
    if reduction == "mean" then
      o.reduction = nil
      close(nn[name](o)(table.unpack(inputs)), want, name .. " by default")
    end
  end
end

do -- classes
  check("CrossEntropyLoss", { x, classes }, { weight = weight, label_smoothing = 0.1 },
    { mean = 0.544032, sum = 0.816048, none = { 0.470333, 0.345715 } })
  check("CrossEntropyLoss", { x, classes }, { ignore_index = 0 }, { mean = 0.241311 })
  check("NLLLoss", { log_p, classes }, { weight = weight },
    { mean = 0.271098, sum = 0.406648, none = { 0.241311, 0.165336 } })
  check("NLLLoss", { log_p, classes }, { ignore_index = 2 }, { mean = 0.330673 })
end

do -- distances
  check("MSELoss", { x, a }, {}, { mean = 0.594167, sum = 3.565, none = { 0.09, 0.25, 1, 0.64, 0.0225, 1.5625 } })
  check("L1Loss", { x, a }, {}, { mean = 0.6666667, sum = 4, none = { 0.3, 0.5, 1, 0.8, 0.15, 1.25 } })
  local same = { mean = 0.291875, sum = 1.75125, none = { 0.045, 0.125, 0.5, 0.32, 0.01125, 0.75 } }
  check("SmoothL1Loss", { x, a }, {}, same)
  check("HuberLoss", { x, a }, {}, same)
  check("SmoothL1Loss", { x, a }, { beta = 0.4 },
    { mean = 0.481771, sum = 2.890625, none = { 0.1125, 0.3, 0.8, 0.6, 0.028125, 1.05 } })
  check("HuberLoss", { x, a }, { delta = 0.6 },
    { mean = 0.245208, sum = 1.47125, none = { 0.045, 0.125, 0.42, 0.3, 0.01125, 0.57 } })
end

do -- probabilities
  local t, w = accel.tensor { { 1.0, 0.0, 0.25 }, { 0.0, 1.0, 1.0 } }, accel.tensor { 1.0, 2.0, 0.5 }
  check("BCELoss", { x:sigmoid(), t }, { weight = w },
    { mean = 0.889299, sum = 5.335792, none = { 0.474077, 0.626523, 0.813464, 1.701413, 1.151879, 0.568436 } })
  check("BCEWithLogitsLoss", { x, t }, { weight = w, pos_weight = accel.tensor { 3.0, 1.0, 2.0 } },
    { mean = 1.144708, sum = 6.868248, none = { 1.422231, 0.626523, 0.82933, 1.701413, 1.151879, 1.136871 } })
  local q = accel.tensor { { 0.2, 0.5, 0.3 }, { 0.1, 0.1, 0.8 } }
  check("KLDivLoss", { log_p, q }, {}, { mean = 0.43805, sum = 2.628299, batchmean = 1.31415,
    none = { 0.026375, 1.274082, -0.288798, -0.197191, -0.072191, 1.886023 } })
  check("KLDivLoss", { log_p, q:log() }, { log_target = true }, { batchmean = 1.31415 })
  local counts = accel.tensor { { 1.0, 0.0, 3.0 }, { 2.0, 5.0, 0.0 } }
  check("PoissonNLLLoss", { x, counts }, {}, { mean = 0.815623, sum = 4.893738,
    none = { 1.148721, 0.367879, 1.389056, 1.481689, 0.034025, 0.472367 } })
  check("PoissonNLLLoss", { x, counts }, { full = true },
    { none = { 1.148721, 0.367879, 3.153138, 2.133495, 4.804873, 0.472367 } })
  check("PoissonNLLLoss", { x:abs(), counts }, { log_input = false },
    { none = { 1.193147, 1, -0.079442, 0.68907, 7.181472, 0.75 } })
  local var = accel.tensor { { 0.5, 1.0, 2.0 }, { 4.0, 0.1, 1.0 } }
  check("GaussianNLLLoss", { x, a, var }, {}, { mean = 0.163434, sum = 0.980605,
    none = { -0.256574, 0.125, 0.596574, 0.773147, -1.038793, 0.78125 } })
  check("GaussianNLLLoss", { x, a, var }, { full = true }, { mean = 1.082373 })
end

do -- margins
  check("CosineEmbeddingLoss", { x, a, accel.tensor { 1.0, -1.0 } }, { margin = 0.2 },
    { mean = 0.26437, none = { 0.012841, 0.515899 } })
  check("MarginRankingLoss", { x, a, signs }, { margin = 0.3 },
    { mean = 0.816667, sum = 4.9, none = { 0, 0.8, 1.3, 1.1, 0.15, 1.55 } })
  check("HingeEmbeddingLoss", { x, signs }, { margin = 1.2 },
    { mean = 1.15, sum = 6.9, none = { 0.5, 2.2, 2, 0, 0.25, 1.95 } })
  local negative = accel.tensor { { 0.0, 1.0, 0.5 }, { 1.0, 0.0, -1.0 } }
  check("TripletMarginLoss", { x, a, negative }, { margin = 2 },
    { mean = 1.743672, sum = 3.487345, none = { 0.608074, 2.879271 } })
  check("TripletMarginLoss", { x, a, negative }, { margin = 5, p = 1, swap = true }, { none = { 2.8, 6.2 } })
end

local names = { "CrossEntropyLoss", "NLLLoss", "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "BCELoss",
  "BCEWithLogitsLoss", "KLDivLoss", "CosineEmbeddingLoss", "MarginRankingLoss", "TripletMarginLoss",
  "PoissonNLLLoss", "GaussianNLLLoss", "HingeEmbeddingLoss" }

do -- options
  for _, name in ipairs(names) do
    fails(name .. ": reduction must be one of mean, sum, none.*, got 'average'", nn[name], { reduction = "average" })
    fails(name .. ": unknown option 'reducton'; did you mean 'reduction'", nn[name], { reducton = "sum" })
    fails(name .. ": options must be a table, got number", nn[name], 3)
    assert(nn[name]():isinstance(nn.Module) and #nn[name]():parameters() == 0)
    assert(tostring(nn[name] { reduction = "sum" }) == name .. "(reduction='sum')")
    assert(tostring(nn[name]()) == name .. "()")
    assert(not nn[name] { reduction = "sum" }.options.weight and nn[name]().options.reduction == "mean",
      "instances do not share their options")
  end
  fails("'batchmean'", nn.MSELoss, { reduction = "batchmean" })
  fails("CrossEntropyLoss: weight must be a tensor, got table", nn.CrossEntropyLoss, { weight = { 1, 2 } })
  fails("BCEWithLogitsLoss: pos_weight must be a tensor, got number", nn.BCEWithLogitsLoss, { pos_weight = 2 })
  fails("option 'label_smoothing' must be a number, got string", nn.CrossEntropyLoss, { label_smoothing = "0.1" })
  fails("label_smoothing must be a number, got %-?nan", nn.CrossEntropyLoss, { label_smoothing = 0 / 0 })
  fails("option 'swap' must be a boolean", nn.TripletMarginLoss, { swap = 1 })
  fails("unknown option 'delta'", nn.SmoothL1Loss, { delta = 1 })
end

do -- weights are buffers: saved, loaded, moved; none of them learn
  local loss = nn.CrossEntropyLoss { weight = weight }
  local state = loss:state_dict()
  assert(state.weight:tolist()[2] == 2 and #loss:parameters() == 0 and next(nn.CrossEntropyLoss():state_dict()) == nil)
  local other = nn.CrossEntropyLoss { weight = accel.ones(3) }
  other:load_state_dict(state)
  close(other(x, classes), loss(x, classes):item(), "after loading")
  loss:to "f64"
  assert(loss.weight.dtype == "f64" and loss(x:to "f64", classes).dtype == "f64")
  local both = nn.BCEWithLogitsLoss { weight = accel.ones(3), pos_weight = accel.ones(3) }
  both = both:state_dict()
  assert(both.weight and both.pos_weight)
  local Net = nn.Module:extend "Net"
  function Net:init() self.loss = nn.BCELoss { weight = accel.ones(3) } end
  assert(Net():state_dict()["loss.weight"], "below its name in a model")
end

do -- gradients reach the inputs
  local input = x:clone():requires_grad_()
  nn.CrossEntropyLoss { weight = weight, label_smoothing = 0.1 }(input, classes):backward()
  local sum = input.grad:sum { dim = 2 }:abs():max():item()
  assert(sum < 1e-6 and input.grad:abs():max():item() > 0.01, "a softmax gradient sums to zero")
end
