"""What the files of PyTorch's side share: threads, files, timing, training steps, memory of this process."""
import ctypes
import os
import statistics
import time

import torch
from safetensors.torch import load_file

threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
torch.set_num_threads(threads)

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}


def load(folder, name):
    """The tensors of a file that accel's side wrote, in memory of our own."""
    return {key: t.clone() for key, t in load_file(os.path.join(folder, name + ".safetensors")).items()}


def autocast(o):
    return torch.autocast("cpu", torch.bfloat16, enabled=o.dtype == "bf16")


def fused(o):
    """Keyword arguments of an optimizer that has a fused form."""
    return {} if o.config == "eager" else {"fused": True}


def compiled(o, f):
    return torch.compile(f) if o.config == "compile" else f


def pieces():
    """Options of F.linear_cross_entropy that make it keep no whole logits; None where this PyTorch has none."""
    try:
        from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions
        return LinearCrossEntropyOptions()
    except ImportError:
        return None


NO_PIECES = {"skipped": "this PyTorch has no F.linear_cross_entropy in pieces"}


def timed(f, quick=False, seconds=0.15):
    """Seconds of one call, the median of as many as fill the time (at least five)."""
    times, total = [], 0.0
    f()
    while len(times) < (1 if quick else 5) or (not quick and total < seconds):
        t = time.perf_counter()
        f()
        t = time.perf_counter() - t
        times.append(t)
        total += t
    return statistics.median(times)


def train(o, step):
    """step(i) returns the loss and the moments when forward and backward ended."""
    times, losses, first = ([], [], [], []), [], 0.0
    for i in range(o.steps):
        t0 = time.perf_counter()
        loss, t1, t2 = step(i)
        t3 = time.perf_counter()
        losses.append(loss.item())
        first = first or (t3 - t0) * 1e3
        if i >= o.drop:
            for k, v in enumerate((t3 - t0, t1 - t0, t2 - t1, t3 - t2)):
                times[k].append(v * 1e3)
    whole, forward, backward, update = (statistics.median(v) for v in times)
    return {"ms": whole, "forward_ms": forward, "backward_ms": backward, "update_ms": update, "losses": losses,
            "first_ms": first}


def _status(name):
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def resident():
    return _status("VmRSS")


def peak():
    return _status("VmHWM")


def reset_peak():
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass


def release():
    """Gives memory that malloc keeps back to the system, so that it does not hide in what is resident."""
    ctypes.CDLL(None).malloc_trim(0)


def mean_abs(t):
    return t.detach().float().abs().mean().item()
