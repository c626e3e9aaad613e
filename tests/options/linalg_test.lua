-- Options of accel.linalg: each one changes results or raises (support/option_sweep.lua).
--   accel-run tests/options/linalg_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder "linalg"

local t = accel.tensor
local A = t { { 1.0, 2.0, 0.5 }, { 3.0, -1.0, 2.0 }, { 0.0, 1.0, 4.0 } }
local tall, b = t { { 1.0, 2.0 }, { 3.0, -1.0 }, { 0.5, 4.0 } }, t { { 1.0, 0.5, 0.0 }, { 2.0, 3.0, 1.0 }, { -1.0, 1.0, 2.0 } }
local definite = t { { 4.0, 1.0, 0.0 }, { 2.0, 5.0, 1.0 }, { 1.0, 0.0, 3.0 } } -- not symmetric: the triangle that is read shows
local LU, pivots = accel.linalg.lu_factor(A)
local function base(list) return { base = function() return list end } end
local function recipe(names, list, more)
  local r = base(list)
  for key, value in pairs(more or {}) do r[key] = value end
  local full = {}
  for name in names:gmatch "%S+" do full[#full + 1] = "accel.linalg." .. name end
  s:recipe(full, r)
end
local singular = { check_errors = "is singular" }
recipe("cholesky eigh eigvalsh", { A = definite }, { values = { UPLO = { "U" } } })
local indefinite = definite * -1 + t { { 20.0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 } }
recipe("cholesky_ex", { A = indefinite }, { raises = { check_errors = "is not positive definite" } })
recipe("lu lu_factor", { A = A })
recipe("lu_factor_ex", { A = accel.ones(2, 2) + t { { 0.0, 0 }, { 1, 1 } } }, { raises = singular })
recipe("lu_solve", { LU = LU, pivots = pivots, B = b })
recipe("qr svd", { A = tall }, { values = { mode = { "complete", "r" } } })
recipe("solve", { A = A, B = b })
recipe("solve_ex", { A = accel.ones(3, 3), B = b }, { raises = singular })
recipe("solve_triangular", { A = A, B = b, upper = true })
recipe("inv_ex", { A = accel.ones(3, 3) }, { raises = singular })
recipe("cholesky_solve", { B = b, L = definite })
recipe("cholesky_inverse", { L = definite })
recipe("pinv", { A = A + A:t() }, { values = { rcond = { 0.9 }, atol = { 7.0 }, rtol = { 0.9 } }, run = function(call, given)
  if given.hermitian then given.A = A + accel.eye(3) end
  return call()
end })
recipe("matrix_rank", { A = t { { 1.0, 8.0 }, { 0.0, 1.0 } } }, { values = { tol = { 2.0 }, atol = { 2.0 }, rtol = { 0.9 } },
  run = function(call, given)
  if given.hermitian then given.A = t { { 1.0, 8.0 }, { 0.0, 0.0 } } end
  return call()
end })
recipe("lstsq", { A = tall, B = b }, { values = { rcond = { 0.9 }, driver = { "gels", "gelsd" } } })
recipe("tensorinv", { A = accel.eye(4):reshape(2, 2, 4) }, { values = { ind = { 1 } }, raises = { ind = "must have as many elements" } })
recipe("tensorsolve", { A = A:reshape(3, 1, 3) + accel.zeros(3, 1, 3), B = t { { 1.0 }, { 2.0 }, { 3.0 } } }, { values = { dims = { { 1 } } } })
recipe("vecdot cross", { x = A, y = b }, { values = { dim = { 1 } } })
recipe("diagonal", { A = accel.arange(27):to("f32"):reshape(3, 3, 3) }, { values = { offset = { 1 }, dim1 = { 1 }, dim2 = { 1 } } })
recipe("vander", { x = t { 1.0, 2.0 } }, { values = { N = { 3 } } })
local norms = { ord = { 1 }, dim = { 1 }, dtype = { "f64" } }
recipe("vector_norm norm", { x = A }, { values = norms })
recipe("matrix_norm", { A = accel.arange(12):to("f32"):reshape(2, 2, 3) }, { values = { ord = { "nuc" }, dim = { { 1, 2 } }, dtype = { "f64" } } })
recipe("cond", { A = A }, { values = { p = { 1 } } })
s:finish()
