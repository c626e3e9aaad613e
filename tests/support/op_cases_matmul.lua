-- Cases of products in other clothes, and of linear algebra: see op_cases.lua.
local accel = require "accel"
local c = require "op_cases"
local real, range, case, args, big = c.real, c.range, c.case, c.args, c.big

local L = {}

L.mm = {
  case("matrices", { real(3, 4), real(4, 2) }),
  case("empty", { real(0, 4), real(4, 2) }),
  case("empty sum", { real(3, 0), real(0, 2) }),
  big({}, real(160, 200), real(200, 130)),
}
L.mv = {
  case("matrix", { real(3, 4), real(4) }),
  case("empty", { real(0, 4), real(4) }),
  case("empty sum", { real(3, 0), real(0) }),
  big({}, real(300, 257), real(257)),
}
L.dot = {
  case("vectors", { real(5), real(5) }),
  case("empty", { real(0), real(0) }),
  big({}, real(50000), real(50000)),
}
L.bmm = {
  case("batches", { real(2, 3, 4), real(2, 4, 2) }),
  case("empty", { real(0, 3, 4), real(0, 4, 2) }),
  big({}, real(6, 40, 64), real(6, 64, 50)),
}
L.baddbmm = {
  case("matrix", { real(3, 2), real(2, 3, 4), real(2, 4, 2) }),
  case("factors", { real(2, 3, 2), real(2, 3, 4), real(2, 4, 2) }, args { beta = 0.5, alpha = 2 }),
  case("no input", { real(2, 3, 2), real(2, 3, 4), real(2, 4, 2) }, args { beta = 0 }),
  case("number", { real(), real(2, 3, 4), real(2, 4, 2) }, args { alpha = -1 }),
  case("empty", { real(2), real(0, 3, 4), real(0, 4, 2) }),
  big({}, real(50), real(6, 40, 64), real(6, 64, 50)),
}
L.mlp = {
  case("gelu", { real(3, 4), real(6, 4), real(2, 6), real(6), real(2) }),
  case("gelu_tanh", { real(2, 3, 4), real(8, 4), real(2, 8), real(8), real(2) }, args { activation = "gelu_tanh" }),
  case("relu", { real(3, 4), real(8, 4), real(2, 8), real(8), real(2) }, args { activation = "relu" }),
  case("silu", { real(3, 4), real(6, 4), real(2, 6), real(6), real(2) }, args { activation = "silu" }),
  case("transposed", { real(3, 4), real(4, 8), real(8, 5), real(8), real(5) }, args { activation = "gelu_tanh", transposed = true }),
  case("no bias", { real(3, 4), real(8, 4), real(2, 8) }, args { activation = "gelu_tanh" }),
  case("row", { real(4), real(8, 4), real(2, 8), real(8), real(2) }, args { activation = "gelu_tanh" }),
  case("empty", { real(0, 4), real(6, 4), real(2, 6), real(6), real(2) }),
  big(args { activation = "gelu_tanh" }, range(-0.2, 0.2, 70, 96), range(-0.2, 0.2, 136, 96), range(-0.2, 0.2, 64, 136), real(136), real(64)),
}
L.outer = {
  case("vectors", { real(3), real(4) }),
  case("empty", { real(0), real(4) }),
  case("one", { real(1), real(1) }),
  big({}, real(300), real(257)),
}

local function chain(f, ...) return f { ... } end
L.multi_dot = {
  case("two", { real(3, 4), real(4, 2) }, { call = chain }),
  case("right first", { real(5, 4), real(4, 3), real(3, 1) }, { call = chain }),
  case("left first", { real(1, 3), real(3, 4), real(4, 5), real(5, 2) }, { call = chain }),
  case("row and column", { real(3), real(3, 4), real(4) }, { call = chain }),
  case("row", { real(3), real(3, 4) }, { call = chain }),
  case("empty", { real(2, 0), real(0, 3), real(3, 2) }, { call = chain }),
  big({ call = chain }, real(60, 200), real(200, 130), real(130, 20)),
}

local function sum_of(equation)
  return { loss = 2, floor = 2, roundings = 3, call = function(f, ...) return f(equation, { ... }) end }
