# Linear algebra: torch.linalg, and what torch and tensors have of it. Signs of vectors are free, so that squares and products of them are compared.
# The matrices of f are nearly singular: these are drawn, with one decimal.
import random as _random

_draw = _random.Random(44)


def d(*shape, dtype="f64"):
    return spec("lit", shape, dtype, values=[round(_draw.gauss(0, 1), 1) or 0.5 for _ in range(math.prod(shape))])


SYM = "x + x.mT"
SYML = "x + x:transpose(-1, -2)"
PD = "x @ x.mT + 2 * torch.eye(3, dtype=torch.float64)"
PDL = "x:matmul(x:transpose(-1, -2)) + 2 * accel.eye(3, { dtype = 'f64' })"


def parts(call, lua, python_of, lua_of, names):
    return f"(lambda r: ({python_of}))({call})", f"(function({names}) return {lua_of} end)({lua})"


# factors
for up in (False, True):
    o = "{ upper = true }" if up else "nil"
    case("linalg cholesky", f"linalg.cholesky({PD}, upper={up})", f"linalg.cholesky({PDL}, {o})", x=d(3, 3))
    case("linalg cholesky_ex", f"linalg.cholesky_ex({PD}, upper={up})", f"linalg.cholesky_ex({PDL}, {o})", x=d(2, 3, 3))
case("linalg cholesky_ex", "linalg.cholesky_ex(x)[1]", "select(2, linalg.cholesky_ex(x))", grad=False, x=d(4, 3, 3))
fails("linalg cholesky", "linalg.cholesky(-torch.eye(3))", "linalg.cholesky(-accel.eye(3))")
fails("linalg cholesky", "linalg.cholesky(x)", x=d(2, 3))
for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 3)):
    case("linalg lu", "linalg.lu(x)", x=d(*shape))
    case("linalg lu_factor", "linalg.lu_factor(x)", x=d(*shape))
    case("linalg lu_factor_ex", "linalg.lu_factor_ex(x)", x=d(*shape))
    case("torch lu_unpack", "torch.lu_unpack(*torch.linalg.lu_factor(x))", "accel.lu_unpack(linalg.lu_factor(x))", x=d(*shape))
fails("linalg lu_factor", "linalg.lu_factor(x[0, 0])", "linalg.lu_factor(x[1][1])", x=d(3, 3))
for left in (True, False):
    for adjoint in (False, True):
        o = f"{{ left = {str(left).lower()}, adjoint = {str(adjoint).lower()} }}"
        shape = (2, 3, 2) if left else (2, 2, 3)
        case("linalg lu_solve", f"linalg.lu_solve(*linalg.lu_factor(x), b, left={left}, adjoint={adjoint})",
             f"(function(LU, p) return linalg.lu_solve(LU, p, b, {o}) end)(linalg.lu_factor(x))", x=d(2, 3, 3), b=d(*shape))
case("torch,Tensor lu_solve", "b.lu_solve(*linalg.lu_factor(x))", "b:lu_solve(linalg.lu_factor(x))", x=d(3, 3), b=d(3, 2))
for shape in ((3, 3), (4, 2), (2, 4)):
    case("linalg qr", "linalg.qr(x)", x=d(*shape))
case("linalg qr", "linalg.qr(x, mode='complete')", "linalg.qr(x, { mode = 'complete' })", grad=False, x=d(4, 2))
case("linalg qr", "linalg.qr(x, mode='r')[1]", "select(2, linalg.qr(x, 'r'))", grad=False, x=d(4, 2))
case("linalg householder_product", "linalg.householder_product(x, t)", x=d(4, 3), t=d(2))
case("linalg householder_product", "linalg.householder_product(x, t)", x=d(2, 4, 3), t=d(2, 3))
case("torch,Tensor orgqr", "x.orgqr(t)", x=d(4, 3), t=d(3))
for left in (True, False):
    for t in (False, True):
        shape = (4, 2) if left else (2, 4)
        case("torch,Tensor ormqr", f"torch.ormqr(x, t, b, {left}, {t})", f"accel.ormqr(x, t, b, {str(left).lower()}, {str(t).lower()})",
             grad=False, x=d(4, 4), t=d(4), b=d(*shape))
for uplo in "LU":
    p, l = parts(f"linalg.eigh({SYM}, '{uplo}')", f"linalg.eigh({SYML}, '{uplo}')", "r[0], r[1] ** 2", "w, v ^ 2", "w, v")
    case("linalg eigh", p, l, tol=1e-11, x=d(3, 3))
    case("linalg eigh", p, l, tol=1e-11, x=d(2, 2, 2))
    case("linalg eigvalsh", f"linalg.eigvalsh(x, UPLO='{uplo}')", f"linalg.eigvalsh(x, {{ UPLO = '{uplo}' }})", grad=False, x=d(3, 3))
