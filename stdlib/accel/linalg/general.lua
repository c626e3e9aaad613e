--- accel.linalg: eigenvalues of any square matrix. The kernel is the op linalg_eig, on LAPACK.
local accel = require "accel.core"
local check = require "accel.util.check"
local common = require "accel.linalg.common"
local complex = require "accel.linalg.complex"
local raise = require "accel.util.raise"

local kernel = accel.op "linalg_eig"
local M = {}

local function pairs_of(A)
  if A:is_complex() then return kernel(A:view_as_real(), true) end
  return kernel(A, false)
end

local mH = common.mH

-- dA = V^-H (diag(dw) + (V^H dV - V^H V diag(Re(diag(V^H dV)))) / conj(E)) V^H with E_ij = w_j - w_i (Boeddeker and others, On the computation
-- of complex-valued gradients with application to statistically optimum beamforming, 2017, 4.34; the second term keeps columns at length 1).
local Eig = accel.Function {
  name = "linalg.eig",
  forward = function(ctx, A)
    local w, V = pairs_of(A)
    w, V = w:view_as_complex():clone(), V:view_as_complex():clone()
    ctx.real = not A:is_complex()
    ctx:set_materialize_grads(false)
    ctx:save_for_backward(w, V)
    return w, V
  end,
  backward = function(ctx, dw, dV)
    local w, V = ctx:saved_tensors()
    if not dw and not dV then return nil end
    local n, H, inner = V.shape[V.ndim], mH(V), nil
    local eye = common.eye(V:real(), n)
    if dV then
      local t = H:matmul(dV)
      common.check_phases("linalg.eig", t, "their magnitudes, or linalg.eigvals")
      local scale = t:real():diagonal(0, -2, -1):unsqueeze(-2)
      local gap = (w:unsqueeze(-2) - w:unsqueeze(-1)):conj() + eye -- 1 on the diagonal, which counts no part
      inner = (t - H:matmul(V) * scale) / gap * (1 - eye)
    end
    if dw then
      local diagonal = dw:unsqueeze(-1) * eye
      inner = inner and inner + diagonal or diagonal
    end
    local dA = complex.solve(H, inner:matmul(H))
    return ctx.real and dA:real() or dA
  end,
}

local function checked(who, A)
  common.matrix(who, "A", A, true)
  if not A:is_complex() and not A:is_floating_point() then
    raise("%s: expected a float or complex tensor, got %s; convert it by x:to \"f32\"", who, A.dtype)
  end
  return A
end

--- Eigenvalues and eigenvectors (in columns, of length 1) of a square matrix, complex, in LAPACK's order. The phases of vectors are free: a loss
--- that depends on them raises in backward. Gradients of vectors of equal eigenvalues are infinite. Needs LAPACK (`accel-run env`).
--- example: local w = accel.linalg.eig(accel.tensor { { 0.0, -1.0 }, { 1.0, 0.0 } }) return w:imag() --> { 1, -1 }
---@param A accel.Tensor (..., n, n), floats or complex
---@return accel.Tensor eigenvalues (..., n), complex
---@return accel.Tensor eigenvectors (..., n, n), complex
function M.eig(A, ...)
  check.surplus("linalg.eig", ...)
  local w, V = Eig(checked("linalg.eig", A))
  common.finite("linalg.eig", w:real())
  return w, V
end

--- The eigenvalues of a square matrix, complex, in LAPACK's order. Needs LAPACK.
--- example: accel.linalg.eigvals(accel.tensor { { 2.0, 1.0 }, { 0.0, 3.0 } }):real() --> { 2, 3 }
---@param A accel.Tensor (..., n, n), floats or complex
---@return accel.Tensor (..., n), complex
function M.eigvals(A, ...)
  check.surplus("linalg.eigvals", ...)
  local w = Eig(checked("linalg.eigvals", A))
  common.finite("linalg.eigvals", w:real())
  return w
end

return M
