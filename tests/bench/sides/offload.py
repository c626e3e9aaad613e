"""Side of the bench of offloading: the same checkpoint by Accelerate and Transformers: load_checkpoint_and_dispatch, then a forward of 8
tokens and the tokens that follow in memory, with disk_offload and with cpu_offload, on a machine without a GPU. cold: the first forward after
the files of the offload folder were dropped from the page cache."""
import glob
import json
import os
import statistics
import sys
import time

sys.path.pop(0)  # this folder has a tokenizers.py
import torch
from accelerate import cpu_offload, disk_offload, init_empty_weights, load_checkpoint_and_dispatch
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER = sys.argv[sys.argv.index("--folder") + 1]
TOKENS = 2 if "--quick" in sys.argv else 8
torch.set_grad_enabled(False)
config = AutoConfig.from_pretrained(FOLDER + "/llama")


def empty():
    with init_empty_weights():
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def loaded():
    return load_checkpoint_and_dispatch(empty(), FOLDER + "/llama", device_map={"": "cpu"})


ids = torch.arange(8).reshape(1, 8)


def forward(model):
    began = time.perf_counter()
    model(ids, use_cache=False)
    return time.perf_counter() - began


class Times:
    def __init__(self):
        self.at = []

    def put(self, value):
        self.at.append(time.perf_counter())

    def end(self):
        pass


def token(model):
    times = Times()
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, min_new_tokens=TOKENS, do_sample=False,
                         eos_token_id=None, pad_token_id=0, streamer=times)
    at = times.at[1:]  # the prompt is put first
    figures["ids"] = " ".join(map(str, out[0, 8:].tolist()))
    return statistics.median(b - a for a, b in zip(at, at[1:]))


def measure(name, model):
    forward(model)
    figures[name + "_s"] = statistics.median(forward(model) for _ in range(3))
    figures[name + "_token_ms"] = token(model) * 1e3


def dropped(pattern):
    for path in glob.glob(pattern):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


figures = {}
model = loaded()
size = sum(p.numel() * 2 for p in model.parameters())
times = []
for _ in range(3):
    t = time.perf_counter()
    model = loaded()
    times.append(time.perf_counter() - t)
figures["load"] = size / statistics.median(times) / 1e9
measure("memory", model)
figures["mean"] = model(ids).logits.float().abs().mean().item()
cpu_offload(model, execution_device=torch.device("cpu"))
measure("host", model)
model = loaded()
disk_offload(model, FOLDER + "/offloaded", execution_device=torch.device("cpu"))
cold = []
for _ in range(3):
    dropped(FOLDER + "/offloaded/*.dat")
    cold.append(forward(model))
figures["cold_s"] = statistics.median(cold)
measure("disk", model)
print(json.dumps(figures))
