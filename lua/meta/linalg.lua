---@meta
-- Linear algebra at the root of accel and as methods of tensors (stdlib/accel/linalg/root.lua), for editors and for the reference page
-- core.md.

-- ## Linear algebra

---The pseudo-inverse, with singular values up to rcond times the largest as zero: linalg.pinv.
---example: accel.pinverse(accel.tensor { { 2.0 } }) --> { { 0.5 } }
---@param x accel.Tensor (..., m, n)
---@param ... any rcond = 1e-15, or a table of it
---@return accel.Tensor
function accel.pinverse(x, ...) end

---linalg.lu_solve with its arguments in the older order.
---example: accel.lu_solve(accel.tensor { { 4.0 } }, accel.linalg.lu_factor(accel.tensor { { 2.0 } })) --> { { 2 } }
---@param b accel.Tensor (..., n, k)
---@param LU_data accel.Tensor (..., n, n)
---@param LU_pivots accel.Tensor (..., n)
---@return accel.Tensor
function accel.lu_solve(b, LU_data, LU_pivots, ...) end

---The factors and pivots of linalg.lu_factor, and with get_infos = true its info.
---example: return (accel.lu(accel.tensor { { 2.0 } })) --> { { 2 } }
---@param A accel.Tensor (..., m, n)
---@param ... any pivot = true, get_infos = false, or a table of them
---@return accel.Tensor, accel.Tensor, accel.Tensor?
function accel.lu(A, ...) end

---P, L and U from the results of linalg.lu_factor. unpack_data = false: L and U are empty. unpack_pivots = false: P is empty.
---example: local P, L, U = accel.lu_unpack(accel.linalg.lu_factor(accel.tensor { { 2.0 } })) return P, L, U --> { { 1 } }, { { 1 } }, { { 2 } }
---@param LU_data accel.Tensor (..., m, n)
---@param LU_pivots accel.Tensor (..., k)
---@param ... any unpack_data = true, unpack_pivots = true, or a table of them
---@return accel.Tensor, accel.Tensor, accel.Tensor
function accel.lu_unpack(LU_data, LU_pivots, ...) end

---The solution of a triangular system with its arguments in the older order, and a copy of A: linalg.solve_triangular.
---example: return (accel.triangular_solve(accel.tensor { { 4.0 } }, accel.tensor { { 2.0 } })) --> { { 2 } }
---@param b accel.Tensor (..., n, k)
---@param A accel.Tensor (..., n, n)
---@param ... any upper = true, transpose = false, unitriangular = false, or a table of them
---@return accel.Tensor, accel.Tensor
function accel.triangular_solve(b, A, ...) end

---Q other, or Q^T other with transpose = true, or the products from the right with left = false, for the square Q of the
---reflections in x and tau (see linalg.householder_product).
---example: accel.ormqr(accel.tensor { { 1.0 }, { 1.0 } }, accel.tensor { 1.0 }, accel.tensor { { 1.0 }, { 0.0 } }) --> { { 0 }, { -1 } }
---@param x accel.Tensor (..., m, k)
---@param tau accel.Tensor (..., k)
---@param other accel.Tensor (..., m, n), or (..., n, m) with left = false
---@param ... any left = true, transpose = false, or a table of them
---@return accel.Tensor
function accel.ormqr(x, tau, other, ...) end

---The length of all elements, or along dims.
---example: accel.frobenius_norm(accel.tensor { { 3.0, 4.0 } }) --> 5
---@param x accel.Tensor
---@param ... any dim, keepdim = false, or a table of them
---@return accel.Tensor
function accel.frobenius_norm(x, ...) end

---The sum of the singular values.
---example: accel.nuclear_norm(accel.tensor { { 3.0, 0.0 }, { 0.0, 4.0 } }) --> 7
---@param x accel.Tensor
---@param ... any dim = { -2, -1 }, keepdim = false, or a table of them
---@return accel.Tensor
function accel.nuclear_norm(x, ...) end

---U, S and V of the largest q singular values of A - M, near them for q below its rank: singular values of a projection on q
---random directions, after niter subspace iterations (Halko, Martinsson and Tropp, 2009, algorithms 4.4 and 5.1).
---example: local U, S, V = accel.svd_lowrank(accel.eye(3) * 2, { q = 2 }) return S --> { 2, 2 }
---@param A accel.Tensor (..., m, n)
---@param ... any q = 6, niter = 2, M, or a table of them
---@return accel.Tensor, accel.Tensor, accel.Tensor
function accel.svd_lowrank(A, ...) end

---U, S and V of A whose columns have their means taken off, or of A with center = false: a principal component analysis. Column i
---of V is the i-th direction, and A:matmul(V) has the coordinates.
---example: local U, S, V = accel.pca_lowrank(accel.tensor { { 1.0, 0.0 }, { -1.0, 0.0 }, { 0.0, 0.0 } }, { q = 1 })
---  return V:abs() --> { { 1 }, { 0 } }
---@param A accel.Tensor (..., m, n)
---@param ... any q = min(6, m, n), center = true, niter = 2, or a table of them
---@return accel.Tensor, accel.Tensor, accel.Tensor
function accel.pca_lowrank(A, ...) end

---accel.linalg.cholesky_inverse.
---example: accel.cholesky_inverse(accel.tensor { { 2.0 } }) --> { { 0.25 } }
---@param L accel.Tensor (..., n, n)
---@param ... any upper = false, or a table of it
---@return accel.Tensor
function accel.cholesky_inverse(L, ...) end

