"""PyTorch's side of the benches of matrix products: gemm, attention, cross_entropy."""
import math

import torch
import torch.nn.functional as F

import peer_torch_common as common

CACHE = 64e6  # bytes of operands that are taken by turns


def gemm(o):
    numbers, dtype = common.load(o.data, "numbers"), common.DTYPES[o.dtype]
    out, means, logs = {}, [], {"y": 0.0, "dx": 0.0, "dw": 0.0}

    def matrix(t, rows, columns):
        return t[:rows * columns].view(rows, columns).to(dtype, copy=True)

    def copies(t):
        count = min(8, math.ceil(CACHE / (t.numel() * t.element_size())))
        return [t] + [t.clone() for _ in range(count - 1)]

    shapes = [tuple(map(int, text.split(","))) for text in o.shapes.split(";")]
    with torch.no_grad():
        for i, (m, n, k) in enumerate(shapes, 1):
            xs, ws = copies(matrix(numbers["x"], m, k)), copies(matrix(numbers["w"], n, k))
            dy = matrix(numbers["w"], m, n)
            means.append(common.mean_abs(F.linear(xs[0], ws[0])))
            turn = 0

            def rate(name, f):
                def run():
                    nonlocal turn
                    turn += 1
                    f(xs[turn % len(xs)], ws[turn % len(ws)])
                g = 2 * m * n * k / common.timed(run, o.quick) / 1e9
                out[f"{name}{i}"] = g
                logs[name] += math.log(g)

            rate("y", F.linear)
            rate("dx", lambda _, w: dy @ w)
            rate("dw", lambda x, _: dy.t() @ x)
    for name, total in logs.items():
        out[name + "_mean"] = math.exp(total / len(shapes))
    out["means"] = means
    return out


def attention(o):
    inputs, out, means = common.load(o.data, "inputs"), {}, []
    for length in map(int, o.lengths.split(",")):
        q, k, v, dy = (inputs[f"{name}{length}"].to(common.DTYPES[o.dtype]) for name in ("q", "k", "v", "dy"))
        flops = 2 * 4 * 12 * length * length * 64  # two products, half of each

        def put(key, seconds, times):
            out[f"{key}{length}"] = seconds * 1e3
            out[f"gflops_{key}{length}"] = times * flops / seconds / 1e9

        with torch.no_grad():
            put("f", common.timed(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True), o.quick, 0.5), 1)
        leaves = [t.requires_grad_(True) for t in (q, k, v)]

        def both():
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            y.backward(dy)
            return y

        def clear():
            for t in leaves:
                t.grad = None

        means.append(common.mean_abs(both()))
        means.extend(common.mean_abs(t.grad) for t in leaves)
        clear()

        def timed():
            both()
            clear()
        put("b", common.timed(timed, o.quick, 0.5), 3.5)
    out["means"] = means
    return out


def cross_entropy(o):
    inputs = common.load(o.data, "inputs")
    x, w, target = inputs["x"].requires_grad_(True), inputs["w"].requires_grad_(True), inputs["target"]
    if o.config == "chunked":
        pieces = common.pieces()
        if pieces is None:
            return common.NO_PIECES

        def loss_of(a, t):
            return F.linear_cross_entropy(a, w, t, options=pieces)
    else:
        loss_of = common.compiled(o, lambda a, t: F.cross_entropy(F.linear(a, w), t))

    def step(a, t):
        with common.autocast(o):
            loss = loss_of(a, t)
        loss.backward()
        return loss

    def clear():
        x.grad = w.grad = None

    # what is loaded, compiled and kept on first use is not counted
    if o.config == "compile":
        step(x, target)
    else:
        step(x[:8], target[:8])
    clear()
    common.release()
    common.reset_peak()
    before = common.resident()
    loss = step(x, target).item()
    gradients = (x.numel() + w.numel()) * 4 / 1e6
    extra = max(0.0, common.peak() - before - gradients)
    losses = [loss, common.mean_abs(x.grad), common.mean_abs(w.grad)]
    clear()

    def run():
        step(x, target)
        clear()
    seconds = common.timed(run, o.quick, 1.0)
    return {"ms": seconds * 1e3, "extra_mb": extra, "losses": losses}
