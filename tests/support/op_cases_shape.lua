-- Cases of ops that move elements: views, joins, and picking by index. See op_cases.lua.
local c = require "op_cases"
local real, index = c.real, c.index
local case, args, big = c.case, c.args, c.big

local L = {}

-- ---- views and joins ----
local function list(f, ...) return f({ ... }) end
local function joined(d)
  return { call = function(f, ...) return f({ ... }, d) end }
end
L.cat = {
  case("first", { real(2, 3), real(1, 3) }, joined(1)),
  case("last", { real(2, 1), real(2, 3), real(2, 2) }, joined(-1)),
  case("with nothing", { real(2, 3), real(0), real(0, 3) }, joined(1)),
  case("one twice", { real(2, 2) }, { call = function(f, a) return f({ a, a }, 2) end }),
  case("empty", { real(0, 2), real(0, 2) }, { call = list }),
  big({ call = list }, real(200, 330), real(50, 330)),
}
L.stack = {
  case("first", { real(2, 3), real(2, 3) }, { call = list }),
  case("last", { real(2, 3), real(2, 3) }, joined(-1)),
  case("rank 0", { real(), real() }, { call = list }),
  case("empty", { real(0), real(0) }, { call = list }),
  big({ call = list }, real(200, 330), real(200, 330)),
}
L.split = {
  case("size", { real(5, 2) }, args(2, 1)),
  case("sizes", { real(2, 6) }, args({ 1, 2, 3 }, 2)),
  case("empty", { real(0, 3) }, args(1, 2)),
  case("empty pieces", { real(3, 2) }, args({ 0, 3, 0 }, 1)),
  big(args(100, 1), real(200, 330)),
}
L.chunk = {
  case("even", { real(4, 2) }, args(2, 1)),
  case("uneven", { real(2, 5) }, args(3, 2)),
  case("empty", { real(0, 3) }, args(2, 2)),
}
L.contiguous = {
  case("plain", { real(3, 4) }),
  case("rank 0", { real() }),
  case("empty", { real(2, 0) }),
  case("transposed", { real(3, 4) }, { call = function(f, x) return f(x:t()) end }),
  big({ call = function(f, x) return f(x:t()) end }, real(200, 330)),
}
L.expand = {
  case("row", { real(3, 1) }, args { 3, 4 }),
  case("new dims", { real(3) }, args { 2, 2, -1 }),
  case("rank 0", { real() }, args { 2, 2 }),
  case("to nothing", { real(1, 3) }, args { 0, 3 }),
}
L.flatten = {
  case("all", { real(2, 3, 2) }),
  case("last", { real(2, 3, 2) }, args(2)),
  case("first", { real(2, 3, 2) }, args(1, 2)),
  case("rank 0", { real() }),
  case("empty", { real(2, 0, 3) }),
}
L.reshape = {
  case("plain", { real(3, 4) }, args { 2, -1 }),
  case("rank 0", { real() }, args { 1, 1 }),
  case("to rank 0", { real(1) }, args {}),
  case("copied", { real(3, 4) }, { call = function(f, x) return f(x:t(), { 12 }) end }),
  case("empty", { real(0, 4) }, args { 2, 0 }),
}
L.view = {
  case("plain", { real(3, 4) }, { args = { { 2, 6 } }, needs_contiguous = true }),
  case("rank 0", { real() }, { args = { { 1, 1 } } }),
  case("empty", { real(0, 4) }, { args = { { 2, 0 } } }),
}
L.permute = {
  case("turn", { real(2, 3, 2) }, args { 3, 1, 2 }),
  case("rank 0", { real() }, args {}),
  case("empty", { real(0, 2) }, args { 2, 1 }),
}
L.transpose = {
  case("swap", { real(2, 3, 2) }, args(1, -1)),
  case("same", { real(2, 3) }, args(2, 2)),
  case("empty", { real(0, 2) }, args(1, 2)),
}
L.t = {
  case("matrix", { real(2, 3) }),
  case("vector", { real(3) }),
  case("rank 0", { real() }),
  case("empty", { real(0, 2) }),
}
L.mT = {
  case("matrix", { real(2, 3) }),
  case("batch", { real(2, 3, 4) }),
  case("empty", { real(0, 2) }),
}
L.adjoint = L.mT
L.as_strided = { -- of contiguous inputs: gradients need them
  case("overlapping", { real(6) }, { call = function(f, x) return f(x:contiguous(), { 3, 2 }, { 1, 2 }) end }),
  case("repeated", { real(3) }, { call = function(f, x) return f(x:contiguous(), { 2, 4 }, { 1, 0 }) end }),
  case("matrix", { real(3, 4) }, { call = function(f, x) return f(x:contiguous(), { 2, 2 }, { 5, 1 }, 1) end }),
  case("empty", { real(0, 2) }, { call = function(f, x) return f(x:contiguous(), { 2, 0 }, { 1, 1 }) end }),
}
L.narrow = {
  case("middle", { real(4, 3) }, args(1, 2, 2)),
  case("last", { real(2, 4) }, args(-1, -2, 2)),
  case("nothing", { real(3, 2) }, args(1, 4, 0)),
  case("empty", { real(0, 3) }, args(2, 1, 2)),
}
L.select = {
  case("first dim", { real(3, 2) }, args(1, 2)),
  case("last", { real(2, 3) }, args(-1, -1)),
  case("to rank 0", { real(3) }, args(1, 1)),
  case("empty", { real(0, 3) }, args(2, 2)),
}
L.squeeze = {
  case("all", { real(1, 3, 1) }),
  case("one", { real(1, 3, 1) }, args(1)),
  case("not one", { real(2, 1) }, args(1)),
  case("several", { real(1, 2, 1) }, args { 1, 3 }),
  case("rank 0", { real() }),
  case("empty", { real(0, 1) }, args(2)),
}
L.unsqueeze = {
  case("front", { real(2, 3) }, args(1)),
  case("back", { real(2, 3) }, args(-1)),
  case("rank 0", { real() }, args(1)),
  case("empty", { real(0) }, args(2)),
}
for _, name in ipairs { "tril", "triu" } do
  L[name] = {
    case("main", { real(3, 4) }),
    case("above", { real(4, 3) }, args(1)),
    case("below", { real(2, 3, 3) }, args(-1)),
    case("empty", { real(0, 3) }),
    big({}, real(300, 300)),
  }