---accel.linalg.cholesky_solve.
---example: accel.cholesky_solve(accel.tensor { { 8.0 } }, accel.tensor { { 2.0 } }) --> { { 2 } }
---@param B accel.Tensor (..., n, k)
---@param L accel.Tensor (..., n, n)
---@param ... any upper = false, or a table of it
---@return accel.Tensor
function accel.cholesky_solve(B, L, ...) end

---accel.linalg.det.
---example: accel.det(accel.tensor { { 2.0, 1.0 }, { 1.0, 3.0 } }) --> 5
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor
function accel.det(A) end

---accel.linalg.logdet.
---example: accel.logdet(accel.tensor { { 1.0, 0.0 }, { 0.0, 1.0 } }) --> 0
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor
function accel.logdet(A) end

---accel.linalg.slogdet.
---example: local sign, logabsdet = accel.slogdet(accel.tensor { { 0.0, 1.0 }, { 1.0, 0.0 } }) return sign, logabsdet --> -1, 0
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor, accel.Tensor
function accel.slogdet(A) end

---accel.linalg.matrix_exp.
---example: accel.matrix_exp(accel.tensor { { 0.0, 1.0 }, { 0.0, 0.0 } }) --> { { 1, 1 }, { 0, 1 } }
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor
function accel.matrix_exp(A) end

---accel.linalg.matrix_power.
---example: accel.matrix_power(accel.tensor { { 1.0, 1.0 }, { 0.0, 1.0 } }, 5) --> { { 1, 5 }, { 0, 1 } }
---@param A accel.Tensor (..., n, n)
---@param n integer
---@return accel.Tensor
function accel.matrix_power(A, n) end

---accel.linalg.inv.
---example: accel.inverse(accel.tensor { { 2.0, 0.0 }, { 0.0, 4.0 } }) --> { { 0.5, 0 }, { 0, 0.25 } }
---@param A accel.Tensor (..., n, n)
---@return accel.Tensor
function accel.inverse(A) end

---accel.linalg.householder_product.
---example: accel.orgqr(accel.tensor { { 1.0 }, { 1.0 } }, accel.tensor { 1.0 }) --> { { 0 }, { -1 } }
---@param A accel.Tensor (..., m, n) with m >= n
---@param tau accel.Tensor (..., k) with k <= n
---@return accel.Tensor
function accel.orgqr(A, tau) end

---See accel.cholesky_inverse.
---example: accel.tensor({ { 2.0 } }):cholesky_inverse() --> { { 0.25 } }
---@param ... any
---@return accel.Tensor
function Tensor:cholesky_inverse(...) end

---See accel.cholesky_solve.
---example: accel.tensor({ { 8.0 } }):cholesky_solve(accel.tensor { { 2.0 } }) --> { { 2 } }
---@param L accel.Tensor (..., n, n)
---@param ... any
---@return accel.Tensor
function Tensor:cholesky_solve(L, ...) end

---See accel.det.
---example: accel.tensor({ { 2.0 } }):det() --> 2
---@return accel.Tensor
function Tensor:det() end

---See accel.logdet.
---example: accel.eye(2):logdet() --> 0
---@return accel.Tensor
function Tensor:logdet() end

---See accel.slogdet.
---example: return (select(2, accel.eye(2):slogdet())) --> 0
---@return accel.Tensor, accel.Tensor
function Tensor:slogdet() end

---See accel.matrix_exp.
---example: accel.zeros(1, 1):matrix_exp() --> { { 1 } }
---@return accel.Tensor
function Tensor:matrix_exp() end

---See accel.matrix_power.
---example: accel.tensor({ { 2.0 } }):matrix_power(3) --> { { 8 } }
---@param n integer
---@return accel.Tensor
function Tensor:matrix_power(n) end

---See accel.inverse.
---example: accel.tensor({ { 2.0 } }):inverse() --> { { 0.5 } }
---@return accel.Tensor
function Tensor:inverse() end

---See accel.orgqr.
---example: accel.tensor({ { 1.0 }, { 1.0 } }):orgqr(accel.tensor { 1.0 }) --> { { 0 }, { -1 } }
---@param tau accel.Tensor (..., k) with k <= n
---@return accel.Tensor
function Tensor:orgqr(tau) end

---See accel.pinverse.
---example: accel.tensor({ { 2.0 } }):pinverse() --> { { 0.5 } }
---@param ... any
---@return accel.Tensor
function Tensor:pinverse(...) end

---See accel.lu.
---example: return (accel.tensor({ { 2.0 } }):lu()) --> { { 2 } }
---@param ... any
---@return accel.Tensor, accel.Tensor, accel.Tensor?
function Tensor:lu(...) end

---See accel.lu_solve.
---example: accel.tensor({ { 4.0 } }):lu_solve(accel.linalg.lu_factor(accel.tensor { { 2.0 } })) --> { { 2 } }
---@param LU_data accel.Tensor (..., n, n)
---@param LU_pivots accel.Tensor (..., n)
---@return accel.Tensor
function Tensor:lu_solve(LU_data, LU_pivots, ...) end

---See accel.triangular_solve.
---example: return (accel.tensor({ { 4.0 } }):triangular_solve(accel.tensor { { 2.0 } })) --> { { 2 } }
---@param A accel.Tensor (..., n, n)
---@param ... any
---@return accel.Tensor, accel.Tensor
function Tensor:triangular_solve(A, ...) end

---See accel.ormqr.
---example: accel.tensor({ { 1.0 }, { 1.0 } }):ormqr(accel.tensor { 1.0 }, accel.tensor { { 1.0 }, { 0.0 } }) --> { { 0 }, { -1 } }
---@param tau accel.Tensor (..., k)
---@param other accel.Tensor (..., m, n), or (..., n, m) with left = false
---@param ... any
---@return accel.Tensor
function Tensor:ormqr(tau, other, ...) end
