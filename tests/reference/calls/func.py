# torch.func. argnums and in_dims count from 0 in PyTorch, from 1 here.
func = torch.func
X, Y, W = dict(x=f(3)), dict(x=f(3), y=f(3)), dict(x=f(2, 3), y=f(3))
case("func grad", "torch.func.grad(lambda a: (a ** 3).sum())(x)", "accel.func.grad(function(a) return (a ^ 3):sum() end)(x)", **X)
case("func grad", "torch.func.grad(torch.func.grad(lambda a: a ** 3))(x[0])", "accel.func.grad(accel.func.grad(function(a) return a ^ 3 end))(x[1])", **X)
case("func grad", "torch.func.grad(lambda a, b: (a * b * b).sum(), argnums=1)(x, y)", "accel.func.grad(function(a, b) return (a * b * b):sum() end, 2)(x, y)", **Y)
case("func grad", "torch.func.grad(lambda a, b: (a * b * b).sum(), argnums=(0, -1))(x, y)",
     "accel.func.grad(function(a, b) return (a * b * b):sum() end, { argnums = { 1, -1 } })(x, y)", **Y)
case("func grad", "torch.func.grad(lambda a: ((a ** 2).sum(), a * 2), has_aux=True)(x)",
     "accel.func.grad(function(a) return (a ^ 2):sum(), a * 2 end, { has_aux = true })(x)", **X)
case("func grad_and_value", "torch.func.grad_and_value(lambda a: a.exp().sum())(x)", "accel.func.grad_and_value(function(a) return a:exp():sum() end)(x)", **X)
case("func grad_and_value", "torch.func.grad_and_value(lambda a: (a.exp().sum(), a + 1), has_aux=True)(x)",
     "accel.func.grad_and_value(function(a) return a:exp():sum(), a + 1 end, { has_aux = true })(x)", **X)
for n in ("jacrev", "jacfwd"):
    case(f"func {n}", f"torch.func.{n}(lambda a: a.sin().cumsum(0))(x)", f"accel.func.{n}(function(a) return a:sin():cumsum(1) end)(x)", **X)
    case(f"func {n}", f"torch.func.{n}(lambda a, b: (a * b, (a + b).sum()), argnums=(0, 1))(x, y)",
         f"accel.func.{n}(function(a, b) return {{ a * b, (a + b):sum() }} end, {{ argnums = {{ 1, 2 }} }})(x, y)", **Y)
    case(f"func {n}", f"torch.func.{n}(lambda a: (a @ a.T, a.sum()), has_aux=True)(x)",
         f"accel.func.{n}(function(a) return a:matmul(a:t()), a:sum() end, {{ has_aux = true }})(x)", x=f(2, 3))
    case(f"func {n}", f"torch.func.{n}(lambda a: torch.ones(2, dtype=torch.float64))(x)",
         f"accel.func.{n}(function(a) return accel.ones(2, {{ dtype = 'f64' }}) end)(x)", grad=False, **X)
case("func hessian", "torch.func.hessian(lambda a: (a ** 3).sum() * a[0])(x)", "accel.func.hessian(function(a) return (a ^ 3):sum() * a[1] end)(x)", **X)
case("func hessian", "torch.func.hessian(lambda a, b: (a * b * b).sum(), argnums=(0, 1))(x, y)",
     "accel.func.hessian(function(a, b) return (a * b * b):sum() end, { argnums = { 1, 2 } })(x, y)", grad=False, **Y)
case("func jvp", "torch.func.jvp(lambda a, b: a * b.exp(), (x, y), (y, x))", "accel.func.jvp(function(a, b) return a * b:exp() end, { x, y }, { y, x })", **Y)
case("func jvp", "torch.func.jvp(lambda a: (a.sin(), a + 1), (x,), (y,), has_aux=True)",
     "accel.func.jvp(function(a) return a:sin(), a + 1 end, { x }, { y }, { has_aux = true })", **Y)
