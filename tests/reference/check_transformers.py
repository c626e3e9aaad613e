#!/usr/bin/env python3
"""Loads model folders that accel wrote with Transformers and compares outputs: python3 check_transformers.py DIR ...
Each folder holds accel.safetensors with in/* (arguments of forward) and out/want; optionally out/aux_loss,
label/* (labels) and out/loss, out/second (a second output).
Prints a line per folder; exit status 1 when one is further than 1e-5 of the largest value from what accel computed."""
import json, os, sys

import torch
import transformers
from safetensors.torch import load_file

BAR = 1e-5
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def check(path):
    with open(os.path.join(path, "config.json")) as f:
        config = json.load(f)
    cls = getattr(transformers, config["architectures"][0])
    model, info = cls.from_pretrained(path, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info.get(key):
            return f"{key}: {sorted(map(str, info[key]))[:4]}"
    want_dtype = config["dtype"]
    if str(model.dtype) != f"torch.{want_dtype}":
        return f"dtype is {model.dtype}, config.json says {want_dtype}"
    model = model.eval().float()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    tensors = load_file(os.path.join(path, "accel.safetensors"))
    inputs = {k[3:]: v for k, v in tensors.items() if k.startswith("in/")}
    if config["model_type"] == "vit" and inputs["pixel_values"].shape[2] != config["image_size"]:
        inputs["interpolate_pos_encoding"] = isinstance(config["image_size"], int)
    with torch.no_grad():
        if "out/aux_loss" in tensors:
            inputs["output_router_logits"] = True
        out = model(**inputs)
    if hasattr(out, "prediction_logits"):
        got = out.prediction_logits
    else:
        got = out.logits if hasattr(out, "logits") else out.last_hidden_state
    want = tensors["out/want"]
    worst = float((got.double() - want.double()).abs().max() / want.abs().max())
    if got.shape != want.shape or not worst <= BAR:
        return f"outputs differ by {worst:.3g}, shapes {tuple(got.shape)} and {tuple(want.shape)}"
    if "out/aux_loss" in tensors:
        aux = float(abs(out.aux_loss.double() - tensors["out/aux_loss"].double()) / out.aux_loss.abs())
        if not aux <= BAR:
            return f"auxiliary losses differ by {aux:.3g}"
    if "out/second" in tensors:
        want = tensors["out/second"]
        far = float((out.seq_relationship_logits.double() - want.double()).abs().max() / want.abs().max())
        if not far <= BAR:
            return f"second outputs differ by {far:.3g}"
    if "out/loss" in tensors:
        labels = {k[6:]: v for k, v in tensors.items() if k.startswith("label/")}
        with torch.no_grad():
            loss = model(**inputs, **labels).loss
        far = float(abs(loss.double() - tensors["out/loss"].double()) / loss.abs())
        if not far <= BAR:
            return f"losses differ by {far:.3g}"
    if "out/generated" in tensors:
        n = tensors["out/generated"].shape[1]
        ids = model.generate(inputs["input_ids"], max_new_tokens=n, min_new_tokens=n, do_sample=False,
                             attention_mask=torch.ones_like(inputs["input_ids"]))
        new = ids[:, -n:]
        if not torch.equal(new, tensors["out/generated"]):
            return f"greedy texts differ: {new.tolist()} and {tensors['out/generated'].tolist()}"
    print(f"ok   {os.path.basename(path)}: {cls.__name__}, {worst:.3g}")
    return None


failed = 0
for folder in sys.argv[1:]:
    try:
        problem = check(folder)
    except Exception as error:  # a folder that Transformers refuses is a failure like any other
        problem = f"{type(error).__name__}: {error}"
    if problem:
        failed += 1
        print(f"FAIL {os.path.basename(folder)}: {problem}")
print(f"{len(sys.argv) - 1 - failed} passed, {failed} failed, 0 skipped")
sys.exit(1 if failed else 0)