end
local function sums(equation, ...) return case(equation, { ... }, sum_of(equation)) end
L.einsum = {
  sums("ij,jk->ik", real(3, 4), real(4, 2)),
  sums("ij,jk", real(3, 4), real(4, 2)),
  sums("bhid,bhjd->bhij", real(2, 2, 3, 2), real(2, 2, 4, 2)),
  sums("i,i->", real(5), real(5)),
  sums("i,j->ji", real(3), real(4)),
  sums("ij->ji", real(3, 4)),
  sums("ij->", real(3, 4)),
  sums("ba", real(3, 4)),
  sums("ii", real(3, 3)),
  sums("ii->i", real(3, 3)),
  sums("iij->ji", real(2, 2, 3)),
  sums("abab->b", real(2, 3, 2, 3)),
  sums("ij,ij->ij", real(3, 4), real(3, 4)),
  sums("ij,kj->", real(3, 4), real(2, 4)),
  sums("...ij,...jk->...ik", real(2, 3, 4), real(4, 2)),
  sums("...ij,...jk", real(2, 1, 2, 3), real(2, 3, 2)),
  sums("i...->...", real(3, 2, 2)),
  sums("...,...", real(3, 1), real(4)),
  sums("b...c, cd -> b...d", real(2, 2, 3), real(3, 2)),
  sums("ij,j", real(3, 1), real(4)),
  sums("ab,bc,cd->ad", real(2, 3), real(3, 4), real(4, 2)),
  sums("bn,anm,bm->ba", real(2, 3), real(4, 3, 2), real(2, 2)),
  sums("a,b,c->cab", real(2), real(3), real(2)),
  sums("ab,ab,ab->a", real(2, 3), real(2, 3), real(2, 3)),
  sums("Ab,bC", real(2, 3), real(3, 2)),
  sums(",ij->ij", real(), real(2, 3)),
  sums("ij,jk->ik", real(0, 4), real(4, 2)),
  sums("ij,jk->ik", real(3, 0), real(0, 2)),
  big(sum_of "bthd,bshd->bhts", real(2, 40, 4, 32), real(2, 50, 4, 32)),
}

-- r's and q's as one result each; without = "q" or "r": the other alone
local function factors(mode, without)
  return { loss = 64, floor = 1, ints = false, call = function(f, x)
    local q, r = f(x, mode)
    if without == "q" then return r end
    if without == "r" then return q end
    return q, r
  end }
end
L.qr = {
  case("tall", { real(4, 3) }, factors "reduced"),
  case("square", { real(3, 3) }, factors "reduced"),
  case("wide", { real(2, 4) }, factors "reduced"),
  case("complete, wide", { real(2, 3) }, factors "complete"),
  case("q alone", { real(4, 2) }, factors("reduced", "r")),
  case("r alone", { real(4, 2) }, factors("reduced", "q")),
  case("wide, q alone", { real(2, 3) }, factors("reduced", "r")),
  case("batch", { real(2, 2, 3, 2) }, factors "reduced"),
  case("column", { real(3, 1) }, factors "reduced"),
  case("no columns", { real(3, 0) }, factors "reduced"),
  case("no rows", { real(0, 3) }, factors "reduced"),
  case("empty", { real(0, 3, 2) }, factors "reduced"),
  big({ loss = 64, call = function(f, x) return f(x) end }, real(3, 150, 90)),
  big({ loss = 64, call = function(f, x) return f(x) end }, real(200, 130)),
}
for _, k in ipairs { case("complete", { real(4, 2) }, factors "complete"), case("r", { real(4, 2) }, factors "r"),
  case("complete, no columns", { real(3, 0) }, factors "complete") } do
  k.grad = false
  table.insert(L.qr, 1, k)
end
for _, k in ipairs(L.qr) do k.full_rank = true end -- of equal columns the later ones have no direction of their own

-- Vectors have free signs, and those of equal values are free: gradients go through the values and through products that do
-- not depend on signs. svd_test.lua and eigh_test.lua look at the vectors.
local function singular(f, x) return (select(2, f(x))) end
local function directions(f, x)
  local u, s, vh = f(x)
  return s, u * u, vh * vh, u:matmul(vh)
end
L.svd = {}
for _, shape in ipairs { { 3, 3 }, { 4, 2 }, { 2, 4 }, { 2, 2, 3, 2 }, { 3, 1 }, { 0, 3 } } do
  local more = { loss = 64, floor = 1, ints = false, full_rank = true, call = singular }
  table.insert(L.svd, case(table.concat(shape, " x "), { real(table.unpack(shape)) }, more))
end
for _, shape in ipairs { { 3, 3 }, { 4, 2 }, { 2, 3 } } do
  local more = { loss = 512, roundings = 4, floor = 1, ints = false, full_rank = true, call = directions }
  table.insert(L.svd, case(table.concat(shape, " x ") .. ", vectors", { real(table.unpack(shape)) }, more))
end
-- A symmetric matrix of any: what lies above the diagonal is not read otherwise.
local function spectrum(uplo, vectors)
  return { loss = 512, roundings = 4, floor = 1, ints = false, full_rank = true, call = function(f, x)
    local w, v = f(x + x:transpose(-1, -2), uplo)
    if vectors then return w, v * v end
    return w
  end }
