"""Calls of PyTorch's public names and their results, for tests/reference/calls.lua.

    python tests/reference/make/calls.py [AREA ...]

reads tests/reference/calls/AREA.py and writes AREA.json next to it. An area's file calls `case` once per name and form:

    case("Tensor narrow", "x.narrow(0, 1, 2)", "x:narrow(1, 2, 2)", x=f(4, 3))

The first word is the namespace of the name (torch, Tensor, F, nn, linalg, fft), the second the name. Several names that one call covers are
written one after the other: "Tensor absolute", "torch absolute" become "Tensor,torch absolute". Then come the call in Python and the
call in Lua. Without the latter it is made from the former: x.f(...) becomes x:f(...), torch.f accel.f, lists tables.

Inputs come from one formula, so that files stay small: f(shape) floats between -2 and 2, pos(shape) between 0.1 and 3, unit(shape) between
-0.95 and 0.95, i(shape, lo, hi) integers, b(shape) truth values, lit(list) written out. All take dtype=, and floats are f64 by default.
Inputs that are floats take part in gradients unless grad=False. A name that ends with _ is called on `y`, a copy of x: the result is compared, and y,
which must be the object that the call returned. fails("Tensor narrow", python, lua, ...) is a call that must raise. tol= loosens the bar, by default
1e-12 of the largest element for f64, 1e-5 for f32 and 1e-2 for 16 bits. random=True compares dtype and shape alone.
"""
import json
import math
import pathlib
import re
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent.parent / "calls"
NAMES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32",
         torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool", torch.complex64: "c64", torch.complex128: "c128"}
DTYPES = {v: k for k, v in NAMES.items()}


def spec(kind, shape, dtype, lo=0, hi=0, values=None):
    s = {"kind": kind, "shape": list(shape), "dtype": dtype}
    if hi != lo:
        s["lo"], s["hi"] = lo, hi
    if values is not None:
        s["values"] = values
    return s


def ranged(lo, hi):
    return lambda *shape, dtype="f64": spec("f", shape, dtype, lo, hi)


f, pos, unit = ranged(-2, 2), ranged(0.1, 3), ranged(-0.95, 0.95)


def i(*shape, lo=-3, hi=4, dtype="i64"):
    return spec("i", shape, dtype, lo, hi)


def b(*shape):
    return spec("b", shape, "bool")


def lit(values, dtype="f64"):
    t = torch.tensor(values, dtype=DTYPES[dtype])
    return spec("lit", t.shape, dtype, values=plain(t)["v"])


def fill(s, k):
    """Input k (from 0) of a case: calls.lua has the same formula."""
    n = math.prod(s["shape"])
    if s["kind"] == "lit":
        values = [number(v) for v in s["values"]]
        if s["dtype"] in ("c64", "c128"):
            values = [complex(*v) for v in zip(values[::2], values[1::2])]
    else:
        u = [(((j + 1) * (k * 2 + 7)) * 0.6180339887498949) % 1.0 for j in range(n)]
        if s["kind"] == "b":
            values = [v < 0.5 for v in u]
        else:
            values = [s["lo"] + v * (s["hi"] - s["lo"]) for v in u]
            if s["kind"] == "i":
                values = [math.floor(v) for v in values]
    return torch.tensor(values, dtype=DTYPES[s["dtype"]]).reshape(s["shape"])


def number(v):
    return float(v) if isinstance(v, str) else v


def flat(v):
    if isinstance(v, bool):
        return v
    if isinstance(v, float):
        if v != v or v in (math.inf, -math.inf):
            return "nan" if v != v else "inf" if v > 0 else "-inf"
        return float(f"{v:.14g}") if abs(v) > 1e-14 else 0.0
    return v


def plain(t):
    """A tensor or number as JSON."""
    if isinstance(t, torch.Tensor):
        c = t.detach()
        if c._is_zerotensor():  # zeros without memory, as some gradients are
            c = torch.zeros(c.shape, dtype=c.dtype)
        if c.is_complex():
            c = torch.view_as_real(c.resolve_conj())
        c = c.double() if c.is_floating_point() else c
        return {"t": NAMES[t.dtype], "s": list(t.shape), "v": [flat(v) for v in c.reshape(-1).tolist()]}
    if isinstance(t, complex):
        return {"c": [t.real, t.imag]}
    if isinstance(t, torch.dtype):
        return {"n": NAMES[t]}
    return {"n": flat(t)}


