#!/usr/bin/env python3
"""Weighted combinations of LoRA adapters and of IA3 vectors by PEFT: python3 weighted_adapters.py OUT.json
A linear layer of 6 inputs and 5 outputs, and a convolution of 2 to 3 channels. Each case has the adapters' A and B and what the new adapter adds
to the weight. Linear and convolution are `lin` and `conv`. Vectors of IA3 are `l`."""
import json, sys

import torch
from peft import IA3Config, LoraConfig, get_peft_model

torch.manual_seed(4)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(6, 5)
        self.conv = torch.nn.Conv2d(2, 3, 3)

    def forward(self, x): return self.lin(x)


def plain(t): return t.detach().tolist()


out = {"lora": [], "ia3": {}}
for kind, weights, more in (
    ("linear", [0.7, 0.3], {}), ("linear", [1.5, -0.5], {}), ("cat", [0.7, -0.3], {}), ("svd", [0.7, -0.3], {"svd_rank": 3}),
    ("ties", [0.7, 0.3], {"density": 0.5}),
    ("ties", [0.7, 0.3], {"density": 0.6, "majority_sign_method": "frequency"}), ("ties_svd", [1.0, 1.0], {"density": 0.5}),
    ("magnitude_prune", [0.5, 2.0], {"density": 0.4}), ("magnitude_prune_svd", [0.5, 2.0], {"density": 0.7})):
    model = get_peft_model(Net(), LoraConfig(r=2, lora_alpha=3, target_modules=["lin", "conv"], init_lora_weights=False), adapter_name="a")
    model.add_adapter("b", LoraConfig(r=2, lora_alpha=1, target_modules=["lin", "conv"], init_lora_weights=False))
    model.add_weighted_adapter(["a", "b"], weights, "c", combination_type=kind, **more)
    case = {"kind": kind, "weights": weights, "options": more}
    for name in ("lin", "conv"):
        layer = getattr(model.base_model.model, name)
        case[name] = {"delta": plain(layer.get_delta_weight("c"))}
        for adapter in "ab": case[name][adapter] = [plain(layer.lora_A[adapter].weight), plain(layer.lora_B[adapter].weight)]
    out["lora"].append(case)
model = get_peft_model(Net(), IA3Config(target_modules=["lin"], feedforward_modules=[], init_ia3_weights=False), adapter_name="a")
model.add_adapter("b", IA3Config(target_modules=["lin"], feedforward_modules=[], init_ia3_weights=False))
model.add_weighted_adapter(["a", "b"], [0.7, -0.3], "c")
for adapter in "abc": out["ia3"][adapter] = plain(model.base_model.model.lin.ia3_l[adapter])
with open(sys.argv[1], "w") as f: f.write(json.dumps(out) + "\n")
