-- einsum's way of reading equations and what it says about wrong ones; multi_dot's order; products of fixed ranks.
local accel = require "accel"

local function says(code, parts, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and err.code == code, tostring(err))
  for _, part in ipairs(parts) do
    assert(tostring(err):find(part, 1, true), ("'%s' is not in: %s"):format(part, tostring(err)))
  end
end
local function equal(t, want)
  local got = accel.inspect(t:tolist())
  assert(got == accel.inspect(want), got .. " is not " .. accel.inspect(want))
end

local a = accel.tensor { { 1.0, 2.0, 3.0 }, { 4.0, 5.0, 6.0 } }
local b = accel.tensor { { 1.0, 0.0 }, { 0.0, 1.0 }, { 2.0, 2.0 } }
local i = accel.tensor { { 1, 2 }, { 3, 4 } }

equal(accel.einsum("ij,jk->ik", { a, b }), { { 7.0, 8.0 }, { 16.0, 17.0 } })
equal(accel.einsum(" i j , j k -> k i ", { a, b }), { { 7.0, 16.0 }, { 8.0, 17.0 } })
equal(accel.einsum("ij,jk", { a, b }), { { 7.0, 8.0 }, { 16.0, 17.0 } })
equal(accel.einsum("ba", { a }), { { 1.0, 4.0 }, { 2.0, 5.0 }, { 3.0, 6.0 } }) -- implied results are sorted
equal(accel.einsum("aB", { a }), { { 1.0, 4.0 }, { 2.0, 5.0 }, { 3.0, 6.0 } }) -- capitals first
equal(accel.einsum("ij->", { a }), 21.0)
equal(accel.einsum("ij->j", { a }), { 5.0, 7.0, 9.0 })
equal(accel.einsum("ii", { i }), 5)
equal(accel.einsum("ii->i", { i }), { 1, 4 })
equal(accel.einsum("ij,jk->ik", { i, i }), { { 7, 10 }, { 15, 22 } })
equal(accel.einsum("...->...", { a }), a:tolist())
equal(accel.einsum("...j->j...", { a }), { { 1.0, 4.0 }, { 2.0, 5.0 }, { 3.0, 6.0 } })
equal(accel.einsum("...j->j", { a }), { 5.0, 7.0, 9.0 }) -- "..." missing from the result is summed over
equal(accel.einsum("i...,i...->...", { a, a }), { 17.0, 29.0, 45.0 })
equal(accel.einsum("ij,kj->ik", { a, accel.tensor { { 1.0 }, { 2.0 } } }), { { 6.0, 12.0 }, { 15.0, 30.0 } })
assert(accel.einsum("ij,jk->ik", { i:to("i16"), i:to("i16") }).dtype == "i16")
assert(accel.einsum("ij->i", { i:to("i16") }).dtype == "i64") -- a sum, as sum gives it
equal(accel.einsum("i->", { accel.ones(300, { dtype = "u8" }) }), 300)
equal(accel.einsum("ij,k->ik", { accel.ones(1, 300, { dtype = "u8" }), accel.tensor({ 1, 2 }, { dtype = "u8" }) }), { { 300, 600 } })
equal(accel.einsum("ij,jk->k", { accel.ones(300, 2, { dtype = "i8" }), accel.ones(2, 1, { dtype = "i8" }) }), { 600 })

-- The result is never the operand itself, so that writing into it is not a surprise to a graph.
local same = accel.einsum("ij->ij", { a })
assert(same ~= a)

local einsum = accel.einsum
says("invalid_argument", { "einsum", '"ij,jk->ik"', "names 2 operands, but 1 were given" }, einsum, "ij,jk->ik", { a })
says("invalid_argument", { "'j' has 2 elements in operand 2 of shape (2, 3), but 3 before" }, einsum, "ij,jk", { a, a })
says("invalid_argument", { "operand 1 of shape (2, 3) has 2 dims, but 3 are named" }, einsum, "ijk->i", { a })
says("invalid_argument", { "operand 1 of shape (2, 3) has 2 dims, but 1 are named" }, einsum, "i->i", { a })
says("invalid_argument", { "'i' stands for 2 and 3 in operand 1" }, einsum, "ii", { a })
says("invalid_argument", { "character 2", "'1' is not a letter" }, einsum, "i1", { a })
says("invalid_argument", { "character 3", "three dots" }, einsum, "ij..", { a })
says("invalid_argument", { "second ellipsis" }, einsum, "...i...", { a })
says("invalid_argument", { "'k' of the result is in no operand" }, einsum, "ij->k", { a })
says("invalid_argument", { "'i' is in the result twice" }, einsum, "ij->ii", { a })
says("invalid_argument", { "'-' without '>'" }, einsum, "ij-i", { a })
says("invalid_argument", { "nothing may follow" }, einsum, "ij->i,j", { a })
says("invalid_argument", { "under '...'", "(3, 2)" }, einsum, "...,...", { a, b })
says("dtype", { "f32", "i64" }, einsum, "ij,jk->ik", { a, accel.tensor { { 1 }, { 2 }, { 3 } } })

-- The cheap order is found from either side: no product on the way is as large as the matrix between the vectors.
local row, column = accel.ones(1, 3000), accel.ones(3000, 1)
local function bytes(list)
  local before = accel.mem_stats("cpu").born_bytes
  accel.multi_dot(list)
  return accel.mem_stats("cpu").born_bytes - before
end
assert(bytes { column, row, column } < 1e6)
assert(bytes { row, column, row } < 1e6)
assert(bytes { column, row, column, row, column } < 1e6)

says("shape", { "multi_dot", "tensors 1 and 2", "(2, 3)", "3 and 2" }, accel.multi_dot, { a, a })
says("shape", { "tensor 2 of 3", "(3)" }, accel.multi_dot, { a, accel.ones(3), b })
says("invalid_argument", { "2 to 64 tensors, got 1" }, accel.multi_dot, { a })
says("shape", { "mm", "2 and 2 dims", "(2, 3)", "(3)" }, accel.mm, a, accel.ones(3))
says("shape", { "mv", "(2, 3)" }, accel.mv, a, a)
says("shape", { "dot", "(2, 3)" }, accel.dot, a, a)
says("shape", { "dot", "3 and 2 must be equal" }, accel.dot, accel.ones(3), accel.ones(2))
says("shape", { "bmm", "batches of 2 and 1" }, accel.bmm, accel.ones(2, 3, 4), accel.ones(1, 4, 2))
says("shape", { "outer", "(2, 3)" }, accel.outer, a, a)
says("shape", { "baddbmm", "(5)", "(2, 3, 2)" }, accel.baddbmm, accel.ones(5), accel.ones(2, 3, 4), accel.ones(2, 4, 2))
says("dtype", { "baddbmm", "alpha" }, accel.baddbmm, accel.tensor { 1 }, accel.tensor { { { 1 } } },
  accel.tensor { { { 1 } } }, { alpha = 0.5 })
