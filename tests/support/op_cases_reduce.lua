-- Cases of reductions and scans (see op_cases.lua). Lists are short where every element is varied; `big` ones reach
-- the chunks, tiles and segments of the kernels.
local c = require "op_cases"
local real, range = c.real, c.range
local case, args, big = c.case, c.args, c.big

local L = {}

-- With the arguments of a call in any form: a makes them from dim and keepdim.
local function reductions(a, input, more)
  local function with(dim, keep, extra)
    local t = { args = { a(dim, keep) } }
    for k, v in pairs(more or {}) do t[k] = v end
    for k, v in pairs(extra or {}) do t[k] = v end
    return t
  end
  return {
    case("last", { input(2, 3, 4) }, with(-1)),
    case("first", { input(3, 4) }, with(1)),
    case("middle, kept", { input(2, 3, 2) }, with(2, true)),
    case("two dims", { input(2, 3, 2) }, with { 1, 3 }),
    case("all", { input(3, 4) }, with { 1, 2 }),
    case("one row", { input(7) }, with(1)),
    case("rank 0", { input() }, with(1)),
    case("empty outside", { input(0, 3) }, with(2)),
    case("columns", { input(5, 9) }, with(1, true)),
    big(with(1), input(200, 330)),
    big(with(2), input(200, 330)),
    big(with({ 1, 2 }), input(200, 330)),
    big(with(2), input(3, 50, 20)),
  }
end
local function named(dim, keep) return { dim = dim, keepdim = keep or false } end

-- Factors near 1, so that long products stay in range of f16.
L.prod = reductions(named, function(...) return range(0.9, 1.1, ...) end, { floor = 1 })
for _, k in ipairs {
  case("no dim", { real(3, 3) }),
  case("empty inside", { real(3, 0) }, args(2)),
  case("empty inside, two dims", { real(2, 0, 3) }, args { dim = { 2, 3 } }),
  case("integers", { real(2, 3) }, args(2)),
  case("dtype", { real(3, 4) }, { args = { 1, { dtype = "f64" } } }),
} do table.insert(L.prod, k) end
for _, k in ipairs(L.prod) do
  if k.label ~= "integers" and k.label ~= "no dim" and not k.label:match("^empty") then k.ints = false end
end

L.logsumexp = reductions(named, real, { loss = 2 }) -- the gradient starts from the rounded result
table.insert(L.logsumexp, case("empty inside", { real(3, 0) }, { args = { 2 }, grad = false }))

for _, name in ipairs { "var", "std" } do
  L[name] = reductions(named, real, { loss = 2 })
  table.insert(L[name], case("no dim", { real(3, 4) }, { loss = 2 }))
  table.insert(L[name], case("no correction", { real(3, 4) }, { args = { 2, { correction = 0 } }, loss = 2 }))
  table.insert(L[name], case("fraction", { real(3, 5) }, { args = { { correction = 1.5 } }, loss = 2 }))
  for _, k in ipairs(L[name]) do
    if k.label == "rank 0" then k.args = { { correction = 0 } } end
  end
end
for _, k in ipairs(L.std) do
  if k.label == "rank 0" then k.grad = false end -- the root of 0
end

L.norm = {}
for _, p in ipairs { 2, 1, 3, 1.5, 0.5, 0, -1, -2.5, math.huge, -math.huge } do
  local function powered(dim, keep) return p, { dim = dim, keepdim = keep or false } end
  for _, k in ipairs(reductions(powered, real, { loss = 2 })) do
    local few = p == 2 or k.label == "last" or k.label == "columns" or k.label == "two dims" or k.big
    k.label = ("p = %g, %s"):format(p, k.label)
    if few then table.insert(L.norm, k) end
  end
end
table.insert(L.norm, case("no arguments", { real(3, 4) }, { loss = 2 }))
table.insert(L.norm, case("empty inside", { real(3, 0) }, args { dim = 2 }))

-- ---- truth ----
for _, name in ipairs { "any", "all" } do
  L[name] = reductions(named, function(...) return c.mask(...) end, { grad = false })
  for _, k in ipairs {
    case("numbers", { real(3, 4) }, { args = { 2 }, grad = false }),
    case("columns of numbers", { real(4, 9) }, { args = { 1 }, grad = false }),
    case("no dim", { real(3, 4) }, { grad = false }),
    case("empty inside", { real(3, 0) }, { args = { 2 }, grad = false }),
    big({ args = { 1 }, grad = false }, real(200, 330)),
  } do table.insert(L[name], k) end
end
L.count_nonzero = {
  case("all", { real(3, 4) }, { grad = false }),
  case("last", { real(2, 3, 4) }, { args = { -1 }, grad = false }),
  case("two dims", { real(2, 3, 4) }, { args = { { 1, 3 } }, grad = false }),
  case("mask", { c.mask(3, 12) }, { args = { 1 }, grad = false }),
  case("rank 0", { real() }, { grad = false }),
  case("empty", { real(3, 0) }, { args = { 2 }, grad = false }),
  big({ grad = false }, real(200, 330)),
  big({ args = { 1 }, grad = false }, c.mask(200, 330)),
}

-- ---- scans ----
for _, name in ipairs { "cumsum", "cumprod" } do
  local function input(...) return name == "cumprod" and range(0.9, 1.1, ...) or real(...) end
  local more = { floor = 1, loss = 2 }
  local function with(dim, extra)
    local t = { args = { dim } }
    for k, v in pairs(more) do t[k] = v end
    for k, v in pairs(extra or {}) do t[k] = v end
    return t
  end
  L[name] = {
    case("last", { real(2, 3, 4) }, with(-1)),
    case("first", { real(3, 4) }, with(1)),
    case("middle", { real(2, 3, 2) }, with(2)),
    case("columns", { input(3, 9) }, with(1)),
    case("many lines", { real(9, 3) }, with(2)),
    case("one row", { input(7) }, with(1)),
    case("rank 0", { real() }, with(1)),
    case("empty", { real(2, 0) }, with(2)),
    case("empty outside", { real(0, 3) }, with(2)),
    case("dtype", { input(3, 4) }, { args = { 2, { dtype = "f64" } }, ints = false }),
    big(with(1), input(200, 330)),
    big(with(2), input(200, 330)),
    big(with(1, { grad = name ~= "cumprod" }), input(70000)),
  }
end

return L
