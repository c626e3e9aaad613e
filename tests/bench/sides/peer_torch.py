"""The PyTorch side of tests/bench: the same work, one JSON object on the last line. Run by run.lua with tuned malloc settings."""
import argparse, json, os, time
import torch, torch.nn as nn, torch.nn.functional as F

threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
ap = argparse.ArgumentParser()
ap.add_argument("what")
ap.add_argument("--dtype", default="f32")
ap.add_argument("--steps", type=int, default=12)
ap.add_argument("--shapes", default="8,64,56,64,3,1,1,1")
A = ap.parse_args()


def per_call(n, fn):
    fn(n // 10)
    best = 1e9
    for _ in range(5):
        t = time.perf_counter()
        fn(n)
        best = min(best, (time.perf_counter() - t) / n)
    return best * 1e9


def dispatch():
    torch.set_num_threads(1)
    r = {}
    a, b, g = torch.ones(1), torch.ones(1), torch.ones(1, requires_grad=True)
    x8, y8, lin = torch.randn(8, 8), torch.randn(8, 8), nn.Linear(8, 8)

    def rep(f):
        def run(n):
            for _ in range(n):
                f()
        return run

    def chain():
        z = (g * b + b) * g
        z.backward()
        g.grad = None

    r["add"] = per_call(50000, rep(lambda: a + b))
    r["add_grad"] = per_call(50000, rep(lambda: g + b))
    r["mm8"] = per_call(50000, rep(lambda: x8 @ y8))
    r["linear8"] = per_call(20000, rep(lambda: lin(x8)))
    r["chain"] = per_call(5000, rep(chain))
    torch.set_num_threads(threads)

    def mlp(make):
        model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
        opt = make(model.parameters())
        x, y = torch.randn(32, 784), torch.randint(0, 10, (32,))

        def step():
            F.cross_entropy(model(x), y).backward()
            opt.step()
            opt.zero_grad()
        return per_call(500, rep(step)) / 1000

    r["mlp_sgd"] = mlp(lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9))
    r["mlp_adamw"] = mlp(lambda p: torch.optim.AdamW(p, lr=0.001, fused=True))
    return r


def first_step():
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = F.cross_entropy(model(torch.randn(32, 64)), torch.randint(0, 10, (32,)))
    loss.backward()
    opt.step()
    return {"loss": loss.item()}


class Block(nn.Module):
    def __init__(self, C, H):
        super().__init__()
        self.H = H
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.c_fc, self.c_out = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.H, C // self.H).transpose(1, 2) for t in self.c_attn(self.ln_1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, V, T, C, L, H):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.h = nn.ModuleList([Block(C, H) for _ in range(L)])
        self.ln_f = nn.LayerNorm(C)
        self.head = nn.Linear(C, V, bias=False)
        self.head.weight = self.wte.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for b in self.h:
            x = b(x)
        return self.head(self.ln_f(x))


def gpt_step():
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    L, C, H, V, T, B = 6, 384, 6, 256, 256, 8
    model = GPT(V, T, C, L, H)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    x = torch.randint(0, V, (B, T))
    y = torch.cat([x[:, 1:], x[:, :1]], 1)
    times = {"ms": [], "forward_ms": [], "backward_ms": [], "update_ms": []}
    for step in range(A.steps):
        t0 = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=A.dtype == "bf16"):
            loss = F.cross_entropy(model(x).view(-1, V), y.view(-1))
        t1 = time.perf_counter()
        loss.backward()
        t2 = time.perf_counter()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        t3 = time.perf_counter()
        if step >= 3:
            for k, v in (("ms", t3 - t0), ("forward_ms", t1 - t0), ("backward_ms", t2 - t1), ("update_ms", t3 - t2)):
                times[k].append(v * 1e3)
    out = {k: sorted(v)[len(v) // 2] for k, v in times.items()}
    out["loss"] = loss.item()
    return out


def conv():
    torch.set_num_threads(threads)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}[A.dtype]

    def best(f):
        f()
        least = 1e9
        for _ in range(10):
            t = time.perf_counter()
            f()
            least = min(least, time.perf_counter() - t)
        return least * 1e3

    def gradient(y, of, dy):
        return best(lambda: torch.autograd.grad(y, of, dy, retain_graph=True))

    out = {}
    for i, text in enumerate(A.shapes.split(";"), 1):
        n, c, size, o, k, stride, padding, groups = map(int, text.split(","))
        x, w = torch.randn(n, c, size, size, dtype=dtype), torch.randn(o, c // groups, k, k, dtype=dtype)

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


print(json.dumps({"dispatch": dispatch, "first_step": first_step, "gpt_step": gpt_step, "conv": conv}[A.what]()))
