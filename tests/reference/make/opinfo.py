"""Samples of PyTorch's own test database (OpInfo) with PyTorch's results: python opinfo.py OUT [--keep] [--seed N] [op ...]

For every op of op_db, dtype and sample: the arguments, the result, the gradients of sum(result * cotangent), in f64 and c128 also the
gradients of those, what the in-place form gives; and the inputs that PyTorch refuses. tests/reference/opinfo.lua calls accel
with the same. OUT gets ops.json (one entry per file) and NAME.json with NAME.safetensors per op and dtype; --keep leaves those that are there.
--seed N [0] draws other tensors and takes other samples of a large pool.
"""
import argparse
import collections
import json
import os
import sys
import warnings

import torch
from safetensors.torch import save_file
from torch.testing._internal.common_methods_invocations import op_db

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64",
          torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
          torch.complex64: "c64", torch.complex128: "c128"}
MOST_ELEMENTS = 4096
MOST_SAMPLES = 48  # of an op and dtype, evenly chosen: pools have thousands
SEED = 0


class Unknown(Exception):
    pass


class Store:
    """Tensors of one file by key."""

    def __init__(self):
        self.tensors = {}

    def put(self, t):
        if t.dtype not in DTYPES or t.layout != torch.strided or t.is_quantized or t.is_nested:
            raise Unknown(f"a tensor of {t.dtype}, {t.layout}")
        if t.device.type != "cpu":
            raise Unknown(f"a tensor on {t.device.type}")
        if t.dim() > 16:
            raise Unknown("a tensor of more than 16 dims")
        if t.numel() > MOST_ELEMENTS:
            raise Unknown("a tensor that is too large to be stored")
        key = f"t{len(self.tensors)}"
        t = t.detach().resolve_conj().resolve_neg().clone().contiguous()
        if t.is_complex():  # pairs of real and imaginary part, by the name of the key: safetensors has no c128
            key, t = key + "c", torch.view_as_real(t).clone()
        self.tensors[key] = t
        return key


def number(v):
    if isinstance(v, float) and (v != v or v in (float("inf"), float("-inf"))):
        return {"float": repr(v)}
    if isinstance(v, int) and not isinstance(v, bool) and not -(2**53) < v < 2**53:
        return {"int": str(v)}
    return {"float": repr(v)} if isinstance(v, float) else v


def encode(v, store, inputs):
    if isinstance(v, torch.Tensor):
        inputs.append(v)
        return {"tensor": store.put(v), "grad": bool(v.requires_grad)}
    if v is None:
        return {"none": True}
    if isinstance(v, (bool, str)):
        return v
    if isinstance(v, (int, float)):
        return number(v)
    if isinstance(v, torch.dtype) and v in DTYPES:
        return {"dtype": DTYPES[v]}
    if isinstance(v, torch.device):
        return {"device": str(v)}
    if isinstance(v, slice):
        return {"slice": [encode(x, store, inputs) for x in (v.start, v.stop, v.step)]}
    if v is Ellipsis:
        return {"ellipsis": True}
    if isinstance(v, (list, tuple, torch.Size)):
        return {"list": [encode(x, store, inputs) for x in v]}
    raise Unknown(f"an argument of type {type(v).__name__}")


def flat(out):
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, (list, tuple)):
        return [t for v in out for t in flat(v)]
    return [out]


def results(out, store):
    entries = []
    for v in flat(out):
        if isinstance(v, torch.Tensor):
            entries.append({"tensor": store.put(v)})
        elif isinstance(v, (bool, int, float)):
            entries.append(number(v))
        elif v is None:
            entries.append({"none": True})
        else:
            raise Unknown(f"a result of type {type(v).__name__}")
    return entries


