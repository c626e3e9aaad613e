"""PyTorch's side of tests/bench: the same work as the scripts of the same names, one JSON object on the last line.

  peer_torch.py WHAT --config eager|tuned|single|chunked|compile [--quick] [options of the work]

eager is PyTorch as it comes; tuned has the fused optimizer (harness.lua sets malloc's tunables); single is tuned with
one thread; chunked is tuned with F.linear_cross_entropy in pieces; compile is tuned with torch.compile, of which the
first step is never counted.
"""
import argparse
import importlib
import json
import sys

import peer_torch_common

MODULES = {
    "dispatch": "peer_torch_small", "mlp": "peer_torch_small", "quant": "peer_torch_small", "first_step": "peer_torch_small",
    "bandwidth": "peer_torch_memory", "adamw": "peer_torch_memory",
    "gemm": "peer_torch_matmul", "attention": "peer_torch_matmul", "cross_entropy": "peer_torch_matmul",
    "gpt": "peer_torch_gpt", "resnet18": "peer_torch_resnet", "conv": "peer_torch_conv",
    "layers": "peer_torch_layers",
}

parser = argparse.ArgumentParser()
parser.add_argument("what", choices=sorted(MODULES))
parser.add_argument("--config", default="tuned")
parser.add_argument("--quick", action="store_true")
parser.add_argument("--memory", action="store_true")  # told in any case
parser.add_argument("--device", default="cpu")
parser.add_argument("--dtype", default="f32")
parser.add_argument("--data", default="")
parser.add_argument("--shapes", default="")
parser.add_argument("--lengths", default="256,1024")
for name, value in (("layers", 6), ("width", 384), ("heads", 6), ("vocab", 256), ("batch", 8), ("seq", 256),
                    ("steps", 12), ("drop", 3), ("tokens", 1024), ("elements", 16 << 20)):
    parser.add_argument("--" + name, type=int, default=value)
options = parser.parse_args()
peer_torch_common.use(options.device)
figures = getattr(importlib.import_module(MODULES[options.what]), options.what)(options)
print(json.dumps(figures))
sys.stdout.flush()
