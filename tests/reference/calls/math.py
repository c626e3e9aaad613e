"""Special functions, statistics, pieces of matrices, joins by an index, random draws."""
TT = "Tensor,torch "
# maps
for name in "deg2rad rad2deg signbit".split():
    case(TT + name, f"x.{name}()", grad=name != "signbit", x=f(2, 3))
for name in "lgamma digamma".split():  # PyTorch's trigamma has 9 digits
    case(TT + name, f"x.{name}()", tol=1e-8, x=pos(2, 3))
for name in "erfinv sinc i0".split():
    case(TT + name, f"x.{name}()", x=unit(2, 3))
case("Tensor polygamma", "x.polygamma(1)", tol=1e-8, x=pos(2, 3))
case("torch polygamma", "torch.polygamma(2, x)", x=pos(2, 3))
case(TT + "mvlgamma", "(x + 2).mvlgamma(2)", x=pos(2, 3))
for name in "deg2rad rad2deg sinc erfinv i0".split():
    case(f"Tensor {name}_", f"y.{name}_()", x=unit(2, 3))
    if name in "deg2rad rad2deg sinc i0".split():
        case(f"torch {name}_", f"torch.{name}_(y)", x=unit(2, 3))
for name in "lgamma digamma".split():
    case(f"Tensor {name}_", f"y.{name}_()", tol=1e-8, x=pos(2, 3))
for name in "isposinf isneginf".split():
    case(TT + name, f"x.log().{name}()", f"x:log():{name}()", grad=False, x=lit([0.0, 1.0, -1.0]))
for name in "copysign fmax fmin hypot".split():
    case(TT + name, f"x.{name}(z)", x=f(2, 3), z=f(3))
for name in "copysign hypot".split():
    case(f"Tensor {name}_", f"y.{name}_(z)", grad=False, x=f(2, 3), z=f(3))
case(TT + "logaddexp2", "x.logaddexp2(z)", x=f(2, 3), z=f(3))
case(TT + "nextafter", "x.nextafter(z)", x=f(2, 3), z=f(2, 3), grad=False)
case("Tensor nextafter_", "y.nextafter_(z)", x=f(2, 3), z=f(2, 3), grad=False)
case(TT + "heaviside", "x.heaviside(z)", x=lit([-1.0, 0.0, 2.0]), z=lit([0.5, 0.25, 1.0]), grad=False)
case("Tensor heaviside_", "y.heaviside_(z)", x=lit([-1.0, 0.0, 2.0]), z=lit([0.5, 0.25, 1.0]), grad=False)
for name in "gcd lcm".split():
    case(TT + name, f"x.{name}(z)", x=i(2, 3, lo=1, hi=40), z=i(3, lo=1, hi=30))
    case(f"Tensor {name}_", f"y.{name}_(z)", x=i(2, 3, lo=1, hi=40), z=i(3, lo=1, hi=30))
    case(f"torch {name}_", f"torch.{name}_(y, z)", x=i(2, 3, lo=1, hi=40), z=i(3, lo=1, hi=30))
case(TT + "ldexp", "x.ldexp(z)", x=f(2, 3), z=i(3))
case(TT + "float_power", "x.float_power(2)", x=i(2, 3))
case(TT + "frexp", "x.frexp()", x=f(2, 3))
case("torch rsub", "torch.rsub(x, z, alpha=2)", "accel.rsub(x, z, { alpha = 2 })", x=f(2, 3), z=f(3))
for name in "igamma igammac".split():
    case("torch " + name if name == "igammac" else TT + name, f"torch.{name}(x, z)", x=pos(2, 3), z=pos(3), grad=False)
    case("Tensor " + name, f"x.{name}(z)", x=pos(2, 3), z=pos(3), grad=False)
    case(f"Tensor {name}_", f"y.{name}_(z)", x=pos(2, 3), z=pos(3), grad=False)
case("torch div", "torch.div(x, z, rounding_mode='trunc')", "accel.div(x, z, { rounding_mode = 'trunc' })", x=i(2, 3), z=i(3, lo=1, hi=4))
case("torch div", "torch.div(x, z, rounding_mode='floor')", "accel.div(x, z, { rounding_mode = 'floor' })", x=f(2, 3), z=pos(3))
case("Tensor round", "x.round(decimals=1)", "x:round { decimals = 1 }", x=f(2, 3))
# statistics
for name in "nansum nanmean".split():
    case(TT + name, f"x.log().{name}(1)", f"x:log():{name}(2)", grad=False, x=f(2, 4))
    case(TT + name, f"x.{name}()", x=f(2, 4))
case(TT + "nanmedian", "x.nanmedian()", x=f(2, 4))
case(TT + "nanmedian", "x.log().nanmedian(1)", "x:log():nanmedian(2)", grad=False, x=f(2, 5))
case(TT + "nanquantile", "x.nanquantile(0.3, 1)", "x:nanquantile(0.3, 2)", x=f(2, 5))
for name in "std_mean var_mean".split():
    case("torch " + name, f"torch.{name}(x, 1)", f"accel.{name}(x, 2)", x=f(2, 5))
    case("torch " + name, f"torch.{name}(x, 1, unbiased=False)", f"accel.{name}(x, 2, {{ unbiased = false }})", x=f(2, 5))
