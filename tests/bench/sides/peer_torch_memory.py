"""PyTorch's side of the benches of memory-bound work: bandwidth and adamw."""
import time

import torch
import torch.nn.functional as F

import peer_torch_common as common


def bandwidth(o):
    """GB/s by op, as bandwidth.lua: every tensor that an op must read or write counts once."""
    dtype, row = common.DTYPES[o.dtype], 1024
    n = min(o.elements, 1 << 20) if o.quick else o.elements
    size = 4 if o.dtype == "f32" else 2
    out = {}

    def random():
        return torch.rand(n // row, row, device=common.device).to(dtype)

    def measure(name, arrays, fn):
        best = 1e9
        if common.device != "cpu":
            best = common.timed(fn, o.quick)
        for i in range(9 if common.device == "cpu" else 0):
            t = time.perf_counter()
            fn()
            if i >= 2:
                best = min(best, time.perf_counter() - t)
        out[name] = arrays * n * size / best / 1e9

    x, y = random(), random()
    with torch.no_grad():
        w, b = torch.ones_like(x[0]), torch.zeros_like(x[0])
        measure("copy_", 2, lambda: y.copy_(x))
        measure("neg", 2, lambda: -x)
        measure("add", 3, lambda: x + y)
        measure("exp", 2, lambda: x.exp())
        measure("gelu_tanh", 2, lambda: F.gelu(x, approximate="tanh"))
        measure("silu", 2, lambda: F.silu(x))
        measure("mul_", 3, lambda: x.mul_(y))
        measure("softmax", 2, lambda: x.softmax(-1))
        measure("layer_norm", 2, lambda: F.layer_norm(x, (row,), w, b))
        measure("rms_norm", 2, lambda: F.rms_norm(x, (row,), w))
        measure("sum", 1, lambda: x.sum())
        measure("sum_dim1", 1, lambda: x.sum(0))
        measure("sum_dim2", 1, lambda: x.sum(1))
        measure("amax", 1, lambda: x.amax())
        measure("argmax", 1, lambda: x.argmax(1))
        measure("norm", 1, lambda: torch.linalg.vector_norm(x))
        measure("var_dim2", 1, lambda: x.var(1))
        measure("mse_loss", 2, lambda: F.mse_loss(x, y))

    def stepped(make):
        p = x.clone().requires_grad_(True)
        p.grad = random()
        return make([p]).step

    measure("adamw", 7, stepped(lambda p: torch.optim.AdamW(p, lr=1e-3, **common.fused(o))))
    measure("sgd_momentum", 5, stepped(lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9, **common.fused(o))))
    leaf = random().requires_grad_(True)

    def backward(name, fn):
        r = fn(leaf)
        dy = torch.ones_like(r)

        def run():
            leaf.grad = None
            r.backward(dy, retain_graph=True)
        measure(name, 3, run)

    backward("gelu_backward", lambda t: F.gelu(t, approximate="tanh"))
    backward("softmax_backward", lambda t: t.softmax(-1))
    backward("layer_norm_backward", lambda t: F.layer_norm(t, (row,)))
    return out


def adamw(o):
    params, count = [], 0
    for _, w in sorted(common.load(o.data, "weights").items()):
        p = w.requires_grad_(True)
        p.grad = w.detach() * 0.1
        params.append(p)
        count += p.numel()
    opt = torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, **common.fused(o))
    for _ in range(3):
        opt.step()
    sums = [common.mean_abs(p) for p in params[:8]]
    return {"ms": common.timed(opt.step, o.quick, 1.0) * 1e3, "sums": sums, "parameters": count}