case("linalg eigvalsh", f"linalg.eigvalsh({SYM})", f"linalg.eigvalsh({SYML})", x=d(4, 4))
for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 2)):
    p, l = parts("linalg.svd(x, full_matrices=False)", "linalg.svd(x, false)", "r[1], r[0] ** 2, r[2] ** 2, r[0] @ r[2]",
                 "s, u ^ 2, v ^ 2, u:matmul(v)", "u, s, v")
    case("linalg svd", p, l, tol=1e-10, x=d(*shape))
    case("linalg svdvals", "linalg.svdvals(x)", x=d(*shape))
p, l = parts("linalg.svd(x)", "linalg.svd(x)", "r[0] @ r[0].mT, r[1], r[2] @ r[2].mT", "u:matmul(u:transpose(-1, -2)), s, v:matmul(v:transpose(-1, -2))", "u, s, v")
case("linalg svd", p, l, grad=False, x=d(4, 2))
case("torch svd", "torch.svd(x)[1]", "(select(2, accel.svd(x)))", x=d(4, 2))
fails("linalg svd", "linalg.svd(x)", x=lit([[1.0, float('nan')], [0, 1]]))
case("linalg polar", "linalg.polar(x)", tol=1e-11, x=d(4, 2)) if hasattr(torch.linalg, "polar") else None
case("linalg matrix_sqrth", f"linalg.matrix_sqrth({PD})", f"linalg.matrix_sqrth({PDL})", tol=1e-11, x=d(3, 3))

# systems
for a, b, o in (((3, 3), (3, 2), ""), ((3, 3), (3,), ""), ((2, 3, 3), (2, 3), ""), ((2, 1, 3, 3), (2, 3, 2), ""), ((3, 3), (2, 3), ", left=False")):
    lo = ", { left = false }" if o else ""
    case("linalg solve", f"linalg.solve(x, b{o})", f"linalg.solve(x, b{lo})", x=d(*a), b=d(*b))
    case("linalg solve_ex", f"linalg.solve_ex(x, b{o})", f"linalg.solve_ex(x, b{lo})", x=d(*a), b=d(*b))
fails("linalg solve", "linalg.solve(torch.zeros(2, 2), torch.ones(2, 1))", "linalg.solve(accel.zeros(2, 2), accel.ones(2, 1))")
fails("linalg solve", "linalg.solve(x, b)", x=d(3, 3), b=d(2, 2))
fails("linalg solve", "linalg.solve(x, b, left=False)", "linalg.solve(x, b, { left = false })", x=d(3, 3), b=d(3))
case("linalg inv", "linalg.inv(x)", x=d(2, 3, 3))
case("torch,Tensor inverse", "x.inverse()", x=d(3, 3))
case("linalg inv_ex", "linalg.inv_ex(x)", x=d(2, 3, 3))
case("linalg inv_ex", "linalg.inv_ex(x)[1]", "select(2, linalg.inv_ex(x))", grad=False, x=lit([[1.0, 2], [2, 4]]))
fails("linalg inv", "linalg.inv(torch.zeros(2, 2))", "linalg.inv(accel.zeros(2, 2))")
fails("linalg inv_ex", "linalg.inv_ex(torch.zeros(2, 2), check_errors=True)", "linalg.inv_ex(accel.zeros(2, 2), { check_errors = true })")
for up in (True, False):
    u = str(up).lower()
    case("linalg solve_triangular", f"linalg.solve_triangular(x, b, upper={up})", f"linalg.solve_triangular(x, b, {{ upper = {u} }})", x=pos(3, 3), b=d(3, 2))
    case("linalg solve_triangular", f"linalg.solve_triangular(x, b, upper={up}, left=False, unitriangular=True)",
         f"linalg.solve_triangular(x, b, {{ upper = {u}, left = false, unitriangular = true }})", x=pos(3, 3), b=d(2, 3))
    t = "triu" if up else "tril"
    case("torch,Tensor cholesky_solve", f"b.cholesky_solve(x.{t}(), {up})", f"b:cholesky_solve(x:{t}(), {u})", x=pos(3, 3), b=d(3, 2))
    case("torch,Tensor cholesky_inverse", f"x.{t}().cholesky_inverse({up})", f"x:{t}():cholesky_inverse({u})", x=pos(3, 3))
    for t in (True, False):
        case("torch,Tensor triangular_solve", f"b.triangular_solve(x, {up}, {t})", f"b:triangular_solve(x, {u}, {str(t).lower()})", x=pos(3, 3), b=d(3, 2))
