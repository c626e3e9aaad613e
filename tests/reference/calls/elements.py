# Elements by index, scattering and products.
X = lambda: f(2, 3)
I = lambda *v: lit(list(v), "i64")
case("Tensor,torch take", "torch.take(x, z)", x=X(), z=I(0, 5, -1, 2))
case("Tensor take", "x.take(z)", x=X(), z=lit([[0, 1], [1, 5]], "i64"))
fails("Tensor take", "x.take(z)", x=X(), z=I(6))
case("Tensor,torch put", "torch.put(x, z, v)", x=X(), z=I(0, -1), v=f(2))
case("Tensor put_", "y.put_(z, v, True)", x=X(), z=I(0, 4, 0), v=f(3))
case("torch unravel_index", "torch.unravel_index(z, (2, 3))", "accel.unravel_index(z, { 2, 3 })", z=lit([[0, 5], [3, 1]], "i64"))
for n in "nonzero argwhere".split():
    case(f"Tensor,torch {n}", f"torch.{n}(x)", x=i(2, 3, lo=0, hi=2))
case("Tensor nonzero", "x.nonzero(as_tuple=True)", "x:nonzero { as_tuple = true }", x=i(2, 3, lo=0, hi=2))
case("Tensor,torch nonzero_static", "torch.nonzero_static(x, size=2)", "accel.nonzero_static(x, { size = 2 })", x=lit([0, 1, 2, 3], "i64"))
case("Tensor nonzero_static", "x.nonzero_static(size=3, fill_value=7)", "x:nonzero_static { size = 3, fill_value = 7 }", x=lit([0, 1, 0, 0], "i64"))
case("Tensor,torch select_scatter", "torch.select_scatter(x, v, 1, 2)", "accel.select_scatter(x, v, 2, 3)", x=X(), v=f(2))
case("Tensor,torch slice_scatter", "torch.slice_scatter(x, v, 1, 1, 3)", "accel.slice_scatter(x, v, 2, 2, 3)", x=X(), v=f(2, 2))
case("Tensor,torch diagonal_scatter", "torch.diagonal_scatter(x, v, 1)", x=f(3, 3), v=f(2))
case("Tensor,torch as_strided_scatter", "torch.as_strided_scatter(x, v, (2, 2), (1, 2), 1)", "accel.as_strided_scatter(x, v, { 2, 2 }, { 1, 2 }, 1)",
     x=f(2, 3), v=f(2, 2))
fails("torch select_scatter", "torch.select_scatter(x, v, 1, 2)", "accel.select_scatter(x, v, 2, 3)", x=X(), v=f(3))
case("Tensor index_add_", "y.index_add_(0, z, v)", "y:index_add_(1, z, v)", x=f(3, 2), z=I(0, 2, 0), v=f(3, 2))
case("Tensor index_add_", "y.index_add_(1, z, v, alpha=2)", "y:index_add_(2, z, v, { alpha = 2 })", x=f(2, 3), z=I(0, 2), v=f(2, 2))
case("Tensor,torch index_copy", "torch.index_copy(x, 0, z, v)", "accel.index_copy(x, 1, z, v)", x=f(3, 2), z=I(0, 2), v=f(2, 2))
case("Tensor,torch index_fill", "x.index_fill(0, z, 2.5)", "x:index_fill(1, z, 2.5)", x=f(3, 2), z=I(0, 2))
case("Tensor,torch index_fill", "x.index_fill(1, z, v)", "x:index_fill(2, z, v)", x=f(3, 2), z=I(0), v=f())
case("Tensor index_fill_", "y.index_fill_(1, z, v)", "y:index_fill_(2, z, v)", x=f(3, 2), z=I(0), v=f())
case("Tensor,torch index_put", "x.index_put([z], v, True)", "x:index_put({ z }, v, true)", x=f(3), z=I(0, 2, 0), v=f(3))
case("Tensor,torch masked_fill", "x.masked_fill(m, v)", x=X(), m=b(2, 3), v=f())
case("Tensor masked_fill_", "y.masked_fill_(m, 3.0)", x=X(), m=b(3))
case("Tensor,torch masked_scatter", "x.masked_scatter(m, v)", x=X(), m=b(2, 3), v=f(6))
case("Tensor,torch take_along_dim", "torch.take_along_dim(x, z, 1)", "accel.take_along_dim(x, z, 2)", x=X(), z=lit([[0, 2], [1, 1]], "i64"))
case("torch take_along_dim", "torch.take_along_dim(x, z, 1)", "accel.take_along_dim(x, z, 2)", x=X(), z=lit([[-1], [-3]], "i64"))
case("torch take_along_dim", "torch.take_along_dim(x, z)", x=X(), z=lit([[5], [0]], "i64"))
fails("torch take_along_dim", "torch.take_along_dim(x, z)", x=X(), z=lit([[-1], [0]], "i64"))
case("Tensor narrow", "x.narrow(0, z, 2)", "x:narrow(1, z, 2)", x=f(4, 3), z=lit(1, "i64"))
case("Tensor index", "x[z]", "x[z]", x=X(), z=I(1, 0))
# products and norms
case("Tensor,torch inner", "torch.inner(x, z)", x=X(), z=f(4, 3))
case("Tensor inner", "x.inner(z)", x=f(3), z=f(3))
case("torch inner", "torch.inner(x, z)", x=f(), z=f(3))
fails("torch inner", "torch.inner(x, z)", x=f(2), z=f(3))
case("Tensor,torch kron", "torch.kron(x, z)", x=X(), z=f(2, 2))
case("Tensor,torch kron", "x.kron(z)", x=f(2), z=f(2, 2))
case("torch tensordot", "torch.tensordot(x, z, dims=1)", "accel.tensordot(x, z, { dims = 1 })", x=X(), z=f(3, 2))
case("torch tensordot", "torch.tensordot(x, z)", x=f(2, 3, 2), z=f(3, 2, 2))
case("torch tensordot", "torch.tensordot(x, z, dims=([1, 0], [0, 1]))", "accel.tensordot(x, z, { dims = { { 2, 1 }, { 1, 2 } } })", x=X(), z=f(3, 2, 2))
case("torch tensordot", "torch.tensordot(x, z, dims=0)", "accel.tensordot(x, z, { dims = 0 })", x=f(2), z=f(2))
fails("torch tensordot", "torch.tensordot(x, z, dims=1)", "accel.tensordot(x, z, { dims = 1 })", x=X(), z=f(2, 3))
case("Tensor dist", "x.dist(z)", x=X(), z=f(3))
case("Tensor dist", "x.dist(z, 1)", x=X(), z=X())
for n in "outer ger".split():
    case(f"Tensor,torch {n}", f"torch.{n}(x, z)", x=f(2), z=f(3))
