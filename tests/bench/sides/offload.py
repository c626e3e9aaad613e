"""Side of the bench of offloading: the same checkpoint by Accelerate and Transformers: load_checkpoint_and_dispatch, a forward with
disk_offload, and with cpu_offload, on a machine without a GPU."""
import json
import statistics
import sys
import time

sys.path.pop(0)  # this folder has a tokenizers.py
import torch
from accelerate import cpu_offload, disk_offload, init_empty_weights, load_checkpoint_and_dispatch
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER = sys.argv[sys.argv.index("--folder") + 1]
torch.set_grad_enabled(False)
config = AutoConfig.from_pretrained(FOLDER + "/llama")


def empty():
    with init_empty_weights():
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def loaded():
    return load_checkpoint_and_dispatch(empty(), FOLDER + "/llama", device_map={"": "cpu"})


ids = torch.arange(8).reshape(1, 8)


def seconds(model):
    model(ids, use_cache=False)
    times = []
    for _ in range(3):
        t = time.perf_counter()
        model(ids, use_cache=False)
        times.append(time.perf_counter() - t)
    return statistics.median(times)


figures = {}
model = loaded()
size = sum(p.numel() * 2 for p in model.parameters())
times = []
for _ in range(3):
    t = time.perf_counter()
    model = loaded()
    times.append(time.perf_counter() - t)
figures["load"] = size / statistics.median(times) / 1e9
figures["mean"] = model(ids).logits.float().abs().mean().item()
cpu_offload(model, execution_device=torch.device("cpu"))
figures["host_s"] = seconds(model)
model = loaded()
disk_offload(model, FOLDER + "/offloaded", execution_device=torch.device("cpu"))
figures["disk_s"] = seconds(model)
print(json.dumps(figures))