for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 2)):
    case("linalg pinv", "linalg.pinv(x)", tol=1e-11, x=d(*shape))
case("torch,Tensor pinverse", "x.pinverse()", tol=1e-11, x=d(4, 2))
case("linalg pinv", f"linalg.pinv({SYM}, hermitian=True)", f"linalg.pinv({SYML}, {{ hermitian = true }})", tol=1e-11, x=d(3, 3))
case("linalg pinv", "linalg.pinv(x, atol=1.0, rtol=0.1)", "linalg.pinv(x, { atol = 1.0, rtol = 0.1 })", grad=False, tol=1e-11, x=d(3, 3))
for shape in ((3, 3), (4, 2), (2, 4)):
    case("linalg matrix_rank", "linalg.matrix_rank(x)", grad=False, x=d(*shape))
case("linalg matrix_rank", "linalg.matrix_rank(x, atol=1.0)", "linalg.matrix_rank(x, { atol = 1.0 })", grad=False, x=d(2, 3, 3))
case("linalg matrix_rank", f"linalg.matrix_rank({SYM}, hermitian=True, rtol=0.3)", f"linalg.matrix_rank({SYML}, {{ hermitian = true, rtol = 0.3 }})",
     grad=False, x=d(2, 3, 3))
case("linalg matrix_rank", "linalg.matrix_rank(x)", grad=False, x=lit([[1.0, 2], [2, 4]]))
for driver in ("gels", "gelsy", "gelsd", "gelss"):
    case("linalg lstsq", f"linalg.lstsq(x, b, driver='{driver}')[0]", f"(linalg.lstsq(x, b, {{ driver = '{driver}' }}))", tol=1e-11, x=d(4, 2), b=d(4, 3))
    case("linalg lstsq", f"linalg.lstsq(x, b, driver='{driver}')[1:]", f"select(2, linalg.lstsq(x, b, {{ driver = '{driver}' }}))", grad=False, tol=1e-11,
         x=d(2, 4, 2), b=d(2, 4, 3))
    case("linalg lstsq", f"linalg.lstsq(x, b, driver='{driver}')", f"linalg.lstsq(x, b, {{ driver = '{driver}' }})", grad=False, tol=1e-11, x=d(2, 4), b=d(2, 2))
case("linalg lstsq", "linalg.lstsq(x, b).solution", "(linalg.lstsq(x, b))", grad=False, tol=1e-11, x=d(2, 4, 2), b=d(2, 4))
case("linalg lstsq", "linalg.lstsq(x, b).rank", "(select(3, linalg.lstsq(x, b)))", grad=False, x=lit([[1.0, 2], [2, 4], [0, 0]]), b=d(3, 1))
case("linalg tensorinv", "linalg.tensorinv(x, ind=1)", "linalg.tensorinv(x, { ind = 1 })", x=d(4, 2, 2))
case("linalg tensorinv", "linalg.tensorinv(x)", x=d(2, 3, 6))
case("linalg tensorsolve", "linalg.tensorsolve(x, b)", x=d(2, 2, 4), b=d(2, 2))
case("linalg tensorsolve", "linalg.tensorsolve(x, b, dims=(0,))", "linalg.tensorsolve(x, b, { dims = { 1 } })", x=d(2, 6, 3), b=d(6))
fails("linalg tensorinv", "linalg.tensorinv(x)", x=d(2, 2, 3))

# determinants, powers, norms
for shape in ((3, 3), (2, 3, 3), (1, 1), (0, 0)):
    case("linalg det", "linalg.det(x)", x=d(*shape))
    case("linalg slogdet", "linalg.slogdet(x)", x=d(*shape))
    case("torch,Tensor det", "x.det()", x=d(*shape))
    case("torch,Tensor slogdet", "x.slogdet()", x=d(*shape))
    case("torch,Tensor logdet", "(x @ x.mT).logdet()", "(x:matmul(x:transpose(-1, -2))):logdet()", x=d(*shape))
case("torch,Tensor logdet", "x.logdet()", grad=False, x=d(4, 3, 3))
for n in (-2, -1, 0, 1, 2, 3, 5):
    case("linalg matrix_power", f"linalg.matrix_power(x, {n})", tol=1e-11, x=d(2, 2, 2))
