--- accel.linalg: linear algebra with PyTorch's names, for matrices and batches of them, with gradients of both orders. Everything
--- is computed in f64 and rounded to the tensors' dtype. svd and eigh use LAPACK for matrices of 17 rows and more, if `accel-run
--- env` lists it, eig and eigvals always. solve, inv, det, slogdet, cholesky, qr, eig and eigvals take complex matrices. Factorisations of
--- CUDA tensors run on the host, on copies.
local home = {}
for file, names in next, {
  factors = "cholesky cholesky_ex lu lu_factor lu_factor_ex lu_solve qr householder_product eigh eigvalsh svd svdvals polar matrix_sqrth",
  solvers = "solve solve_ex solve_triangular inv inv_ex cholesky_solve cholesky_inverse pinv matrix_rank lstsq tensorinv tensorsolve",
  general = "eig eigvals",
  functions = "det slogdet logdet matrix_power matrix_exp multi_dot matmul vecdot cross diagonal vander vector_norm matrix_norm norm cond",
} do
  for name in names:gmatch "%S+" do home[name] = file end
end
return require "accel.util.lazy"("accel.linalg", home)