for n, s in (("addbmm", ((2, 2, 3), (2, 3, 4))), ("addmv", ((2, 3), (3,))), ("addr", ((2,), (4,))), ("addmm", ((2, 3), (3, 4))),
             ("baddbmm", ((2, 2, 3), (2, 3, 4)))):
    full = {"addmv": (2,), "baddbmm": (2, 2, 4)}.get(n, (2, 4))
    space = "Tensor,torch" 
    case(f"{space} {n}", f"torch.{n}(x, z, v)", x=f(*full), z=f(*s[0]), v=f(*s[1]))
    case(f"{space} {n}", f"x.{n}(z, v, beta=0.5, alpha=2)", f"x:{n}(z, v, {{ beta = 0.5, alpha = 2 }})", x=f(*full[-1:]) if n != "addmv" else f(1),
         z=f(*s[0]), v=f(*s[1]))
    case(f"Tensor {n}_", f"y.{n}_(z, v)", x=f(*full), z=f(*s[0]), v=f(*s[1]))
    if n == "addmv":
        case("torch addmv_", "torch.addmv_(y, z, v)", "y:addmv_(z, v)", x=f(*full), z=f(*s[0]), v=f(*s[1]))
fails("Tensor addmm_", "y.addmm_(z, v)", x=f(4), z=f(2, 3), v=f(3, 4))
case("Tensor,torch bmm", "torch.bmm(x, z)", x=f(2, 2, 3), z=f(2, 3, 2))
case("Tensor,torch svd", "torch.svd(x)[1]", "(select(2, accel.svd(x)))", grad=False, x=f(3, 2))
case("Tensor,torch qr", "torch.linalg.qr(x)[1].abs()", "select(2, accel.qr(x)):abs()", grad=False, x=f(3, 2))
# a tensor of rank 0 counts as one dim
for n, more in (("index_fill", "2.5"), ("index_copy", "v"), ("index_add", "v")):
    case(f"Tensor,torch {n}", f"x.{n}(0, z, {more})", f"x:{n}(1, z, {more})", x=f(), z=I(0), v=f())
    case(f"Tensor {n}_", f"y.{n}_(0, z, {more})", f"y:{n}_(1, z, {more})", x=f(), z=I(0), v=f())
case("Tensor index_fill", "x.index_fill(0, z, v)", "x:index_fill(1, z, v)", x=f(), z=I(0, 0), v=f())
fails("Tensor index_fill", "x.index_fill(0, z, 1)", "x:index_fill(1, z, 1)", x=f(), z=I(1))
fails("Tensor index_add", "x.index_add(0, z, v)", "x:index_add(1, z, v)", x=f(), z=I(0, 0), v=f())
# bounds of clamp: a missing one promotes nothing and cuts nothing
for n in "clamp_min clamp_max".split():
    for x_, y_ in ((b(4), b(4)), (b(4), i(4)), (b(4), f(4, dtype="f32")), (i(4), b(4)), (i(4, dtype="i32"), i(4)), (f(4, dtype="f32"), b(4))):
        case(f"Tensor,torch {n}", f"x.{n}(v)", grad=False, x=x_, v=y_)
    case(f"Tensor,torch {n}", f"x.{n}(v)", grad=False, x=i(3), v=lit([1e30, -1e30, 0.5], dtype="f32"))
for dt in "bf16 f16 f32 f64".split():
    case("torch angle", "torch.angle(x)", x=lit([2.0, -1.0, 0.0, float("inf"), float("-inf")], dtype=dt))
case("torch histc", "x.histc(10, 0, 1)", grad=False, x=lit([0.1 * k for k in range(10)] + [0.29, 0.58, 1.0]))
case("torch histc", "x.histc(999, -3, 7)", grad=False, x=lit([-3 + 10 * k / 999 for k in range(0, 999, 7)]))