case("torch,Tensor matrix_power", "x.matrix_power(3)", x=d(3, 3))
case("linalg matrix_exp", "linalg.matrix_exp(x)", x=d(2, 3, 3))
case("linalg matrix_exp", "linalg.matrix_exp(x * 20)", tol=1e-10, x=unit(2, 2))
case("torch,Tensor matrix_exp", "x.matrix_exp()", x=d(3, 3, dtype="f32"))
case("linalg multi_dot", "linalg.multi_dot([x, b, c])", x=d(3), b=d(3, 4), c=d(4, 2))
case("linalg matmul", "linalg.matmul(x, b)", x=d(2, 3), b=d(2, 3, 4))
case("linalg vecdot", "linalg.vecdot(x, b)", x=d(2, 3), b=d(3))
case("linalg vecdot", "linalg.vecdot(x, b, dim=0)", "linalg.vecdot(x, b, { dim = 1 })", x=d(2, 3), b=d(2, 3))
case("linalg cross", "linalg.cross(x, b)", x=d(2, 3), b=d(1, 3))
case("linalg cross", "linalg.cross(x, b, dim=0)", "linalg.cross(x, b, { dim = 1 })", x=d(3, 2), b=d(3, 2))
fails("linalg cross", "linalg.cross(x, b)", x=d(2, 4), b=d(2, 4))
case("linalg diagonal", "linalg.diagonal(x)", x=d(2, 3, 4))
case("linalg diagonal", "linalg.diagonal(x, offset=1, dim1=0, dim2=2)", "linalg.diagonal(x, { offset = 1, dim1 = 1, dim2 = 3 })", x=d(3, 2, 4))
case("linalg vander", "linalg.vander(x)", x=d(2, 3))
case("linalg vander", "linalg.vander(x, N=5)", "linalg.vander(x, { N = 5 })", x=d(3))
case("linalg vander", "linalg.vander(x)", x=i(4))
for p in ("2", "1", "0", "-1", "3.5", "float('inf')", "-float('inf')"):
    l = p.replace("float('inf')", "math.huge")
    case("linalg vector_norm", f"linalg.vector_norm(x, {p})", f"linalg.vector_norm(x, {l})", grad=p != "0", x=d(2, 3))
    case("linalg vector_norm", f"linalg.vector_norm(x, {p}, dim=1, keepdim=True)", f"linalg.vector_norm(x, {l}, {{ dim = 2, keepdim = true }})", grad=p != "0", x=d(2, 3))
    case("linalg norm", f"linalg.norm(x, {p}, dim=0)", f"linalg.norm(x, {l}, {{ dim = 1 }})", grad=p != "0", x=d(2, 3))
case("linalg vector_norm", "linalg.vector_norm(x, dtype=torch.float64)", "linalg.vector_norm(x, { dtype = 'f64' })", grad=False, x=d(3, dtype="f32"))
fails("linalg vector_norm", "linalg.vector_norm(x, float('inf'))", "linalg.vector_norm(x, math.huge)", x=d(0))
for p in ("'fro'", "'nuc'", "1", "-1", "2", "-2", "float('inf')", "-float('inf')"):
    l = p.replace("float('inf')", "math.huge")
    case("linalg matrix_norm", f"linalg.matrix_norm(x, {p})", f"linalg.matrix_norm(x, {l})", tol=1e-11, x=d(2, 3, 4))
    case("linalg matrix_norm", f"linalg.matrix_norm(x, {p}, dim=(2, 0), keepdim=True)", f"linalg.matrix_norm(x, {l}, {{ dim = {{ 3, 1 }}, keepdim = true }})",
         tol=1e-11, x=d(2, 3, 4))
    case("linalg norm", f"linalg.norm(x, {p})", f"linalg.norm(x, {l})", tol=1e-11, x=d(3, 2))
    case("linalg cond", f"linalg.cond(x, {p})", f"linalg.cond(x, {l})", grad=p in ("2", "-2"), tol=1e-10, x=d(2, 3, 3))  # others raise in backward there