case("func vjp", "(lambda r: (r[0], r[1](y)))(torch.func.vjp(lambda a, b: a * b.exp(), x, y))",
     "(function(v, pull) return v, pull(y) end)(accel.func.vjp(function(a, b) return a * b:exp() end, x, y))", **Y)
case("func vjp", "(lambda r: (r[0], r[1](y), r[2]))(torch.func.vjp(lambda a: (a.sin(), a + 1), x, has_aux=True))",
     "(function(v, pull, aux) return v, pull(y), aux end)(accel.func.vjp(function(a) return a:sin(), a + 1 end, x, { has_aux = true }))", **Y)
case("func linearize", "(lambda r: (r[0], r[1](y)))(torch.func.linearize(lambda a: a.sin() * a, x))",
     "(function(v, push) return v, push(y) end)(accel.func.linearize(function(a) return a:sin() * a end, x))", grad=False, **Y)
case("func vmap", "torch.func.vmap(torch.dot)(x, y)", "accel.func.vmap(accel.dot)(x, y)", x=f(2, 3), y=f(2, 3))
case("func vmap", "torch.func.vmap(lambda a, b: a * b, in_dims=(1, None), out_dims=1)(x, y)",
     "accel.func.vmap(function(a, b) return a * b end, { in_dims = { 2, false }, out_dims = 2 })(x, y)", x=f(3, 2), y=f(3))
case("func vmap", "torch.func.vmap(lambda a: (a.sum(), a.sort()[0]), out_dims=(0, -1))(x)",
     "accel.func.vmap(function(a) return a:sum(), (a:sort()) end, { out_dims = { 1, -1 } })(x)", x=f(4, 3))
case("func vmap", "torch.func.vmap(torch.func.vmap(torch.dot, in_dims=(None, 0)), in_dims=(0, None))(x, y)",
     "accel.func.vmap(accel.func.vmap(accel.dot, { in_dims = { false, 1 } }), { in_dims = { 1, false } })(x, y)", x=f(2, 3), y=f(4, 3))
case("func vmap", "torch.func.vmap(torch.func.grad(lambda a, b: (a * b).sum() ** 2), in_dims=(None, 0))(y, x)",
     "accel.func.vmap(accel.func.grad(function(a, b) return (a * b):sum() ^ 2 end), { in_dims = { false, 1 } })(y, x)", **W)
case("func vmap", "torch.func.vmap(lambda d: d['a'] * d['b'], in_dims=({'a': 0, 'b': None},))({'a': x, 'b': y})",
     "accel.func.vmap(function(d) return d.a * d.b end, { in_dims = { { a = 1, b = false } } })({ a = x, b = y })", **W)
case("func functional_call", "torch.func.functional_call(nn.Linear(3, 2), {'weight': x, 'bias': b}, y)",
     "accel.func.functional_call(nn.Linear(3, 2), { weight = x, bias = b }, y)", x=f(2, 3), y=f(4, 3), b=f(2))
fails("func functional_call", "torch.func.functional_call(nn.Linear(3, 2), {'weights': x}, y)",
      "accel.func.functional_call(nn.Linear(3, 2), { weights = x }, y)", x=f(2, 3), y=f(4, 3))
fails("func functional_call", "torch.func.functional_call(nn.Linear(3, 2), {'weight': x}, y, strict=True)",
      "accel.func.functional_call(nn.Linear(3, 2), { weight = x }, y, { strict = true })", x=f(2, 3), y=f(4, 3))
fails("func grad", "torch.func.grad(lambda a: a * 2)(x)", "accel.func.grad(function(a) return a * 2 end)(x)", **X)
fails("func vmap", "torch.func.vmap(torch.dot)(x, y)", "accel.func.vmap(accel.dot)(x, y)", x=f(2, 3), y=f(3, 3))
fails("func vmap", "torch.func.vmap(lambda a: torch.randn(1))(x)", "accel.func.vmap(function(a) return accel.randn(1) end)(x)", **X)
