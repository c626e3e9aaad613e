"""torch FSDP2's side of shard_step.lua, over gloo, --offload: with CPUOffloadPolicy; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set.
Median step in ms, resident MB."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

import peer_torch_gpt

parser = argparse.ArgumentParser()
parser.add_argument("--size", default="124M")
parser.add_argument("--steps", type=int, default=5)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--offload", action="store_true")
a = parser.parse_args()
small = a.size == "small"
o = argparse.Namespace(vocab=8000 if small else 50257, width=256 if small else 768, seq=64, heads=4 if small else 12,
                       layers=4 if small else 12)

torch.set_num_threads(a.threads)
torch.manual_seed(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
model = peer_torch_gpt.GPT(o)
options = {"offload_policy": CPUOffloadPolicy(pin_memory=False)} if a.offload else {}
for block in model.h:
    fully_shard(block, mesh=mesh, **options)
fully_shard(model, mesh=mesh, **options)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
x = torch.randint(0, o.vocab, (2, o.seq))
y = torch.roll(x, -1, 1).reshape(-1)


def forward():
    hidden = model(x)
    # tied head: the whole table, as the model's own forward would gather it
    return F.cross_entropy(F.linear(hidden, head()).view(-1, o.vocab), y)


def head():
    weight = model.wte.weight
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


times = []
for i in range(a.steps + 2):
    dist.barrier()
    began = time.perf_counter()
    forward().backward()
    optimizer.step()
    optimizer.zero_grad()
    if i > 1:
        times.append((time.perf_counter() - began) * 1e3)
rss = 0.0
with open("/proc/self/smaps_rollup", encoding="ascii") as f:
    for line in f:
        if line.startswith("Pss:"):
            rss = float(line.split()[1]) / 1024
total = torch.tensor([rss])
dist.all_reduce(total)
if int(os.environ["RANK"]) == 0:
    print(json.dumps({"step": statistics.median(times), "pss": total.item()}))
dist.destroy_process_group()
