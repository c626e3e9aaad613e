import random as _random

# Complex tensors: c128 inputs take part in gradients, which must be PyTorch's (the conjugate Wirtinger derivative).
def c(*values, shape=None, dtype="c128"):
    return lit([complex(a, b) for a, b in values], dtype=dtype)


z = c((1.5, -0.5), (-0.25, 2), (-1, -0.75), (0.5, 0.5))
w = c((0.75, 1), (2, -0.5), (0.3, 0.2), (-1.5, 0.25))
z32 = c((1.5, -0.5), (-0.25, 2), (-1, -0.75), dtype="c64")
m = lit([[complex(1, 2), complex(-0.5, 1)], [complex(0.25, -1), complex(2, 0.5)]], dtype="c128")
k = lit([[complex(0.5, -1), complex(1, 0.25)], [complex(-1, -1), complex(0.1, 2)]], dtype="c128")

for n in """exp log log2 log10 log1p expm1 sqrt rsqrt reciprocal square sin cos tan sinh cosh tanh sigmoid abs angle sgn conj conj_physical neg
        sum mean isnan isinf isfinite clone isreal resolve_conj resolve_neg""".split():
    case(f"Tensor,torch {n}" if n != "clone" else "Tensor clone", f"x.{n}()", x=z)
    if n not in ("clone", "tan", "tanh", "sigmoid", "log1p", "expm1"):
        case(f"torch {n}", f"torch.{n}(x)", x=z32)
for n in "isreal angle conj sgn is_complex is_conj resolve_conj resolve_neg".split():
    case(f"Tensor,torch {n}", f"x.{n}()", x=f(4))
case("torch angle", "torch.angle(x)", x=i(5))
for n in "is_complex is_conj".split():
    case(f"Tensor,torch {n}", f"torch.{n}(x)", f"accel.{n}(x)" if n == "is_complex" else f"x:{n}()", x=z)
case("Tensor sgn_", "y.sgn_()", x=z)
case("torch sgn", "torch.sgn(x)", x=f(4))
case("Tensor,torch conj_physical_", "y.conj_physical_()", x=z)
case("torch real", "torch.real(x)", x=z)
case("Tensor real", "x.real", "x:real()", x=z)
case("torch real", "torch.real(x)", x=f(3))
case("torch imag", "torch.imag(x)", x=z)
case("Tensor imag", "x.imag", "x:imag()", x=z)
fails("torch,Tensor imag", "torch.imag(x)", x=f(3))
case("torch complex", "torch.complex(x, y)", x=f(2, 3), y=f(2, 3))
case("torch complex", "torch.complex(x, y)", x=f(2, dtype="f32"), y=f(2, dtype="f32"))
fails("torch complex", "torch.complex(x, y)", x=f(2), y=f(2, dtype="f32"))
fails("torch complex", "torch.complex(x, y)", x=i(2), y=i(2))
case("torch polar", "torch.polar(x, y)", x=pos(2, 3), y=f(2, 3))
case("torch view_as_real", "torch.view_as_real(x)", x=z)
case("torch view_as_complex", "torch.view_as_complex(x)", x=f(3, 2))
fails("torch view_as_real", "torch.view_as_real(x)", x=f(3))
fails("torch view_as_complex", "torch.view_as_complex(x)", x=f(3))
fails("torch view_as_complex", "torch.view_as_complex(x)", x=i(3, 2))
fails("torch view_as_complex", "torch.view_as_complex(x.t())", x=f(2, 3))
case("Tensor H", "x.H", x=m)
case("Tensor mH", "x.mH", x=m)
case("Tensor,torch adjoint", "x.adjoint()", x=m)
case("Tensor item", "x.sum().item().imag", "x:sum():item().imag", x=z)

