"""PyTorch's side of conv.lua: convolutions one by one, and max pooling."""
import time

import torch
import torch.nn.functional as F

import peer_torch_common as common


def conv(o):
    dtype, out = common.DTYPES[o.dtype], {}

    def best(f):
        f()
        least = 1e9
        for _ in range(1 if o.quick else 10):
            t = time.perf_counter()
            f()
            least = min(least, time.perf_counter() - t)
        return least * 1e3

    def gradient(y, of, dy):
        return best(lambda: torch.autograd.grad(y, of, dy, retain_graph=True))

    for i, text in enumerate(o.shapes.split(";"), 1):
        n, c, size, outputs, k, stride, padding, groups = map(int, text.split(","))
        x, w = torch.randn(n, c, size, size, dtype=dtype), torch.randn(outputs, c // groups, k, k, dtype=dtype)

        def run():
            return F.conv2d(x, w, None, stride, padding, 1, groups)

        out[f"f{i}"] = best(run)
        x.requires_grad = True
        y = run()
        dy = torch.randn_like(y)
        out[f"x{i}"] = gradient(y, x, dy)
        x.requires_grad, w.requires_grad = False, True
        out[f"w{i}"] = gradient(run(), w, dy)
    x = torch.randn(8, 64, 112, 112, dtype=dtype)
    out["pool_f"] = best(lambda: F.max_pool2d(x, 3, 2, 1))
    x.requires_grad = True
    y = F.max_pool2d(x, 3, 2, 1)
    out["pool_x"] = gradient(y, x, torch.randn_like(y))
    return out
