"""fp8.py OUTDIR [--seed N]: what TransformerEngine's delayed scaling and torchao's Float8Linear compute, for tests/stdlib/fp8.

TransformerEngine needs a GPU to be imported; its rule for amax and scale (DelayedScaling in the documentation of its recipes, and
the kernel that applies it to all tensors at once) is written out here in torch, step by step on the whole history. torchao runs as it is,
with emulate=True, in float32.
"""
import argparse
import json
import os

import torch
from safetensors.torch import save_file

parser = argparse.ArgumentParser()
parser.add_argument("out")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
out, metadata = {}, {"torch": torch.__version__}

# ---- delayed scaling: one amax a step and tensor; scales and history behind every step ----
FP8_MAX = {"e4m3": 448.0, "e5m2": 57344.0}
STEPS, TENSORS = 12, 6
amax = torch.rand(STEPS, TENSORS) * torch.tensor([1e-3, 1.0, 300.0, 1e-38, 5.0, 1.0])
amax[3, 1] = 0.0  # a step in which the tensor was zero
amax[5, 4] = float("inf")
amax[:, 5] = 0.0  # a tensor that never was anything else
out["te.amax"] = amax
cases = []
for fmt in ("e4m3", "e5m2"):
    for algo in ("most_recent", "max"):
        for length, margin in ((1, 0), (2, 0), (4, 2), (16, 1)):
            history, scale = torch.zeros(length, TENSORS), torch.ones(TENSORS)
            name = f"te.{fmt}.{algo}.{length}.{margin}"
            scales, histories = [], []
            for step in range(STEPS):
                history[0] = torch.maximum(history[0], amax[step])
                most = history.max(dim=0).values if algo == "max" else history[0].clone()
                if length > 1:
                    history = torch.roll(history, -1, 0)
                history[0] = 0.0
                # the kernel divides; number / tensor would be torch's reciprocal times number, one rounding more
                new = torch.tensor(FP8_MAX[fmt] / 2**margin) / most
                new = torch.where(most > 0.0, new, scale)
                new = torch.where(torch.isfinite(most), new, scale)
                new = torch.where(torch.isinf(new), torch.full_like(new, torch.finfo(torch.float32).max), new)
                scale = new
                scales.append(scale.clone())
                histories.append(history.clone())
            out[name + ".scale"], out[name + ".history"] = torch.stack(scales), torch.stack(histories)
            cases.append(name)
metadata["cases"] = " ".join(cases)

# ---- torchao: one layer forward and backward, scales of the tensors at hand ----
import torchao  # noqa: E402
from torchao.float8 import Float8LinearConfig, convert_to_float8_training  # noqa: E402

metadata["torchao"] = torchao.__version__
for pow2 in (False, True):
    for bias in (False, True):
        model = torch.nn.Sequential(torch.nn.Linear(48, 32, bias=bias))
        config = Float8LinearConfig(emulate=True, round_scales_to_power_of_2=pow2)
        convert_to_float8_training(model, config=config)
        x = (torch.randn(3, 11, 48) * 2).requires_grad_()
        dy = torch.randn(3, 11, 32) * 1e-3
        y = model(x)
        y.backward(dy)
        name = f"ao.{'pow2' if pow2 else 'plain'}.{'bias' if bias else 'none'}"
        out |= {f"{name}.x": x.detach(), f"{name}.dy": dy, f"{name}.y": y.detach(), f"{name}.dx": x.grad,
                f"{name}.weight": model[0].weight.detach(), f"{name}.dweight": model[0].weight.grad}
        if bias:
            out |= {f"{name}.bias": model[0].bias.detach(), f"{name}.dbias": model[0].bias.grad}

# ---- its recipes by rows: each product casts its own operands ----
import dataclasses  # noqa: E402

for recipe in ("rowwise", "rowwise_with_gw_hp"):
    model = torch.nn.Sequential(torch.nn.Linear(48, 32, bias=True))
    config = dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True)
    convert_to_float8_training(model, config=config)
    x = (torch.randn(2, 24, 48) * torch.logspace(-3, 2, 24)[None, :, None]).requires_grad_()  # rows of very different size
    dy = torch.randn(2, 24, 32) * torch.logspace(-6, 0, 32)
    y = model(x)
    y.backward(dy)
    name = f"ao.{recipe}"
    out |= {f"{name}.x": x.detach(), f"{name}.dy": dy, f"{name}.y": y.detach(), f"{name}.dx": x.grad,
            f"{name}.weight": model[0].weight.detach(), f"{name}.dweight": model[0].weight.grad,
            f"{name}.bias": model[0].bias.detach(), f"{name}.dbias": model[0].bias.grad}

# ---- MXFP8: blocks of 32 with a power of two each, as TransformerEngine rounds it (up, so that nothing leaves the range) ----
x = torch.randn(24, 80) * torch.logspace(-20, 20, 24)[:, None]
x[0] = 0.0
x[1, 0:32] = 448.0  # exactly a unit, and exactly above one
x[1, 32] = 448.0000305
x[2, 5] = 2.0**-130  # a subnormal number alone in its block
x[2, :5] = x[2, 6:] = 0.0
out["mx.x"] = x
for fmt, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
    got = torch.zeros_like(x)
    for row in range(x.shape[0]):
        for at in range(0, x.shape[1], 32):
            block = x[row, at:at + 32].double()
            fraction, exponent = torch.frexp(block.abs().max() / FP8_MAX[fmt])  # fraction in [0.5, 1)
            unit = max(2.0 ** (int(exponent) - (1 if float(fraction) == 0.5 else 0)), 2.0**-126) if float(block.abs().max()) > 0 else 1.0
            got[row, at:at + 32] = ((block / unit).float().to(dtype).double() * unit).float()
    out[f"mx.{fmt}"] = got

# ---- which layers of a model take part ----
names = []
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 48), torch.nn.Linear(48, 17), torch.nn.Linear(17, 64),
                            torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()), torch.nn.Linear(64, 16))
from accelerate.utils.ao import convert_model_to_fp8_ao  # noqa: E402
from torchao.float8.float8_linear import Float8Linear  # noqa: E402

convert_model_to_fp8_ao(model, config=Float8LinearConfig(emulate=True))
metadata["ao.layers"] = " ".join(n for n, m in model.named_modules() if isinstance(m, Float8Linear))

os.makedirs(args.out, exist_ok=True)
save_file({k: v.contiguous() for k, v in out.items()}, os.path.join(args.out, "fp8.safetensors"))
with open(os.path.join(args.out, "fp8.json"), "w") as f:
    json.dump(metadata, f, indent=1)
print(len(out), metadata)