# two arguments: complex with complex, real, number, of both sides and several dtypes
for n in "add sub mul div".split():
    case(f"Tensor,torch {n}", f"x.{n}(y)", x=z, y=w)
    case(f"Tensor {n}", f"x.{n}(y)", x=z, y=pos(4))
    case(f"Tensor {n}", f"y.{n}(x)", x=z, y=pos(4))
    case(f"Tensor {n}", f"x.{n}(2.5)", x=z)
    case(f"torch {n}", f"torch.{n}(x, y)", x=z32, y=f(3))
    case(f"torch {n}", f"torch.{n}(x, y)", x=z32, y=lit(complex(2, -1), dtype="c128"), tol=1e-6)
    case(f"torch {n}", f"torch.{n}(x, y)", x=z32, y=lit(1.5), tol=1e-6)
    case(f"torch {n}", f"torch.{n}(x, y)", x=z32, y=i(3, lo=1, hi=4))
    case(f"torch {n}", f"torch.{n}(x, y)", x=f(2, dtype="f32"), y=lit(complex(2, -1), dtype="c128"), tol=1e-6)
    case(f"torch {n}", f"torch.{n}(x, y)", x=i(2), y=lit(complex(2, -1), dtype="c64"))
    case(f"torch {n}", f"torch.{n}(x.reshape(2, 1, 2), y)", f"accel.{n}(x:reshape(2, 1, 2), y)", x=z, y=m)
    case(f"Tensor {n}_", f"y.{n}_(w)", x=z, w=w)
    case(f"Tensor {n}_", f"y.{n}_(w)", x=z, w=pos(4))
    fails(f"Tensor {n}_", f"y.{n}_(w)", x=f(4), w=w)
case("torch add", "torch.add(x, y, alpha=2)", "accel.add(x, y, { alpha = 2 })", x=z, y=w)
case("torch div", "2 / x", x=z)
case("torch mul", "x * x.conj()", x=z)
for p in (0, 1, 2, 3, -1, 0.5, 2.5):
    case("torch,Tensor pow", f"x.pow({p})", x=z)
case("Tensor pow", "x.pow(y)", x=z, y=w)
case("Tensor pow", "x.pow(y)", x=z, y=f(4))
case("Tensor pow", "y.pow(x)", x=z, y=pos(4))
case("torch pow", "torch.pow(2.5, x)", x=z)
case("torch,Tensor lerp", "x.lerp(y, 0.25)", x=z, y=w)
case("torch,Tensor addcmul", "x.addcmul(y, y, value=0.5)", "x:addcmul(y, y, { value = 0.5 })", x=z, y=w)
case("torch,Tensor addcdiv", "x.addcdiv(y, y, value=0.5)", "x:addcdiv(y, y, { value = 0.5 })", x=z, y=w)
for n in "eq ne".split():
    case(f"torch,Tensor {n}", f"x.{n}(y)", x=z, y=c((1.5, -0.5), (-0.25, 1), (1, -0.75), (0.5, 0.5)))
    case(f"torch,Tensor {n}", f"x.{n}(2)", x=c((2, 0), (2, 1)))
for n in "lt le gt ge maximum minimum atan2 fmod remainder floor_divide".split():
    fails(f"torch,Tensor {n}", f"x.{n}(y)", x=z, y=w)
for n in "sign floor ceil round trunc relu erf sort argsort argmax argmin max min amax amin cummax median logsumexp clamp_min".split():
    fails(f"torch,Tensor {n}", f"x.{n}()" if n not in ("clamp_min",) else "x.clamp(0)", "x:clamp(0)" if n == "clamp_min" else None, x=z)

# products
case("torch,Tensor matmul", "x.matmul(y)", x=m, y=k)
case("torch,Tensor matmul", "x.matmul(y)", x=m, y=c((1, 2), (3, -1)))
fails("torch,Tensor matmul", "x.matmul(y)", x=m, y=f(2, 2))
case("torch,Tensor mm", "x.mm(y)", x=m, y=k)
case("torch,Tensor bmm", "x.unsqueeze(0).bmm(y.unsqueeze(0))", "x:unsqueeze(1):bmm(y:unsqueeze(1))", x=m, y=k)
case("torch,Tensor mv", "x.mv(y)", x=m, y=c((1, 2), (3, -1)))
case("torch,Tensor dot", "x.dot(y)", x=z, y=w)
case("torch,Tensor outer", "x.outer(y)", x=z, y=w)
case("torch einsum", 'torch.einsum("ij,jk->ik", x, y)', 'accel.einsum("ij,jk->ik", {x, y})', x=m, y=k)
case("torch,Tensor addmm", "x.addmm(y, x, beta=0.5, alpha=2)", "x:addmm(y, x, { beta = 0.5, alpha = 2 })", x=m, y=k)
case("F linear", "F.linear(x, y)", x=m, y=k)