def outputs(v):
    if isinstance(v, (tuple, list)):
        return [o for e in v for o in outputs(e)]
    return [v]


def lua_of(text):
    text = re.sub(r"\btorch\.", "accel.", text)
    text = re.sub(r"(?<![\w.])([a-z]\w*|\))\.(?=[a-zA-Z_]\w*\()",
                  lambda m: m.group(0) if m.group(1) in ("accel", "linalg", "fft", "nn") else m.group(1) + ":", text)
    text = re.sub(r"\)\.(?=[a-zA-Z_]\w*\()", "):", text)
    for a, z in (("True", "true"), ("False", "false"), ("None", "nil")):
        text = re.sub(rf"\b{a}\b", z, text)
    return text.replace("[", "{").replace("]", "}")


cases = []


def env_of(specs, grad):
    env, leaves = {"torch": torch, "F": F, "nn": nn, "linalg": torch.linalg, "fft": torch.fft, "math": math}, []
    for k, (name, s) in enumerate(specs.items()):
        if isinstance(s, dict):
            t = fill(s, k)
            if grad and (t.is_floating_point() or t.is_complex()):
                t.requires_grad_()
                leaves.append(name)
            env[name] = t
        else:
            env[name] = s
    return env, leaves


def case(names, python, lua=None, grad=True, tol=None, random=False, **specs):
    spaces, name = names.split(" ")
    env, leaves = env_of(specs, grad)
    written = name.endswith("_") and name != "_"
    if written:
        env["y"] = env["x"].clone()
    try:
        out = outputs(eval(python, env))
    except Exception as e:
        raise SystemExit(f"{names}: {python}: {e}")
    if written:
        out.append(env["y"])
    row = {"spaces": spaces.split(","), "name": name, "lua": lua or lua_of(python), "inputs": [[k, s] for k, s in specs.items()],
           "out": [{"t": NAMES[o.dtype], "s": list(o.shape)} if random else plain(o) for o in out]}
    if tol:
        row["tol"] = tol
    learns = [o for o in out if isinstance(o, torch.Tensor) and o.requires_grad]
    if not random and learns and leaves:
        total = 0
        for k, o in enumerate(learns):
            cot = fill(spec("f", o.shape, "f64", -1, 1), k + 20).to(o.dtype)
            total = total + (o * cot).sum().real if o.is_complex() else total + (o * cot).sum()
        try:
            grads = torch.autograd.grad(total, [env[n] for n in leaves], allow_unused=True)
            row["grad"] = [[n, plain(g)] for n, g in zip(leaves, grads) if g is not None]
        except NotImplementedError:  # of some in-place forms PyTorch has no gradient
            row["grad"] = False
    else:
        row["grad"] = False if not leaves else []
    cases.append(row)


def fails(names, python, lua=None, **specs):
    spaces, name = names.split(" ")
    env, _ = env_of(specs, False)
    if name.endswith("_"):
        env["y"] = env["x"].clone()
    try:
        eval(python, env)
    except Exception:
        cases.append({"spaces": spaces.split(","), "name": name, "lua": lua or lua_of(python), "inputs": [[k, s] for k, s in specs.items()],
                      "fails": True})
        return
    raise SystemExit(f"{names}: PyTorch takes {python}")


def main():
    areas = sys.argv[1:] or sorted(p.stem for p in HERE.glob("*.py"))
    for area in areas:
        cases.clear()
        torch.manual_seed(1)
        exec(compile((HERE / f"{area}.py").read_text(), f"{area}.py", "exec"), globals())
        lines = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        (HERE / f"{area}.json").write_text(f"[\n{lines}\n]\n")
        print(f"{area}: {len(cases)} cases, {(HERE / f'{area}.json').stat().st_size} bytes")


main()