case(TT + "aminmax", "x.aminmax(dim=1)", "x:aminmax { dim = 2 }", x=f(2, 5))
case(TT + "kthvalue", "x.kthvalue(2)", x=f(2, 5))
case(TT + "mode", "x.mode()", x=i(2, 7))
case(TT + "logcumsumexp", "x.logcumsumexp(1)", "x:logcumsumexp(2)", x=f(2, 5))
case(TT + "cov", "x.cov(correction=0)", "x:cov { correction = 0 }", x=f(3, 5))
case(TT + "corrcoef", "x.corrcoef()", x=f(3, 5))
case(TT + "histc", "x.histc(4, -1, 1)", x=f(9), grad=False)
case("torch histogram", "torch.histogram(x, 4)", x=f(9), grad=False)
case("Tensor histogram", "x.histogram(z, density=True)", "x:histogram(z, { density = true })", x=f(9), z=lit([-1.0, 0.0, 0.5, 2.0]), grad=False)
for name in "trapezoid trapz".split():
    case("torch " + name, f"torch.{name}(x, dx=0.5)", f"accel.{name}(x, {{ dx = 0.5 }})", x=f(2, 4))
case("torch cumulative_trapezoid", "torch.cumulative_trapezoid(x, z)", x=f(2, 4), z=f(4))
case("torch gradient", "torch.gradient(x, spacing=0.5)", "accel.gradient(x, { spacing = 0.5 })", x=f(3, 4))
case("torch gradient", "torch.gradient(x, spacing=(z,), dim=1, edge_order=2)", "accel.gradient(x, { spacing = { z }, dim = 2, edge_order = 2 })",
     x=f(3, 4), z=lit([0.0, 1.0, 1.5, 4.0]), grad=False)
# pieces
case("torch cartesian_prod", "torch.cartesian_prod(x, z)", "accel.cartesian_prod { x, z }", x=f(2), z=f(3))
case("torch combinations", "torch.combinations(x, 2)", x=f(4))
case("torch combinations", "torch.combinations(x, 3, True)", x=f(3))
case("torch block_diag", "torch.block_diag(x, z)", "accel.block_diag { x, z }", x=f(2, 2), z=f(3))
case(TT + "diag_embed", "x.diag_embed(1)", x=f(2, 3))
case(TT + "rot90", "x.rot90(1, [0, 1])", "x:rot90(1, { 1, 2 })", x=f(2, 3))
case(TT + "cross", "x.cross(z, dim=1)", "x:cross(z, { dim = 2 })", x=f(2, 3), z=f(2, 3))
case("torch vander", "torch.vander(x, 3)", x=f(4), grad=False)
case(TT + "vdot", "x.vdot(z)", x=f(4), z=f(4))
case("torch chain_matmul", "torch.chain_matmul(x, z)", "accel.chain_matmul { x, z }", x=f(2, 3), z=f(3, 2))
case(TT + "renorm", "x.renorm(2, 0, 1.0)", "x:renorm(2, 1, 1.0)", x=f(2, 3))
case("torch pdist", "torch.pdist(x)", x=f(4, 3))
case("torch tril_indices", "torch.tril_indices(3, 4, 1)")
case("torch triu_indices", "torch.triu_indices(3, 4, -1)")
case("Tensor fill_diagonal_", "y.fill_diagonal_(2.0)", grad=False, x=f(3, 4))
case(TT + "unique_consecutive", "x.unique_consecutive(return_counts=True)", "x:unique_consecutive { return_counts = true }", x=i(12, lo=0, hi=2))
case("torch unique", "torch.unique(x, return_inverse=True)", "accel.unique(x, { return_inverse = true })", x=i(12, lo=0, hi=5))
case("torch searchsorted", "torch.searchsorted(x, z, side='right')", "accel.searchsorted(x, z, { side = 'right' })", x=lit([0.0, 1.0, 2.0]), z=f(5), grad=False)
case("torch diff", "torch.diff(x, prepend=z)", "accel.diff(x, { prepend = z })", x=f(2, 4), z=f(2, 1))
# joins by an index
for how in "sum prod mean amax amin".split():
    case(TT + "scatter_reduce", f"x.scatter_reduce(0, z, w, '{how}')", f"x:scatter_reduce(1, z, w, '{how}')",
         x=f(3, 2), z=i(4, 2, lo=0, hi=3), w=f(4, 2), grad=how != "prod")
for how in "prod mean amax".split():
    case(TT + "index_reduce", f"x.index_reduce(0, z, w, '{how}', include_self=False)",
         f"x:index_reduce(1, z, w, '{how}', {{ include_self = false }})", x=f(3, 2), z=i(4, lo=0, hi=3), w=f(4, 2), grad=False)
# draws
for name, args in (("exponential_", "2.0"), ("cauchy_", ""), ("geometric_", "0.5"), ("log_normal_", ""), ("random_", "5")):
    case("Tensor " + name, f"y.{name}({args})", random=True, grad=False, x=f(5))
case("torch normal", "torch.normal(x, 2.0)", random=True, grad=False, x=f(5))
case("torch poisson", "torch.poisson(x)", random=True, grad=False, x=pos(5))
case("torch randint_like", "torch.randint_like(x, 3)", random=True, grad=False, x=f(5))
for name in "Tensor torch".split():
    case(name + " bernoulli", "x.bernoulli(0.5)" if name == "Tensor" else "torch.bernoulli(x * 0)", random=True, grad=False, x=f(5))
# what both refuse
fails("Tensor gcd", "x.gcd(x)", x=f(3))
fails("Tensor kthvalue", "x.kthvalue(9)", x=f(3))
fails("Tensor exponential_", "y.exponential_(-1.0)", x=f(3))
fails("torch cartesian_prod", "torch.cartesian_prod(x)", "accel.cartesian_prod { x }", x=f(3, 2))
fails("torch histc", "torch.histc(x, 0)", x=f(3))
fails("Tensor mode", "x.mode(4)", "x:mode(5)", x=f(3))
fails("Tensor scatter_reduce", "x.scatter_reduce(0, z, x, 'median')", "x:scatter_reduce(1, z, x, 'median')", x=f(3), z=i(3, lo=0, hi=3))
