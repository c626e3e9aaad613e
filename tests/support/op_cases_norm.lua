-- Cases of the norms over channels and of unit vectors: see op_cases.lua.
local c = require "op_cases"
local real, range, case, args, big = c.real, c.range, c.case, c.args, c.big

local L = {}

-- x, then weight and bias where there are any
local function grouped(groups, options)
  return { loss = 2, call = function(f, x, w, b)
    local o = { weight = w, bias = b }
    for k, v in pairs(options or {}) do o[k] = v end
    return f(x, groups, o)
  end }
end
L.group_norm = {
  case("plain", { real(2, 4, 3) }, grouped(2)),
  case("weight and bias", { real(2, 4, 3), real(4), real(4) }, grouped(2)),
  case("weight", { real(3, 2, 2, 2), real(2) }, grouped(1)),
  case("a channel each", { real(2, 3, 2), real(3), real(3) }, grouped(3, { eps = 0.1 })),
  case("vectors", { real(3, 6), real(6), real(6) }, grouped(2)),
  case("empty", { real(0, 4, 3), real(4), real(4) }, grouped(2)),
  case("no places", { real(2, 4, 0), real(4), real(4) }, grouped(2)),
  big(grouped(4), real(6, 8, 37, 41), real(8), real(8)), -- runs beyond a block
  big(grouped(8), real(20, 64, 5, 5), real(64), real(64)), -- several runs per block
  big(grouped(1), real(2, 48, 30, 30), real(48), real(48)), -- few groups: cut into pieces
  big(grouped(4), real(300, 128), real(128), real(128)),
}

-- x, then weight and bias
local function batch(options)
  return { loss = 2, call = function(f, x, w, b)
    local o = { weight = w, bias = b }
    for k, v in pairs(options) do o[k] = v end
    return f(x, o)
  end }
end
-- x, running mean, running variance, then weight and bias; with `stats` the updated statistics are results
local function running(options, stats)
  return { loss = 2, grad = not stats, call = function(f, x, m, v, w, b)
    local o = { weight = w, bias = b }
    for k, value in pairs(options) do o[k] = value end
    m, v = m:clone(), v:clone()
    local y = f(x, m, v, o)
    if stats then return y, m, v end
    return y
  end }
end
local train = { training = true }
local function mean(n) return c.constant(-1, 1, n) end
local function var(n) return c.constant(0.4, 2, n) end
L.batch_norm = {
  case("training", { real(4, 3), real(3), real(3) }, batch(train)),
  case("training, plain", { real(3, 2, 2) }, batch(train)),
  case("training, weight", { real(2, 2, 2, 2), real(2) }, batch { training = true, eps = 0.1 }),
  case("training, long runs", { real(2, 2, 5, 6), real(2), real(2) }, batch(train)),
  case("statistics", { real(5, 3), mean(3), var(3), real(3), real(3) }, running(train, true)),
  case("statistics, momentum", { real(2, 2, 30), mean(2), var(2) }, running({ training = true, momentum = 0.7 }, true)),
  case("running, training", { real(4, 3), mean(3), var(3), real(3), real(3) }, running(train)),
  case("evaluation", { real(4, 3), mean(3), var(3), real(3), real(3) }, running {}),
  case("evaluation, plain", { real(2, 2, 5, 6), mean(2), var(2) }, running { eps = 0.01 }),
  case("evaluation, bias", { real(2, 3, 2), mean(3), var(3), c.constant(1, 2, 3), real(3) }, running {}),
  case("evaluation of one", { real(1, 3), mean(3), var(3), real(3), real(3) }, running({}, true)),
  case("empty", { real(0, 3), mean(3), var(3), real(3), real(3) }, running(train, true)),
  case("empty, evaluation", { real(0, 3, 2), mean(3), var(3), real(3), real(3) }, running {}),
  big(running(train), real(6, 8, 37, 41), mean(8), var(8), real(8), real(8)),
  big(running(train), real(40, 33, 6, 6), mean(33), var(33), real(33), real(33)),
  big(running(train), real(500, 300), mean(300), var(300), real(300), real(300)),
  big(running(train), real(300, 70, 3), mean(70), var(70), real(70), real(70)),
  big(running {}, real(300, 70, 3), mean(70), var(70), real(70), real(70)),
  big(running {}, real(20, 16, 20, 20), mean(16), var(16), real(16), real(16)),
}
L.instance_norm = {
  case("plain", { real(2, 3, 4) }, batch {}),
  case("weight and bias", { real(2, 3, 2, 2), real(3), real(3) }, batch {}),
  case("statistics", { real(2, 3, 4), mean(3), var(3), real(3), real(3) }, running({ momentum = 0.3 }, true)),
  case("evaluation", { real(2, 3, 4), mean(3), var(3), real(3), real(3) }, running { use_input_stats = false }),
  case("empty", { real(0, 3, 4), real(3), real(3) }, batch {}),
  big(batch {}, real(8, 9, 31, 33), real(9), real(9)),
}

L.normalize = {
  case("second dim", { real(3, 4) }),
  case("first dim", { real(3, 4) }, args { dim = 1 }),
  case("p = 1", { real(3, 4) }, args { p = 1, dim = -1 }),
  case("p = 3", { range(0.2, 2, 2, 3, 2) }, args { p = 3 }),
  case("two dims", { real(2, 3, 2) }, args { dim = { 1, 3 } }),
  case("below eps", { real(2, 3) }, args { eps = 10 }),
  case("empty", { real(0, 3) }),
  case("rank 0", { range(1, 2) }, { args = { { dim = 1 } }, floor = 1 }),
  big(args { dim = -1 }, real(200, 330)),
}
L.cosine_similarity = {
  case("second dim", { real(3, 4), real(3, 4) }),
  case("first dim", { real(3, 4), real(3, 4) }, args { dim = 1 }),
  case("broadcast", { real(2, 1, 4), real(3, 4) }, args { dim = -1 }),
  case("vectors", { real(5), real(5) }, args { dim = 1 }),
  case("empty", { real(0, 3), real(0, 3) }),
  big(args { dim = -1 }, real(200, 330), real(200, 330)),
}
for _, name in ipairs { "normalize", "cosine_similarity" } do
  for _, k in ipairs(L[name]) do k.loss, k.ints = 4, false end
end

return L
