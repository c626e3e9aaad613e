"""PyTorch's side of gpt.lua: the training step of a GPT-2 from the same weights over the same tokens."""
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import peer_torch_common as common


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.c_attn(self.ln_1(x)).split(c, 2)
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in qkv)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(o.vocab, o.width), nn.Embedding(o.seq, o.width)
        self.h = nn.ModuleList([Block(o.width, o.heads) for _ in range(o.layers)])
        self.ln_f = nn.LayerNorm(o.width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


# ours <- Hugging Face's, whose weights of linear layers are [inputs, outputs]
NAMES = {"attn.c_attn": "c_attn", "attn.c_proj": "c_proj", "mlp.c_fc": "c_fc", "mlp.c_proj": "c_out", "ln_1": "ln_1",
         "ln_2": "ln_2"}


def renamed(weights):
    out = {}
    for name, t in weights.items():
        name = name.removeprefix("transformer.")
        for theirs, ours in NAMES.items():
            if f".{theirs}." in name:
                if theirs.startswith(("attn", "mlp")) and name.endswith("weight"):
                    t = t.t().contiguous()
                name = name.replace(f".{theirs}.", f".{ours}.")
                break
        out[name] = t
    return out


def gpt(o):
    model = GPT(o).to(common.device)
    model.load_state_dict(renamed(common.load(o.data, "weights")))
    tokens = common.load(o.data, "tokens")
    params = list(model.parameters())
    opt = torch.optim.AdamW(params, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, **common.fused(o))
    pieces = common.pieces() if o.config == "chunked" else None
    if o.config == "chunked" and pieces is None:
        return common.NO_PIECES

    def loss_fn(x, y):
        hidden, head = model(x).view(-1, o.width), model.wte.weight
        if pieces is not None:
            return F.linear_cross_entropy(hidden, head, y, options=pieces)
        return F.cross_entropy(F.linear(hidden, head), y)

    loss_of = common.compiled(o, loss_fn)
    batches = tokens["x"].shape[0]
    common.release()
    common.reset_peak()

    def step(i):
        x, y = tokens["x"][i % batches], tokens["y"][i % batches].reshape(-1)
        with common.autocast(o):
            loss = loss_of(x, y)
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        opt.zero_grad()
        return loss, forward, backward

    out = common.train(o, step)
    out["peak_mb"] = common.peak()
    return out
