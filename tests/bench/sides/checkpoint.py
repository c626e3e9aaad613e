"""Side of the bench of checkpoints: the same tensors by torch.save and torch.load, and by safetensors where it is installed."""
import json
import os
import statistics
import sys
import time

import torch

QUICK = "--quick" in sys.argv
FOLDER = sys.argv[sys.argv.index("--folder") + 1]
WIDTH, LAYERS, VOCAB = (64, 2, 512) if QUICK else (768, 2, 8384)

shapes = {"wte": (VOCAB, WIDTH), "wpe": (1024, WIDTH)}
for i in range(LAYERS):
    h = f"h.{i}."
    shapes[h + "attn.c_attn.weight"], shapes[h + "attn.c_proj.weight"] = (WIDTH, 3 * WIDTH), (WIDTH, WIDTH)
    shapes[h + "mlp.c_fc.weight"], shapes[h + "mlp.c_proj.weight"] = (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)
    shapes[h + "ln.weight"], shapes[h + "ln.bias"] = (WIDTH,), (WIDTH,)
state = {name + what: torch.randn(shape) for name, shape in shapes.items() for what in ("", ".exp_avg", ".exp_avg_sq")}
size = sum(t.numel() * 4 for t in state.values())


def median_of(n, f):
    values = []
    for _ in range(n):
        t = time.perf_counter()
        f()
        values.append(size / (time.perf_counter() - t) / 1e9)
    return statistics.median(values)


def sync(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def forget(path):
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def copy_in(loaded):
    for name, t in loaded.items():
        state[name].copy_(t)


path = os.path.join(FOLDER, "torch.pt")


def save():
    torch.save(state, path)
    sync(path)


figures = {"save": median_of(3, save)}
forget(path)
figures["load"] = median_of(1, lambda: copy_in(torch.load(path)))
figures["load_warm"] = median_of(3, lambda: copy_in(torch.load(path)))
figures["load_file"] = median_of(3, lambda: torch.load(path))
os.remove(path)
try:
    from safetensors.torch import load_file, save_file

    path = os.path.join(FOLDER, "torch.safetensors")

    def save_both():
        save_file(state, path)
        sync(path)

    figures["save_safetensors"] = median_of(3, save_both)
    figures["load_safetensors"] = median_of(3, lambda: copy_in(load_file(path)))
    os.remove(path)
except ImportError:
    pass
print(json.dumps(figures))
