"""torch's side of parallel_step.lua, over gloo: its tensor parallelism (parallelize_module and loss_parallel) or its pipeline schedules.
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set. Rank 0 prints the median step in ms and the losses of all steps."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)

import peer_torch_common as common

B, T = 8, 64
parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="tp")
parser.add_argument("--size", default="small")
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--drop", type=int, default=3)
parser.add_argument("--micros", type=int, default=8)
parser.add_argument("--schedule", default="1f1b")
parser.add_argument("--data", required=True)
a = parser.parse_args()
V, C, L, H = {"char": (128, 128, 4, 4), "small": (8000, 256, 4, 4), "124M": (50304, 768, 12, 12)}[a.size]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(C, C) for _ in range(4))

    def forward(self, x):
        b = x.shape[0]
        q, k, v = (p(x).unflatten(-1, (-1, C // H)).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.attn, self.mlp = Attention(), MLP()

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Layers first .. last - 1; what stands before or behind them where these are at an end of the model."""

    def __init__(self, first=0, last=L):
        super().__init__()
        if first == 0:
            self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.h = nn.ModuleDict({str(i): Block() for i in range(first, last)})
        if last == L:
            self.ln_f, self.head = nn.LayerNorm(C), nn.Linear(C, V, bias=False)

    def forward(self, x):
        if hasattr(self, "wte"):
            x = self.wte(x) + self.wpe(torch.arange(T).expand(x.shape[0], T))
        for block in self.h.values():
            x = block(x)
        return self.head(self.ln_f(x)) if hasattr(self, "head") else x


def renamed(weights):
    """Ours <- Hugging Face's, whose weights of linear layers are [inputs, outputs]."""
    out = {}
    for name, t in weights.items():
        name = name.removeprefix("transformer.").replace("lm_head", "head")
        for theirs, ours in (("attn.c_proj", "attn.out"), ("mlp.c_fc", "mlp.up"), ("mlp.c_proj", "mlp.down")):
            name = name.replace(theirs, ours)
        if ".ln_" not in name and name.startswith("h.") and name.endswith("weight"):
            t = t.t().contiguous()
        if "c_attn" in name:
            for key, part in zip("qkv", t.chunk(3, 0)):
                out[name.replace("c_attn", key)] = part.contiguous()
        else:
            out[name] = t
    return out


def plan():
    """The plan of torch's own examples; with sequence parallelism, norms work on parts of the sequence."""
    sp = a.mode == "sp"
    between = Shard(1) if sp else Replicate()
    out = {"wte": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
           "head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1), use_local_output=False)}
    if sp:
        out["wpe"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        out["ln_f"] = SequenceParallel()
    for i in range(L):
        at = f"h.{i}."
        for name in ("attn.q", "attn.k", "attn.v", "mlp.up"):
            out[at + name] = ColwiseParallel()
        for name in ("attn.out", "mlp.down"):
            out[at + name] = RowwiseParallel(output_layouts=between)
        if sp:
            out[at + "ln_1"], out[at + "ln_2"] = SequenceParallel(), SequenceParallel()
            for name in ("attn", "mlp"):
                out[at + name] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    return out


def loss_fn(logits, y):
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


torch.manual_seed(1)
dist.init_process_group("gloo")
rank, n = dist.get_rank(), dist.get_world_size()
weights, tokens = renamed(common.load(a.data, "weights")), common.load(a.data, "tokens")
last_rank = rank == n - 1
if a.mode == "pp":
    model = GPT(rank * L // n, (rank + 1) * L // n)
    stage = PipelineStage(model, rank, n, torch.device("cpu"))
    schedule = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}[a.schedule](stage, n_microbatches=a.micros, loss_fn=loss_fn)
else:
    model = GPT()
model.load_state_dict({k: v for k, v in weights.items() if k in model.state_dict()})
if a.mode != "pp":
    parallelize_module(model, init_device_mesh("cpu", (n,)), plan())
del weights
# the fused step takes no mixture of parameters that are shared out and others
params = list(model.parameters())
optimizers = [torch.optim.AdamW(group, lr=1e-4, fused=True)
              for group in ([p for p in params if isinstance(p, DTensor)], [p for p in params if not isinstance(p, DTensor)])
              if group]


def step(x, y):
    """Forward and backward; the loss as a number, the last stage's in a pipeline."""
    if a.mode != "pp":
        with loss_parallel():
            loss = loss_fn(model(x), y)
            loss.backward()
        return loss
    losses = []
    args = (x,) if rank == 0 else ()
    schedule.step(*args, **({"target": y, "losses": losses} if last_rank else {}))
    return torch.stack(losses).mean() if last_rank else None


times, losses = [], []
for i in range(a.steps):
    dist.barrier()
    began = time.perf_counter()
    k = i % tokens["x"].shape[0]
    loss = step(tokens["x"][k], tokens["y"][k])
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    if i >= a.drop:
        times.append((time.perf_counter() - began) * 1e3)
    if a.mode == "pp":
        loss = loss.detach() if last_rank else torch.zeros(())
        dist.broadcast(loss, n - 1)
    elif isinstance(loss, DTensor):
        loss = loss.full_tensor()
    losses.append(loss.item())
if rank == 0:
    print(json.dumps({"ms": statistics.median(times), "losses": losses}))
dist.destroy_process_group()
