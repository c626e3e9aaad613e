"""Samples of PyTorch's ModuleInfo and OptimizerInfo with PyTorch's results: python modinfo.py OUT

For every module of module_db in f64 and f32, training and not: constructor, state, inputs, result, gradients of inputs and
parameters. For every optimizer of optim_db: options, parameters, gradients, parameters after each of five steps.
tests/reference/modinfo.lua does the same with accel. OUT gets modules.json, optimizers.json and a safetensors file per entry.
"""
import argparse
import collections
import json
import os
import sys
import warnings

import torch
from safetensors.torch import save_file
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

sys.path.insert(0, os.path.dirname(__file__))
from opinfo import Store, Unknown, cotangents, differentiable, encode, fresh, flat, map_tensors, number, results  # noqa: E402

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
SEED = 0
SHORT = {torch.float64: "f64", torch.float32: "f32"}


def module_case(info, given, dtype, training, store):
    inputs = []
    c, f = given.constructor_input, given.forward_input
    entry = {"args": [encode(v, store, inputs) for v in c.args],
             "kwargs": {k: encode(v, store, inputs) for k, v in c.kwargs.items() if k not in ("device", "dtype")}}
    torch.manual_seed(SEED)
    module = info.module_cls(*map_tensors(list(c.args), torch.clone), **c.kwargs).to(dtype)
    module.train(training)
    entry["state"] = {k: store.put(v) for k, v in module.state_dict().items() if isinstance(v, torch.Tensor)}
    if f is None:
        return None
    inputs = []
    args, kwargs = list(f.args), dict(f.kwargs)
    entry["forward"] = {"args": [encode(v, store, inputs) for v in args],
                        "kwargs": {k: encode(v, store, inputs) for k, v in kwargs.items()}}
    a, k = fresh(args), fresh(kwargs)
    tensors = []
    map_tensors([a, k], lambda t: tensors.append(t) or t)
    torch.manual_seed(SEED + 1)
    try:
        out = module(*a, **k)
    except Exception as e:
        entry["error"] = type(e).__name__ + ": " + str(e)[:200]
        return entry
    entry["out"] = results(out, store)
    found = differentiable(flat(out))
    names = [n for n, p in module.named_parameters() if p.requires_grad]
    params = [p for n, p in module.named_parameters() if p.requires_grad]
    leaves = [t for t in tensors if t.requires_grad]
    if found and (params or leaves):
        cots = cotangents(found, 7)
        grads = torch.autograd.grad(found, leaves + params, cots, allow_unused=True)
        entry["cot"] = [store.put(x) for x in cots]
        place = {id(t): g for t, g in zip(leaves, grads)}
        entry["grad"] = [store.put(place[id(t)]) if place.get(id(t)) is not None else False for t in tensors]
        entry["param_grad"] = {n: store.put(g) for n, g in zip(names, grads[len(leaves):]) if g is not None}
    entry["after"] = {k: store.put(v) for k, v in module.state_dict().items() if isinstance(v, torch.Tensor)}
    return entry


def modules(folder):
    manifest, skipped = [], collections.Counter()
    for info in module_db:
        name = info.module_cls.__module__.replace("torch.", "") + "." + info.module_cls.__name__
        for dtype, short in SHORT.items():
            for training in (True, False) if info.train_and_eval_differ else (True,):
                store, cases = Store(), []
                torch.manual_seed(SEED)
                try:
                    given = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
                except Exception as e:
                    skipped[f"no inputs: {type(e).__name__}"] += 1
                    continue
                for one in given:
                    before = dict(store.tensors)
                    try:
                        case = module_case(info, one, dtype, training, store)
                        if case is not None:
                            cases.append(case)
                    except Unknown as e:
                        store.tensors = before
                        skipped[str(e)] += 1
                    except Exception as e:
                        store.tensors = before
                        skipped[f"{type(e).__name__}: {str(e)[:60]}"] += 1
                if not cases:
                    continue
                file = f"mod.{info.module_cls.__name__}.{short}.{'train' if training else 'eval'}"
                save_file(store.tensors, os.path.join(folder, file + ".safetensors"))
                manifest.append({"module": info.module_cls.__name__, "from": name, "dtype": short, "training": training,
                                 "file": file, "cases": cases})
    json.dump(manifest, open(os.path.join(folder, "modules.json"), "w"))
    for why, n in sorted(skipped.items()):
        print(f"{n:6d} module samples left out: {why}")


def optimizer_case(info, given, store):
    kwargs, inputs = dict(given.kwargs), []
    entry = {"kwargs": {k: encode(v, store, inputs) for k, v in kwargs.items()}, "desc": given.desc}
    g = torch.Generator().manual_seed(SEED + 3)
    shapes = [(4, 3), (5,), (2, 3, 2)] if info.optim_cls.__name__ != "Muon" else [(4, 3), (5, 6), (3, 8)]
    params = [torch.randn(s, generator=g, dtype=torch.float64).requires_grad_() for s in shapes]
    entry["params"] = [store.put(p) for p in params]
    entry["steps"] = []
    optimizer = info.optim_cls(params, **kwargs)
    for step in range(5):
        grads = [torch.randn(s, generator=g, dtype=torch.float64) for s in shapes]
        for p, d in zip(params, grads):
            p.grad = d.clone()
        optimizer.step()
        entry["steps"].append({"grad": [store.put(d) for d in grads], "param": [store.put(p) for p in params]})
    return entry


def optimizers(folder):
    manifest, skipped = [], collections.Counter()
    for info in optim_db:
        store, cases = Store(), []
        for given in info.optim_inputs_func(device="cpu", dtype=torch.float64):
            before = dict(store.tensors)
            try:
                cases.append(optimizer_case(info, given, store))
            except Exception as e:
                store.tensors = before
                skipped[f"{info.optim_cls.__name__}: {type(e).__name__}: {str(e)[:80]}"] += 1
        if not cases:
            continue
        file = "optim." + info.optim_cls.__name__
        save_file(store.tensors, os.path.join(folder, file + ".safetensors"))
        errors = []
        try:
            for e in info.optim_error_inputs_func("cpu", torch.float64):
                inner, inputs = e.optimizer_error_input, []
                try:
                    errors.append({"kwargs": {k: encode(v, Store(), inputs) for k, v in inner.kwargs.items()},
                                   "desc": str(inner.desc), "regex": e.error_regex if isinstance(e.error_regex, str) else ""})
                except Unknown:
                    pass
        except Exception:
            pass
        manifest.append({"optimizer": info.optim_cls.__name__, "file": file, "cases": cases, "errors": errors})
    json.dump(manifest, open(os.path.join(folder, "optimizers.json"), "w"))
    for why, n in sorted(skipped.items()):
        print(f"{n:6d} optimizer samples left out: {why}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    SEED = options.seed
    os.makedirs(options.folder, exist_ok=True)
    modules(options.folder)
    optimizers(options.folder)