# reductions
for dims in ("", "0", "1, True"):
    lua = {"": "", "0": "1", "1, True": "2, true"}[dims]
    for n in "sum mean var std".split():
        args = dims if n in ("sum", "mean") else dims.replace("1, True", "1, keepdim=True")
        if n in ("var", "std") and "True" in dims:
            case(f"torch,Tensor {n}", f"x.{n}({args})", f"x:{n}(2, {{ keepdim = true }})", x=m)
        else:
            case(f"torch,Tensor {n}", f"x.{n}({args})", f"x:{n}({lua})", x=m)
case("torch,Tensor norm", "x.norm()", x=m)
case("torch,Tensor norm", "x.norm(1, 0)", "x:norm(1, 1)", x=m)
case("torch,Tensor cumsum", "x.cumsum(0)", "x:cumsum(1)", x=m)
for n in "any all count_nonzero nonzero".split():
    case(f"torch,Tensor {n}", f"x.{n}()", x=c((0, 0), (1, 0), (0, -2)))
case("torch,Tensor trace", "x.trace()", x=m)
case("torch,Tensor isclose", "x.isclose(y)", x=z, y=z)
case("torch,Tensor diff", "x.diff()", x=z)

# bytes that move
for names, py, lua in (
        ("torch,Tensor t", "x.t()", None), ("torch,Tensor transpose", "x.transpose(0, 1)", "x:transpose(1, 2)"),
        ("Tensor,torch reshape", "x.reshape(4)", None), ("Tensor view", "x.view(1, 4)", None), ("torch,Tensor flatten", "x.flatten()", None),
        ("torch,Tensor flip", "x.flip(0)", "x:flip(1)"), ("torch,Tensor roll", "x.roll(1, 0)", "x:roll(1, 1)"),
        ("torch,Tensor tile", "x.tile(2, 1)", None), ("torch cat", "torch.cat([x, x])", None), ("torch stack", "torch.stack([x, x], 1)", "accel.stack({x, x}, 2)"),
        ("torch,Tensor narrow", "x.narrow(0, 1, 1)", "x:narrow(1, 2, 1)"), ("torch,Tensor select", "x.select(1, 0)", "x:select(2, 1)"),
        ("torch,Tensor unbind", "x.unbind()", None), ("torch,Tensor chunk", "x.chunk(2)", None), ("torch,Tensor split", "x.split(1, 1)", "x:split(1, 2)"),
        ("torch,Tensor diagonal", "x.diagonal()", None), ("torch,Tensor diag", "x.diag()", None), ("torch,Tensor tril", "x.tril()", None),
        ("torch,Tensor triu", "x.triu()", None), ("Tensor expand", "x.unsqueeze(0).expand(2, 2, 2)", "x:unsqueeze(1):expand(2, 2, 2)"),
        ("torch,Tensor index_select", "x.index_select(0, j)", "x:index_select(1, j)"), ("torch,Tensor gather", "x.gather(0, j.reshape(1, 2))", "x:gather(1, j:reshape(1, 2))"),
        ("torch,Tensor masked_fill", "x.masked_fill(b, 2)", None), ("torch,Tensor masked_select", "x.masked_select(b)", None),
        ("torch where", "torch.where(b, x, y)", None), ("torch where", "torch.where(b, x, 0.0)", None),
        ("torch,Tensor index_add", "x.index_add(0, j, y)", "x:index_add(1, j, y)"), ("torch,Tensor index_copy", "x.index_copy(0, j, y)", "x:index_copy(1, j, y)"),
        ("torch,Tensor scatter_add", "x.scatter_add(0, j.reshape(1, 2), y[:1])", "x:scatter_add(1, j:reshape(1, 2), y:narrow(1, 1, 1))"),
        ("torch,Tensor index_fill", "x.index_fill(0, j[:1], 3)", "x:index_fill(1, j:narrow(1, 1, 1), 3)"), ("F pad", "F.pad(x, [1, 0])", None),
        ("F pad", "F.pad(x, [1, 0], value=2.0)", "F.pad(x, {1, 0}, { value = 2.0 })"), ("torch,Tensor repeat_interleave", "x.repeat_interleave(2, 0)", "x:repeat_interleave(2, 1)"),
        ("Tensor contiguous", "x.t().contiguous()", None), ("Tensor to", "x.to(torch.complex64)", 'x:to "complex64"'), ("Tensor T", "x.T", "x.T"),
        ("torch hstack", "torch.hstack([x, x])", None), ("torch vstack", "torch.vstack([x, x])", None), ("torch zeros_like", "torch.zeros_like(x)", None),
        ("torch ones_like", "torch.ones_like(x)", None), ("torch full_like", "torch.full_like(x, 2)", None), ("Tensor new_zeros", "x.new_zeros(2)", None)):
    case(names, py, lua, x=m, y=k, b=b(2, 2), j=lit([1, 0], dtype="i64"))
