-- Options of the functions of linear algebra at the root and of their methods (lua/meta/linalg.lua): each one changes results or raises.
--   accel-run tests/options/linalg_root_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local s = sweep.folder { "linalg.lua" }

local t = accel.tensor
local A = t { { 1.0, 2.0, 0.5 }, { 3.0, -1.0, 2.0 }, { 0.0, 1.0, 4.0 } }
local b = t { { 1.0, 0.5, 0.0 }, { 2.0, 3.0, 1.0 }, { -1.0, 1.0, 2.0 } }
local LU, pivots = accel.linalg.lu_factor(A)
local no, yes = { false }, { true }
local values = { upper = yes, left = no, transpose = yes, unitriangular = yes, pivot = no, get_infos = yes, unpack_data = no,
  unpack_pivots = no, keepdim = yes, center = no, rcond = { 0.9 }, q = { 2 }, niter = { 0 }, M = { A } }
local function recipe(names, list, run, own)
  for name in names:gmatch "%S+" do
    s:recipe("accel." .. name, { base = function() return list end, run = run, values = setmetatable(own or {}, { __index = values }) })
  end
end
recipe("cholesky_solve", { B = b, L = A })
recipe("cholesky_inverse", { L = A })
recipe("pinverse", { x = A })
recipe("lu", { A = t { { 1.0, 2.0 }, { 3.0, 4.0 } } })
recipe("lu_unpack", { LU_data = LU, LU_pivots = pivots })
recipe("triangular_solve", { b = b, A = A }, nil, { upper = no })
recipe("ormqr", { x = A, tau = t { 0.5, 0.25 }, other = b })
recipe("frobenius_norm nuclear_norm", { x = A }, function(call, given)
  if given.dim then given.x = accel.arange(12):to("f32"):reshape(2, 2, 3) end
  return call()
end, { dim = { { 2, 1 } } })
recipe("svd_lowrank pca_lowrank", { A = b, q = 1 }, function(call)
  accel.manual_seed(3)
  return (select(2, call()))
end)
for _, entry in ipairs(s.entries) do
  if entry.name:find "^Tensor:" then s:leave(entry.name, "the function of the same name, which is swept") end
end
s:finish()
