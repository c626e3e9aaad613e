"""What the files of PyTorch's side share: threads, files, timing, training steps, memory of this process."""
import ctypes
import json
import math
import os
import statistics
import time

import torch

threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
torch.set_num_threads(threads)

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f64": torch.float64}
STORED = {"F32": torch.float32, "I64": torch.int64}
device = "cpu"


def use(name):
    """Where the work is done: times are taken when that device has done it."""
    global device
    device = name


def sync():
    if device != "cpu":
        torch.cuda.synchronize(device)


def load(folder, name):
    """The tensors of a file that accel's side wrote, on the device."""
    with open(os.path.join(folder, name + ".safetensors"), "rb") as f:
        data = bytearray(f.read())
    start = 8 + int.from_bytes(data[:8], "little")
    out = {}
    for key, t in json.loads(data[8:start]).items():
        if key != "__metadata__":
            dtype, (first, last) = STORED[t["dtype"]], t["data_offsets"]
            flat = torch.frombuffer(data, dtype=dtype, offset=start + first, count=(last - first) // dtype.itemsize)
            out[key] = flat.view(t["shape"]).clone().to(device)
    return out


def autocast(o):
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=o.dtype == "bf16")


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
    """Seconds of one call, the median of as many as fill the time (at least five). A GPU is given several at a time, which
    take 20 ms, so that it waits for none of them."""
    times, total, n = [], 0.0, 1

    def run():
        t = time.perf_counter()
        for _ in range(n):
            f()
        sync()
        return time.perf_counter() - t

    run()
    if device != "cpu" and not quick:
        n = max(1, math.ceil(0.02 / run()))
    while len(times) < (1 if quick else 5) or (not quick and total < seconds):
        t = run()
        times.append(t / n)
        total += t
    return statistics.median(times)


def train(o, step):
    """step(i) returns the loss and the moments when forward and backward ended."""
    times, losses, first = ([], [], [], []), [], 0.0
    for i in range(o.steps):
        t0 = time.perf_counter()
        loss, t1, t2 = step(i)
        sync()
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
    return _status("VmRSS") if device == "cpu" else torch.cuda.memory_allocated(device) / 1e6


def peak():
    return _status("VmHWM") if device == "cpu" else torch.cuda.max_memory_allocated(device) / 1e6


def reset_peak():
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
        return
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