case("torch cat", "torch.cat([x, y])", x=z32, y=f(2))
case("Tensor copy_", "y.copy_(w)", grad=False, x=z, w=w)
case("Tensor copy_", "y.copy_(w)", grad=False, x=z, w=f(4))
case("Tensor zero_", "y.zero_()", x=z)
case("Tensor fill_", "y.fill_(2)", x=z)
case("torch zeros", "torch.zeros(2, dtype=torch.complex64)", 'accel.zeros(2, { dtype = "complex64" })')
case("torch ones", "torch.ones(2, dtype=torch.complex128)", 'accel.ones(2, { dtype = "c128" })')
case("torch eye", "torch.eye(2, dtype=torch.complex64)", 'accel.eye(2, { dtype = "c64" })')
case("torch full", "torch.full((2,), 1.5, dtype=torch.complex64)", 'accel.full({ 2 }, 1.5, { dtype = "c64" })')
case("torch randn", "torch.randn(3, dtype=torch.complex64)", 'accel.randn(3, { dtype = "c64" })', random=True)
case("torch rand", "torch.rand(3, dtype=torch.complex64)", 'accel.rand(3, { dtype = "c64" })', random=True)
case("Tensor to", "x.to(torch.complex128)", 'x:to "c128"', x=f(3))
case("Tensor to", "x.to(torch.complex64)", 'x:to "c64"', x=i(3))
case("Tensor bool", "x.bool()", x=c((0, 0), (0, 1), (1, 0)))
case("Tensor cfloat", "x.cfloat()", x=f(3))
case("Tensor cdouble", "x.cdouble()", x=f(3, dtype="f32"))
for n in "softmax log_softmax".split():
    fails(f"torch,Tensor {n}", f"x.{n}(0)" if n == "nothing" else f"x.{n}(0).gt(x.{n}(0))", f"x:{n}(1)", x=z)
# lists of positions, forms that conjugate, second derivatives at 0
P, V = lit([0, 1, 1], dtype="i64"), c((1, 2), (3, -4), (0.5, -1))
case("Tensor index", "x[j]", "x[{j}]", x=m, j=P)
case("Tensor index", "x[:, j]", "x[{{1, 2}, j}]", x=m, j=P)
case("Tensor index_put", "x.index_put((j,), v)", "x:index_put({j}, v)", x=m, j=lit([1], dtype="i64"), v=c((1, 2), (3, -4), shape=(2,)))
case("torch,Tensor isclose", "x.isclose(y)", None, x=V, y=c((1, 2), (3, -4.5), (0.9, -1)))
case("torch,Tensor isclose", "x.isclose(y, atol=0.6)", "x:isclose(y, { atol = 0.6 })", x=V, y=c((1, 2), (3, -4.5), (0.9, -1)))
case("torch,Tensor allclose", "x.allclose(x)", None, x=V)
case("linalg vecdot", "linalg.vecdot(x, y)", None, x=z, y=w)
case("linalg householder_product", "linalg.householder_product(x, y)", None, x=m, y=c((0.5, 1), (-1, 0.25)))
for left in (True, False):
    for t in (False, True):
        case("torch,Tensor ormqr", f"torch.ormqr(x, y, k, {left}, {t})", f"accel.ormqr(x, y, k, {str(left).lower()}, {str(t).lower()})",
             grad=False, x=m, y=c((0.5, 1), (-1, 0.25)), k=k)