def map_tensors(v, fn):
    if isinstance(v, torch.Tensor):
        return fn(v)
    if isinstance(v, (list, tuple)) and not isinstance(v, torch.Size):
        kind = type(v)
        return kind(map_tensors(x, fn) for x in v) if kind in (list, tuple) else kind(*(map_tensors(x, fn) for x in v))
    if isinstance(v, dict):
        return {k: map_tensors(x, fn) for k, x in v.items()}
    return v


def fresh(v):
    return map_tensors(v, lambda t: t.detach().clone().requires_grad_(t.requires_grad))


def wide(v):
    """The same values in f64 or c128: what the result would be without rounding."""
    def widened(t):
        t = t.detach()
        return t.double() if t.is_floating_point() else t.to(torch.complex128) if t.is_complex() else t.clone()
    return map_tensors(v, lambda t: widened(t).requires_grad_(t.requires_grad))


def cotangents(outs, seed):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(o.shape, generator=g, dtype=torch.complex128 if o.is_complex() else torch.float64).to(o.dtype) for o in outs]


def differentiable(outs):
    return [o for o in outs if isinstance(o, torch.Tensor) and o.requires_grad and (o.is_floating_point() or o.is_complex())]


def run(call, args, kwargs, order, cots=None, second=False):
    """Results, gradients by input and second gradients; order: identity of the stored inputs, by position."""
    tensors = []
    map_tensors([args, kwargs], lambda t: tensors.append(t) or t)
    out = call(*args, **kwargs)
    outs = flat(out)
    found = differentiable(outs)
    leaves = [t for t in tensors if t.requires_grad and t.is_leaf]
    if not found or not leaves:
        return out, None, None, None
    cots = cots if cots is not None else cotangents(found, 7)
    cots = [c.to(o.dtype) for c, o in zip(cots, found)]
    grads = torch.autograd.grad(found, leaves, cots, allow_unused=True, create_graph=second)
    place = {id(t): i for i, t in enumerate(leaves)}
    def by_input(list_):
        return [list_[place[id(t)]] if id(t) in place else None for t in tensors]
    seconds = None
    if second:
        live = [g for g in grads if g is not None and g.requires_grad]
        if live:
            with_ = cotangents(live, 8)
            seconds = by_input(torch.autograd.grad(live, leaves, with_, allow_unused=True))
            each = iter(with_)
            seconds = (seconds, by_input([next(each) if g is not None and g.requires_grad else None for g in grads]))
    return out, by_input(grads), seconds, cots


def case_of(op, sample, store, dtype):
    args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
    inputs = []
    entry = {"args": [encode(v, store, inputs) for v in args],
             "kwargs": {k: encode(v, store, inputs) for k, v in kwargs.items()}}
    second = dtype in (torch.float64, torch.complex128) and op.supports_gradgrad
    fresh_args, fresh_kwargs = fresh(list(args)), fresh(kwargs)
    torch.manual_seed(SEED + 1)
    try:
        out, grads, seconds, cots = run(op.op, fresh_args, fresh_kwargs, inputs, second=second)
    except NotImplementedError as e:
        entry["error"] = type(e).__name__ + ": " + str(e)[:200]
        return entry
    except RuntimeError as e:
        if second:
            try:
                out, grads, seconds, cots = run(op.op, fresh(list(args)), fresh(kwargs), inputs)
            except Exception as again:
                e = again
            else:
                e = None
        if e is not None:
            entry["error"] = type(e).__name__ + ": " + str(e)[:200]
            return entry
    entry["out"] = results(out, store)
    if grads is not None:
        entry["cot"] = [store.put(c) for c in cots]
        entry["grad"] = [store.put(g) if g is not None else False for g in grads]
        if seconds is not None:
            entry["second"], entry["second_cot"] = ([store.put(g) if g is not None else False for g in part] for part in seconds)
    if dtype in (torch.float32, torch.bfloat16, torch.float16, torch.complex64):  # what it would be without rounding on the way
        try:
            torch.manual_seed(SEED + 1)
            exact, exact_grads, _, _ = run(op.op, wide(list(args)), wide(kwargs), inputs, cots)
            entry["exact"] = results(exact, store)
            if exact_grads is not None and grads is not None:
                entry["exact_grad"] = [store.put(g) if g is not None else False for g in exact_grads]
        except Exception:
            entry.pop("exact", None)
    inplace = op.inplace_variant
    if inplace is not None and isinstance(args[0], torch.Tensor):
        try:
            a, k = map_tensors(list(args), lambda t: t.detach().clone()), map_tensors(kwargs, lambda t: t.detach().clone())
            got = inplace(*a, **k)
            if isinstance(got, torch.Tensor):
                entry["inplace"] = store.put(got)
        except Exception as e:
            entry["inplace_error"] = type(e).__name__ + ": " + str(e)[:200]
    return entry


