"""PyTorch's side of the benches of small work: dispatch, mlp, quantised products, and the first step of a process."""
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import peer_torch_common as common


def dispatch(o):
    torch.set_num_threads(1)

    def per_call(n, fn):
        n = n // 100 if o.quick else n
        best = 1e9
        for count in (n // 10, n, n, n, n, n):
            t = time.perf_counter()
            for _ in range(count):
                fn()
            best = min(best, (time.perf_counter() - t) / count)
        return best * 1e9

    a, b, g = torch.ones(1), torch.ones(1), torch.ones(1, requires_grad=True)
    x8, y8, lin = torch.randn(8, 8), torch.randn(8, 8), nn.Linear(8, 8)

    def chain():
        z = (g * b + b) * g
        z.backward()
        g.grad = None

    return {"add": per_call(50000, lambda: a + b), "add_grad": per_call(50000, lambda: g + b),
            "mm8": per_call(50000, lambda: x8 @ y8), "linear8": per_call(20000, lambda: lin(x8)),
            "chain": per_call(5000, chain)}


def mlp(o):
    weights, data = common.load(o.data, "weights"), common.load(o.data, "data")
    x, y, out = data["x"], data["y"], {}

    def measure(name, make):
        model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
        model.load_state_dict(weights)
        opt = make(model.parameters())
        loss_of = common.compiled(o, lambda x, y: F.cross_entropy(model(x), y))

        def step():
            loss = loss_of(x, y)
            loss.backward()
            opt.step()
            opt.zero_grad()
            return loss

        out[name + "_losses"] = [step().item() for _ in range(10)]
        times, n = [], 10 if o.quick else 300
        for _ in range(1 if o.quick else 7):
            t = time.perf_counter()
            for _ in range(n):
                step()
            times.append((time.perf_counter() - t) / n * 1e6)
        out[name + "_us"] = statistics.median(times)

    measure("sgd", lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, **common.fused(o)))
    measure("adamw", lambda p: torch.optim.AdamW(p, lr=0.001, **common.fused(o)))
    return out


def first_step(o):
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = F.cross_entropy(model(torch.randn(32, 64)), torch.randint(0, 10, (32,)))
    loss.backward()
    opt.step()
    return {"loss": loss.item(), "peak_mb": common.peak()}


def quant(o):
    """One row and eight times matrices of 4096 x 4096: f32, bf16, and bitsandbytes' layers where they are."""
    n, held, out = (256 if o.quick else 4096), (1 if o.quick else 160e6), {}
    try:
        import bitsandbytes as bnb
    except ImportError:
        bnb = None

    def layer(kind):
        plain = nn.Linear(n, n, bias=False)
        if kind == "f32":
            return plain
        if kind == "bf16":
            return plain.to(torch.bfloat16)
        if kind == "int8":
            made = bnb.nn.Linear8bitLt(n, n, bias=False, has_fp16_weights=False, threshold=0.0)
        else:
            made = bnb.nn.Linear4bit(n, n, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4",
                                     compress_statistics=kind == "nf4_double")
        made.load_state_dict(plain.state_dict())
        return made.to("cpu")

    sizes = {"f32": 4, "bf16": 2, "int8": 1, "nf4": 0.5625, "nf4_double": 0.516}
    with torch.no_grad():
        for kind in ("f32", "bf16", "int8", "nf4", "nf4_double"):
            if kind not in ("f32", "bf16") and bnb is None:
                continue
            count = max(1, int(held / (sizes[kind] * n * n)))
            layers = [layer(kind) for _ in range(count)]
            for rows in (1, 8):
                x = torch.randn(rows, n).to(torch.float32 if kind == "f32" else torch.bfloat16)
                times = []
                for _ in range(1 if o.quick else 7):
                    t = time.perf_counter()
                    for m in layers:
                        m(x)
                    times.append((time.perf_counter() - t) / count)
                out[f"{kind}_{rows}"] = statistics.median(times) * 1e6
    return out