end
L.eigh = {
  case("values", { real(3, 3) }, spectrum "L"),
  case("vectors", { real(3, 3) }, spectrum("U", true)),
  case("batch", { real(2, 2, 2, 2) }, spectrum("L", true)),
  case("one", { real(1, 1) }, spectrum "L"),
  case("empty", { real(0, 2, 2) }, spectrum "L"),
  case("nothing", { real(0, 0) }, spectrum "L"),
  big(spectrum "L", real(3, 24, 24)),
}
local function definite(upper)
  return { loss = 64, roundings = 4, floor = 1, ints = false, full_rank = true, call = function(f, x)
    local n = x.shape[x.ndim]
    return (f(x:matmul(x:transpose(-1, -2)) + 4 * accel.eye(n, { dtype = x.dtype, device = x.device }), upper))
  end }
end
L.cholesky_ex = {
  case("lower", { real(3, 3) }, definite(false)),
  case("upper", { real(3, 3) }, definite(true)),
  case("batch", { real(2, 2, 2, 2) }, definite(false)),
  case("empty", { real(0, 2, 2) }, definite(false)),
  case("nothing", { real(0, 0) }, definite(false)),
  big(definite(false), range(-0.1, 0.1, 2, 70, 70)),
}
-- The diagonal is large, so that pivots do not change by small differences.
local function lu(pivot)
  return { loss = 64, roundings = 4, floor = 1, ints = false, full_rank = true, call = function(f, x)
    local eye = accel.eye(x.shape[x.ndim - 1], x.shape[x.ndim], { dtype = x.dtype, device = x.device })
    return (f(x + eye * 6, pivot))
  end }
end
L.lu_factor_ex = {
  case("square", { real(3, 3) }, lu(true)),
  case("tall", { real(4, 2) }, lu(true)),
  case("wide", { real(2, 4) }, lu(true)),
  case("no exchanges", { real(3, 3) }, lu(false)),
  case("batch", { real(2, 2, 2, 2) }, lu(true)),
  case("empty", { real(0, 2, 2) }, lu(true)),
  case("no rows", { real(0, 3) }, lu(true)),
  big(lu(true), range(-0.1, 0.1, 2, 70, 70)),
}
local function solved()
  return { loss = 64, roundings = 4, floor = 1, ints = false, full_rank = true, call = function(f, a, b)
    return (f(a + 6 * accel.eye(a.shape[a.ndim], { dtype = a.dtype, device = a.device }), b))
  end }
end
L.solve_ex = {
  case("matrix", { real(3, 3), real(3, 2) }, solved()),
  case("broadcast", { real(2, 1, 2, 2), real(3, 2, 2) }, solved()),
  case("empty", { real(3, 3), real(3, 0) }, solved()),
  case("nothing", { real(0, 0), real(0, 2) }, solved()),
  big(solved(), range(-0.1, 0.1, 2, 70, 70), real(2, 70, 40)),
}

local function solve(upper, left, unit)
  return { loss = 16, ints = false, call = function(f, a, b) return f(a, b, upper, left, unit) end }
end
local function big_solve(...) return big(solve(...), range(-0.02, 0.02, 2, 70, 70), real(2, 70, 70)) end
L.solve_triangular = {
  case("upper", { range(1, 2, 3, 3), real(3, 2) }, solve(true)),
  case("lower", { range(1, 2, 3, 3), real(3, 2) }, solve(false)),
  case("upper, right", { range(1, 2, 3, 3), real(2, 3) }, solve(true, false)),
  case("lower, right", { range(1, 2, 3, 3), real(2, 3) }, solve(false, false)),
  case("ones", { real(3, 3), real(3, 2) }, solve(true, true, true)),
  case("ones, lower, right", { real(3, 3), real(2, 3) }, solve(false, false, true)),
  case("broadcast", { range(1, 2, 2, 1, 2, 2), real(3, 2, 2) }, solve(true)),
  case("shared", { range(1, 2, 2, 2), real(3, 2, 2) }, solve(false)),
  case("empty", { range(1, 2, 3, 3), real(3, 0) }, solve(true)),
  case("nothing", { real(0, 0), real(0, 2) }, solve(true)),
  big_solve(true, true, true),
  big_solve(false, false, true),
  big(solve(true, true, true), range(-0.02, 0.02, 30, 30), real(2, 30, 150)),
}

for _, name in ipairs { "mm", "mv", "dot", "bmm", "baddbmm", "outer", "multi_dot" } do
  for _, k in ipairs(L[name]) do k.loss, k.roundings = 4, name == "multi_dot" and 3 or nil end
end

-- z, its activation and y are rounded one after another
for _, k in ipairs(L.mlp) do k.roundings = 3 end

return L