end

-- ---- index ----
-- x, then the dim, then the other inputs
local function along(d, options)
  return { call = function(f, x, ...)
    local a = { d, ... }
    a[#a + 1] = options
    return f(x, table.unpack(a))
  end }
end
L.gather = {
  case("rows", { real(3, 4), index(3, 2, 4) }, along(1)),
  case("columns", { real(3, 4), index(4, 2, 5) }, along(2)),
  case("rank 0", { real(), index(1) }, along(1)),
  case("empty", { real(3, 4), index(3, 0, 4) }, along(1)),
  big(along(2), real(200, 330), index(330, 200, 400)),
}
L.index_select = {
  case("rows", { real(4, 3), index(4, 6) }, along(1)),
  case("columns", { real(2, 4), index(4, 3) }, along(-1)),
  case("nothing", { real(2, 4), index(4, 0) }, along(2)),
  big(along(1), real(200, 330), index(200, 400)),
}
L.embedding = {
  case("plain", { index(5, 2, 3), real(5, 4) }),
  case("padding", { index(3, 6), real(3, 2) }, { args = { { padding_idx = 1 } }, fd = false }),
  case("one", { index(5), real(5, 4) }),
  case("empty", { index(5, 0), real(5, 4) }),
  big({}, index(100, 40, 50), real(100, 64)),
}
L.index_add = {
  case("rows", { real(4, 3), index(4, 6), real(6, 3) }, along(1, { alpha = 0.5 })),
  case("columns", { real(2, 4), index(4, 2), real(2, 2) }, along(2)),
  case("nothing", { real(2, 4), index(4, 0), real(2, 0) }, along(2)),
  big(along(1), real(100, 330), index(100, 400), real(400, 330)),
}
L.scatter_add = {
  case("rows", { real(3, 4), index(3, 5, 4), real(5, 4) }, along(1)),
  case("columns", { real(3, 4), index(4, 2, 3), real(3, 3) }, along(2)),
  case("nothing", { real(3, 4), index(3, 0, 4), real(2, 4) }, along(1)),
  big(along(2), real(200, 330), index(330, 200, 300), real(200, 300)),
}
for _, name in ipairs { "index_add", "scatter_add" } do
  for _, k in ipairs(L[name]) do k.loss = 4 end
end

return L