case("torch gradient", "torch.gradient(x)[0]", "accel.gradient(x)[1]", x=z)
case("linalg cholesky", "(lambda L: (L @ L.mH, L.abs()))(linalg.cholesky(x @ x.mH + torch.eye(2)))",
     "(function(L) return L:matmul(L:transpose(-1, -2):conj()), L:abs() end)(linalg.cholesky(x:matmul(x:transpose(-1, -2):conj()) + accel.eye(2, { dtype = 'f64' })))", x=m)

# linear algebra of complex matrices: phases of vectors are free, so that magnitudes and products are compared
def cd(*shape):
    draw = _random.Random(sum(shape) * 7 + len(shape))
    return spec("lit", shape, "c128", values=[round(draw.gauss(0, 1), 2) for _ in range(2 * math.prod(shape))])


def parts(call, lua, python_of, lua_of, names):
    return f"(lambda r: ({python_of}))({call})", f"(function({names}) return {lua_of} end)({lua})"


HERM, HERML = "x + x.mH", "x + x:transpose(-1, -2):conj()"
for shape in ((3, 3), (4, 2), (2, 4), (2, 3, 2), (20, 18)):
    p, l = parts("linalg.svd(x, full_matrices=False)", "linalg.svd(x, false)", "r[1], r[0].abs(), r[2].abs(), r[0] @ r[2]",
                 "s, u:abs(), v:abs(), u:matmul(v)", "u, s, v")
    if shape != (20, 18):
        case("linalg svd", p, l, tol=1e-10, x=cd(*shape))
        case("linalg qr", "linalg.qr(x)", x=cd(*shape))
        case("linalg lu", "linalg.lu(x)", x=cd(*shape))
        case("linalg lu_factor", "linalg.lu_factor(x)", x=cd(*shape))
        case("linalg pinv", "linalg.pinv(x)", tol=1e-10, x=cd(*shape))
    case("linalg svdvals", "linalg.svdvals(x)", tol=1e-11, grad=shape != (20, 18), x=cd(*shape))
case("linalg qr", "linalg.qr(x, mode='complete')", "linalg.qr(x, { mode = 'complete' })", grad=False, x=cd(4, 2))
case("linalg qr", "linalg.qr(x, mode='complete')", "linalg.qr(x, { mode = 'complete' })", x=cd(2, 4))
case("linalg qr", "linalg.qr(x, mode='r')[1]", "select(2, linalg.qr(x, 'r'))", grad=False, x=cd(4, 2))
p, l = parts("linalg.svd(x)", "linalg.svd(x)", "r[0] @ r[0].mH, r[1], r[2] @ r[2].mH",
             "u:matmul(u:transpose(-1, -2):conj()), s, v:matmul(v:transpose(-1, -2):conj())", "u, s, v")
case("linalg svd", p, l, grad=False, x=cd(4, 2))
for uplo in "LU":
    p, l = parts(f"linalg.eigh({HERM}, '{uplo}')", f"linalg.eigh({HERML}, '{uplo}')", "r[0], r[1].abs() ** 2", "w, v:abs() ^ 2", "w, v")
    case("linalg eigh", p, l, tol=1e-11, x=cd(3, 3))
    case("linalg eigh", p, l, tol=1e-11, x=cd(2, 2, 2))
    case("linalg eigvalsh", f"linalg.eigvalsh(x, UPLO='{uplo}')", f"linalg.eigvalsh(x, {{ UPLO = '{uplo}' }})", grad=False, x=cd(4, 4))
case("linalg matrix_sqrth", "linalg.matrix_sqrth(x @ x.mH + torch.eye(3))",
     "linalg.matrix_sqrth(x:matmul(x:transpose(-1, -2):conj()) + accel.eye(3, { dtype = 'f64' }))", tol=1e-11, x=cd(3, 3)) if hasattr(torch.linalg, "matrix_sqrth") \
    else None
