-- Linear algebra for opinfo/special.lua: functions of accel.linalg, and those of the root, with dims from 1. Vectors of eigh, svd and polar
-- have free signs, and lowrank functions draw: tests/reference/calls/linalg.py compares what does not depend on them.
local accel = require "accel"
local spell = require "opinfo.spell"
local L = accel.linalg
local S = {}

local DIMS <const> = { dim = true, dims = true, dim1 = true, dim2 = true }
--- A function with positional arguments as they are, except that those at `at` are dims, then its options.
local function call(fn, at)
  return function(args, kwargs)
    local given, named = { table.unpack(args, 1, args.n) }, nil
    for _, i in ipairs(at or {}) do
      if given[i] ~= nil then given[i] = spell.dim(given[i]) end
    end
    for key, value in pairs(kwargs) do
      named = named or {}
      named[key] = DIMS[key] and spell.dim(value) or value
    end
    local n = args.n
    if named then n = n + 1 end
    given[n] = named or given[n]
    return fn(table.unpack(given, 1, n))
  end
end

for name in ("det slogdet cholesky cholesky_ex eigvalsh householder_product inv inv_ex lu lu_factor lu_factor_ex lu_solve matrix_power "
  .. "matrix_rank matrix_sqrth multi_dot pinv solve solve_ex solve_triangular svdvals tensorinv vander cond lstsq qr"):gmatch "%S+" do
  S["linalg." .. name] = call(L[name])
end
S["linalg.cross"], S["linalg.vecdot"], S["linalg.diagonal"] = call(L.cross), call(L.vecdot), call(L.diagonal)
S["linalg.norm"], S["linalg.matrix_norm"], S["linalg.vector_norm"] = call(L.norm, { 3 }), call(L.matrix_norm, { 3 }), call(L.vector_norm, { 3 })
S["linalg.tensorsolve"] = call(L.tensorsolve)
for name in ("cholesky_inverse cholesky_solve lu lu_unpack lu_solve matrix_exp ormqr triangular_solve pinverse logdet"):gmatch "%S+" do
  S[name] = call(accel[name])
end
S["linalg.pinv.singular"] = function(args) return L.pinv(args[1]:matmul(args[2]:transpose(-1, -2))) end
for name in ("linalg.eig linalg.eigh linalg.svd svd linalg.polar svd_lowrank pca_lowrank"):gmatch "%S+" do S[name] = false end
return S