def error_cases(op, store):
    found = []
    try:
        errors = list(op.error_inputs("cpu"))
    except Exception:
        return found
    for e in errors:
        sample, inputs = e.sample_input, []
        args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
        try:
            entry = {"args": [encode(v, store, inputs) for v in args],
                     "kwargs": {k: encode(v, store, inputs) for k, v in kwargs.items()}}
        except Unknown:
            continue
        try:
            op.op(*args, **kwargs)
        except Exception as err:
            entry["error"] = type(err).__name__ + ": " + str(err)[:200]
            found.append(entry)
    return found


def write(folder, name, cases, store):
    with open(os.path.join(folder, name + ".json"), "w") as f:
        json.dump(cases, f)
    save_file(store.tensors, os.path.join(folder, name + ".safetensors"))


def main():
    global SEED
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("ops", nargs="*")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder, keep, wanted, SEED = options.folder, options.keep, set(options.ops), options.seed
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "ops.json")
    manifest = json.load(open(path)) if wanted and os.path.exists(path) else []
    skipped = collections.Counter()
    for op in op_db:
        full = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
        if wanted and full not in wanted and op.name not in wanted:
            continue
        manifest = [m for m in manifest if m["full"] != full]
        supported = op.supported_dtypes("cpu")
        backward = op.supported_backward_dtypes("cpu") if op.supports_autograd else set()
        for dtype, short in DTYPES.items():
            name = full.replace("/", "_") + "." + short
            if dtype not in supported:
                manifest.append({"op": op.name, "full": full, "dtype": short, "unsupported": True})
                continue
            kept = {"op": op.name, "full": full, "dtype": short, "file": name, "aliases": [a.name for a in op.aliases]}
            if keep and os.path.exists(os.path.join(folder, name + ".safetensors")):
                manifest.append(kept)
                continue
            store, cases = Store(), []
            torch.manual_seed(SEED)
            try:
                samples = list(op.sample_inputs("cpu", dtype, requires_grad=dtype in backward))
            except Exception as e:
                skipped[f"no samples ({type(e).__name__})"] += 1
                continue
            stride = max(1, -(-len(samples) // MOST_SAMPLES))
            for sample in samples[SEED % stride::stride]:
                before = dict(store.tensors)
                try:
                    cases.append(case_of(op, sample, store, dtype))
                except Unknown as e:
                    store.tensors = before
                    skipped[str(e)] += 1
                except Exception as e:
                    store.tensors = before
                    skipped[f"torch fails: {type(e).__name__}"] += 1
            if not cases:
                continue
            write(folder, name, cases, store)
            manifest.append(kept)
        store = Store()
        cases = error_cases(op, store)
        if cases:
            write(folder, full + ".errors", cases, store)
            manifest.append({"op": op.name, "full": full, "dtype": "errors", "file": full + ".errors",
                             "aliases": [a.name for a in op.aliases]})
    with open(path, "w") as f:
        json.dump(manifest, f)
    for why, n in sorted(skipped.items()):
        print(f"{n:6d} samples left out: {why}")


if __name__ == "__main__":
    main()