for o in ("", ", hermitian=True"):
    case("linalg pinv", f"linalg.pinv({HERM}{o})", f"linalg.pinv({HERML}{', { hermitian = true }' if o else ''})", tol=1e-10, x=cd(3, 3))
    case("linalg matrix_rank", f"linalg.matrix_rank({HERM}{o})", f"linalg.matrix_rank({HERML}{', { hermitian = true }' if o else ''})", grad=False, x=cd(3, 3))
case("linalg matrix_rank", "linalg.matrix_rank(x @ y)", "linalg.matrix_rank(x:matmul(y))", grad=False, x=cd(4, 2), y=cd(2, 4))
for a, b_ in (((4, 2), (4, 3)), ((2, 4), (2,)), ((3, 3), (3, 2))):
    case("linalg lstsq", "linalg.lstsq(x, y)[0]", "(linalg.lstsq(x, y))", tol=1e-10, x=cd(*a), y=cd(*b_))
case("linalg lstsq", "linalg.lstsq(x, y, driver='gelsd')[1:]", "select(2, linalg.lstsq(x, y, { driver = 'gelsd' }))", grad=False, tol=1e-11, x=cd(4, 2), y=cd(4, 3))
for ord in ("'nuc'", "2", "-2"):
    case("linalg matrix_norm", f"linalg.matrix_norm(x, {ord})", tol=1e-11, x=cd(3, 2))
case("linalg cond", "linalg.cond(x)", tol=1e-10, x=cd(3, 3))
case("linalg cond", "linalg.cond(x, 'nuc')", tol=1e-10, x=cd(3, 3))
for up in (True, False):
    for left in (True, False):
        for unit in (True, False):
            o = f"upper={up}, left={left}, unitriangular={unit}"
            lo = f"{{ upper = {up}, left = {left}, unitriangular = {unit} }}".replace("True", "true").replace("False", "false")
            case("linalg solve_triangular", f"linalg.solve_triangular(x.tri{'ul'[not up]}(), y, {o})", f"linalg.solve_triangular(x:tri{'ul'[not up]}(), y, {lo})",
                 tol=1e-11, x=cd(3, 3), y=cd(3, 2) if left else cd(2, 3))
    case("torch,Tensor cholesky_solve", f"y.cholesky_solve(x.tri{'ul'[not up]}(), upper={up})", f"y:cholesky_solve(x:tri{'ul'[not up]}(), {{ upper = {str(up).lower()} }})",
         tol=1e-11, grad=False, x=cd(3, 3), y=cd(3, 2))
for left in (True, False):
    for adjoint in (False, True):
        o = f"{{ left = {str(left).lower()}, adjoint = {str(adjoint).lower()} }}"
        case("linalg lu_solve", f"linalg.lu_solve(*linalg.lu_factor(x), y, left={left}, adjoint={adjoint})",
             f"(function(LU, p) return linalg.lu_solve(LU, p, y, {o}) end)(linalg.lu_factor(x))", tol=1e-11, x=cd(2, 3, 3), y=cd(*((2, 3, 2) if left else (2, 2, 3))))
fails("linalg svd", "linalg.svd(x)", x=lit([[complex(1, float("nan")), 1], [0, 1]], dtype="c128"))
fails("linalg eigh", "torch.autograd.grad(linalg.eigh(x + x.mH)[1].real.sum(), x)",
      "accel.grad({ (select(2, linalg.eigh(x + x:transpose(-1, -2):conj()))):real():sum() }, { x })", x=cd(3, 3))
for names, py, lua in (("torch,Tensor rot90", "x.rot90()", None), ("torch block_diag", "torch.block_diag(x, x)", "accel.block_diag { x, x }"),
                       ("torch,Tensor diag_embed", "x.diag_embed()", None), ("torch cartesian_prod", "torch.cartesian_prod(x[0], x[1])", "accel.cartesian_prod { x[1], x[2] }"),
                       ("torch,Tensor nan_to_num", "x.nan_to_num()", None), ("F unfold", "F.unfold(x[None, None], 2)", "F.unfold(x:unsqueeze(1):unsqueeze(1), { 2, 2 })")):
    case(names, py, lua, x=cd(3, 3))