case("linalg norm", "linalg.norm(x)", x=d(2, 3, 4))
case("linalg norm", "linalg.norm(x, dim=(0, 1))", "linalg.norm(x, { dim = { 1, 2 } })", x=d(2, 3, 4))
fails("linalg norm", "linalg.norm(x, 2)", x=d(2, 3, 4))
fails("linalg matrix_norm", "linalg.matrix_norm(x, 3)", x=d(2, 3))
case("linalg cond", "linalg.cond(x)", tol=1e-10, x=d(4, 2))
case("linalg cond", "linalg.cond(torch.zeros(2, 2), 1)", "linalg.cond(accel.zeros(2, 2), 1)")
case("torch frobenius_norm", "torch.frobenius_norm(x, (0, 1), True)", "accel.frobenius_norm(x, { 1, 2 }, true)", x=d(2, 3))
case("torch nuclear_norm", "torch.nuclear_norm(x)", tol=1e-11, x=d(3, 2))
case("torch svd_lowrank", "torch.svd_lowrank(x, q=3)[1]", "(select(2, accel.svd_lowrank(x, { q = 3 })))", grad=False, tol=1e-10, x=d(5, 3))
case("torch svd_lowrank", "torch.svd_lowrank(x, q=3)[1]", "(select(2, accel.svd_lowrank(x, { q = 3 })))", grad=False, tol=1e-10, x=d(3, 5))
p, l = parts("torch.pca_lowrank(x)", "accel.pca_lowrank(x)", "r[1], r[0] ** 2, r[2] ** 2", "s, u ^ 2, v ^ 2", "u, s, v")
case("torch pca_lowrank", p, l, grad=False, tol=1e-9, x=d(6, 3))
case("torch,Tensor lu", "x.lu()", x=d(2, 3, 3))
case("torch,Tensor lu", "torch.lu(x, get_infos=True)", "accel.lu(x, { get_infos = true })", x=d(3, 3))

# eigenvalues of any matrix: sums that do not depend on their order and on the phases of vectors
def z(*shape):
    if len(shape) == 0: return complex(round(_draw.gauss(0, 1), 1), round(_draw.gauss(0, 1), 1))
    return [z(*shape[1:]) for _ in range(shape[0])]


def zs(*shape): return lit(z(*shape), dtype="c128")


EIG = ("(lambda r: ((r[0] ** 2).sum(-1), ((r[1].abs() ** 2) * r[0].unsqueeze(-2)).sum(-1)))(linalg.eig(x))",
       "(function(w, V) return (w * w):sum(-1), ((V:abs() ^ 2) * w:unsqueeze(-2)):sum(-1) end)(linalg.eig(x))")
for x in (d(3, 3), d(2, 4, 4), zs(3, 3), zs(2, 2, 2)):
    case("linalg eig", *EIG, tol=1e-11, x=x)
    case("linalg eigvals", "(linalg.eigvals(x) ** 3).sum(-1)", "(function(w) return (w * w * w):sum(-1) end)(linalg.eigvals(x))", tol=1e-11, x=x)
case("linalg eigvals", "linalg.eigvals(x).abs().amax()", "linalg.eigvals(x):abs():amax()", tol=1e-5, x=d(3, 3, dtype="f32"))
fails("linalg eigvals", "linalg.eigvals(x)", x=d(2, 3))
fails("linalg eig", "linalg.eig(x)", x=d(3))
# complex matrices
one = zs(3, 3)
for x in (one, zs(2, 3, 3)):
    case("linalg inv", "linalg.inv(x)", tol=1e-11, x=x)
    case("linalg det", "linalg.det(x)", tol=1e-11, x=x)
    case("linalg slogdet", "linalg.slogdet(x)", tol=1e-11, x=x)
    case("linalg solve", "linalg.solve(x, b)", tol=1e-11, x=x, b=zs(3, 2))
    case("linalg solve", "linalg.solve(x, b, left=False)", "linalg.solve(x, b, { left = false })", tol=1e-11, x=x,
         b=zs(2, 3) if x is one else zs(2, 2, 3))
    case("linalg qr", "(lambda r: (r[0].abs(), r[1].abs()))(linalg.qr(x))",
         "(function(q, r) return q:abs(), r:abs() end)(linalg.qr(x))", tol=1e-11, x=x)
    for up in (False, True):
        case("linalg cholesky", f"linalg.cholesky(x @ x.mH + 2 * torch.eye(3), upper={up})",
             f"linalg.cholesky(x:matmul(x:transpose(-1, -2):conj()) + 2 * accel.eye(3, {{ dtype = 'f64' }}), {{ upper = {str(up).lower()} }})", tol=1e-11, x=x)
case("linalg solve", "linalg.solve(x, b)", tol=1e-11, x=zs(3, 3), b=zs(3))
case("linalg qr", "(lambda r: (r[0].abs(), r[1].abs()))(linalg.qr(x))", "(function(q, r) return q:abs(), r:abs() end)(linalg.qr(x))", tol=1e-11, x=zs(4, 2))
fails("linalg inv", "linalg.inv(x * 0)", x=zs(2, 2))
