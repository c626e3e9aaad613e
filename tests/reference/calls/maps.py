# Elementwise functions under all of their names, and in place.
X = lambda: f(2, 3)
for n in "abs absolute ceil erf expm1 fix floor frac neg negative positive relu sign sin sinh tan tanh trunc arctan atan arcsinh asinh".split():
    case(f"Tensor,torch {n}", f"x.{n}()", x=X())
    if n != "positive":
        case(f"Tensor {n}_", f"y.{n}_()", x=X())
        if hasattr(torch, n + "_"):
            case(f"torch {n}_", f"torch.{n}_(y)", x=X())
for n in "arcsin asin arccos acos arctanh atanh".split():
    case(f"Tensor,torch {n}", f"x.{n}()", x=unit(2, 3))
    case(f"Tensor,torch {n}_", f"torch.{n}_(y)", x=unit(2, 3))
for n in "sqrt rsqrt log1p log log2 log10 reciprocal".split():
    case(f"Tensor,torch {n}", f"x.{n}()", x=pos(2, 3))
    case(f"Tensor,torch {n}_", f"torch.{n}_(y)", x=pos(2, 3))
for n in "arccosh acosh".split():
    case(f"Tensor,torch {n}", f"(x + 1).{n}()", x=pos(2, 3))
    case(f"Tensor,torch {n}_", f"torch.{n}_(y)", x=ranged(1.1, 3)(2, 3))
for n in "selu celu".split():
    case(f"torch {n}", f"torch.{n}(x)", x=X())
    case(f"torch {n}_", f"torch.{n}_(y)", x=X())
case("torch threshold", "torch.threshold(x, 0.5, -1.0)", x=X())
case("torch threshold_", "torch.threshold_(y, 0.5, -1.0)", x=X())
case("Tensor,torch hardshrink", "torch.hardshrink(x, 0.7)", x=X())
case("Tensor,torch prelu", "torch.prelu(x, w)", x=X(), w=f(3))
for n in "isinf isnan isfinite".split():
    case(f"Tensor,torch {n}", f"x.{n}()", grad=False, x=lit([1.0, math.inf, math.nan, -math.inf]))
# two operands
for n in "add sub subtract mul multiply div divide true_divide".split():
    case(f"Tensor,torch {n}", f"x.{n}(z)", x=X(), z=pos(3))
    case(f"Tensor,torch {n}", f"torch.{n}(x, 3)", x=i(2, 3))
    case(f"Tensor {n}_", f"y.{n}_(z)", x=X(), z=pos(3))
for n in "atan2 arctan2".split():
    case(f"Tensor,torch {n}", f"torch.{n}(x, z)", x=X(), z=pos(3))
    case(f"Tensor {n}_", f"y.{n}_(z)", x=X(), z=pos(3))
case("Tensor,torch subtract", "torch.subtract(x, z, alpha=2)", "accel.subtract(x, z, { alpha = 2 })", x=X(), z=X())
for n in "gt greater ge greater_equal lt less le less_equal ne not_equal eq".split():
    case(f"Tensor,torch {n}", f"torch.{n}(x, z)", grad=False, x=i(2, 3), z=i(3))
    case(f"Tensor {n}_", f"y.{n}_(z)", grad=False, x=i(2, 3), z=i(3))
    case(f"Tensor {n}_", f"y.{n}_(0.5)", grad=False, x=X())
for n in "logical_and logical_or logical_xor".split():
    case(f"Tensor,torch {n}", f"torch.{n}(x, z)", x=i(2, 3, lo=0, hi=2), z=b(3))
    case(f"Tensor {n}_", f"y.{n}_(z)", x=i(2, 3, lo=0, hi=2), z=b(3))
case("Tensor logical_not_", "y.logical_not_()", x=i(2, 3, lo=0, hi=2))
for n in "bitwise_and bitwise_or bitwise_xor".split():
    case(f"Tensor,torch {n}", f"torch.{n}(x, z)", x=i(2, 3, lo=-9, hi=9), z=i(3, lo=-9, hi=9))
    case(f"Tensor {n}_", f"y.{n}_(z)", x=i(2, 3, lo=-9, hi=9), z=i(3, lo=-9, hi=9))
    case(f"Tensor,torch {n}", f"torch.{n}(x, z)", x=b(2, 3), z=b(3))
for n in "bitwise_left_shift bitwise_right_shift".split():
    for dtype in "i64 i32 i16 i8 u8".split():
        case(f"Tensor,torch {n}", f"torch.{n}(x, z)", x=i(2, 3, lo=0, hi=99, dtype=dtype), z=i(3, lo=0, hi=6, dtype=dtype))
    case(f"Tensor,torch {n}", f"torch.{n}(x, 70)", x=i(2, 3))
    case(f"Tensor,torch {n}", f"torch.{n}(x, 9)", x=i(2, 3, dtype="i8"))
    case(f"Tensor {n}_", f"y.{n}_(2)", x=i(2, 3))
    fails(f"Tensor {n}", f"x.{n}(2)", x=X())
case("Tensor bitwise_left_shift", "x << 2", x=i(2, 3))
case("Tensor bitwise_right_shift", "x >> z", x=i(2, 3), z=i(3, lo=0, hi=3))
case("Tensor bitwise_and", "x & z", x=i(2, 3), z=i(3))
case("Tensor bitwise_or", "x | 4", x=i(2, 3))
case("Tensor bitwise_xor", "x ^ z", "x ~ z", x=i(2, 3), z=i(3))
case("Tensor bitwise_not", "~x", x=b(2, 3))
# bounds
for n in "clamp clip".split():
    case(f"Tensor,torch {n}", f"x.{n}(-0.5, 1.0)", x=X())
    case(f"Tensor,torch {n}", f"x.{n}(max=z)", f"x:{n} {{ max = z }}", x=X(), z=f(3))
    case(f"Tensor,torch {n}", f"x.{n}(a, z)", x=X(), a=f(2, 1), z=f(3))
    case(f"Tensor {n}_", f"y.{n}_(-0.5, 1.0)", x=X())
    case(f"torch {n}_", f"torch.{n}_(y, min=0)", f"accel.{n}_(y, {{ min = 0 }})", x=X())
for n in "clamp_min clamp_max".split():
    case(f"Tensor,torch {n}", f"x.{n}(0.5)", x=X())
    case(f"Tensor,torch {n}", f"x.{n}(z)", x=X(), z=f(3))
    case(f"Tensor {n}", f"x.{n}(1)", x=i(2, 3))
    case(f"Tensor {n}_", f"y.{n}_(0.5)", x=X())
    case(f"torch {n}_", f"torch.{n}_(y, 0.5)", x=X())
case("Tensor logit_", "y.logit_()", x=ranged(0.1, 0.9)(2, 3))
case("torch logit_", "torch.logit_(y, 0.2)", x=ranged(0.1, 0.9)(2, 3))
