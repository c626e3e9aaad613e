"""PyTorch's side of layers.lua: sampling, resizing, pools of three dims and CTC."""
import time

import torch
import torch.nn.functional as F


def layers(o):
    out, n = {}, 1 if o.quick else 8

    def best(f):
        f()
        least = 1e9
        for _ in range(1 if o.quick else 10):
            t = time.perf_counter()
            f()
            least = min(least, time.perf_counter() - t)
        return least * 1e3

    def measure(name, inputs, f):
        with torch.no_grad():
            out[name + "_f"] = best(lambda: f(*inputs))
        leaves = [t.detach().requires_grad_() for t in inputs]
        y = f(*leaves)
        dy = torch.ones_like(y)
        out[name + "_b"] = best(lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True))

    x, grid = torch.randn(n, 32, 64, 64), torch.rand(n, 64, 64, 2) * 2.2 - 1.1
    measure("grid_bilinear", [x, grid], lambda t, g: F.grid_sample(t, g, align_corners=False))
    measure("grid_bicubic", [x, grid], lambda t, g: F.grid_sample(t, g, "bicubic", "border", False))
    image = torch.randn(n, 3, 224, 224)
    for mode in ("bilinear", "bicubic"):
        measure("antialias_" + mode, [image], lambda t: F.interpolate(t, (96, 96), mode=mode, antialias=True))
    measure("bicubic_up", [x], lambda t: F.interpolate(t, scale_factor=2, mode="bicubic"))
    volume = torch.randn(n, 8, 16, 32, 32)
    measure("max_pool3d", [volume], lambda t: F.max_pool3d(t, 3, 2, 1))
    measure("avg_pool3d", [volume], lambda t: F.avg_pool3d(t, 3, 2, 1))
    steps, size = (50, 10) if o.quick else (200, 40)
    targets, inputs, lengths = torch.randint(1, 40, (2 * n, size)), [steps] * (2 * n), [size] * (2 * n)
    measure("ctc", [torch.randn(steps, 2 * n, 40).log_softmax(2)], lambda t: F.ctc_loss(t, targets, inputs, lengths))
    return out
