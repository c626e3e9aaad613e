"""A small part of what opinfo.py wrote, in two files: python opinfo_small.py FULL OUT

Of every op one sample in f64 with second gradients and one in another dtype, in turn, of at most 64 elements a tensor.
"""
import json
import os
import sys

from safetensors import safe_open
from safetensors.torch import save_file

OTHERS = ["f32", "bf16", "i64", "f16", "i32", "u8", "bool", "i16", "i8"]


def keys_of(v, found):
    if isinstance(v, dict):
        if isinstance(v.get("tensor"), str):
            found.append(v["tensor"])
        else:
            for name, x in v.items():
                if name == "inplace":
                    found.append(x)
                else:
                    keys_of(x, found)
    elif isinstance(v, list):
        for x in v:
            if isinstance(x, str) and x[:1] == "t" and x[1:].isdigit():
                found.append(x)
            else:
                keys_of(x, found)
    return found


def renamed(v, names):
    if isinstance(v, dict):
        return {k: renamed(x, names) for k, x in v.items()}
    if isinstance(v, list):
        return [renamed(x, names) for x in v]
    return names.get(v, v) if isinstance(v, str) else v


def main():
    full, out = sys.argv[1:3]
    entries = [m for m in json.load(open(os.path.join(full, "ops.json"))) if m.get("file") and m["dtype"] != "errors"]
    by_op = {}
    for m in entries:
        by_op.setdefault(m["full"], {})[m["dtype"]] = m
    manifest, tensors = [], {}
    for turn, (name, dtypes) in enumerate(by_op.items()):
        order = OTHERS[turn % 4:] + OTHERS[:turn % 4]
        chosen = [d for d in ["f64"] if d in dtypes] + [d for d in order if d in dtypes][:1]
        for dtype in chosen:
            m = dtypes[dtype]
            cases = json.load(open(os.path.join(full, m["file"] + ".json")))
            best = None
            with safe_open(os.path.join(full, m["file"] + ".safetensors"), "pt") as f:
                sizes = {}
                for case in cases:
                    if "error" in case:
                        continue
                    keys = keys_of(case, [])
                    for k in keys:
                        sizes.setdefault(k, f.get_slice(k).get_shape())
                    counts = []
                    for k in keys:
                        n = 1
                        for e in sizes[k]:
                            n *= e
                        counts.append(n)
                    if not counts or max(counts) > 64:
                        continue
                    rank = (max(counts) < 4, sum(counts))
                    if best is None or rank < best[0]:
                        best = (rank, case, keys)
                if best is None:
                    continue
                case = best[1]
                names = {}
                for k in dict.fromkeys(best[2]):
                    names[k] = f"t{len(tensors)}"
                    tensors[names[k]] = f.get_tensor(k)
            manifest.append({**m, "cases": [renamed(case, names)]})
    os.makedirs(out, exist_ok=True)
    json.dump(manifest, open(os.path.join(out, "ops.json"), "w"), separators=(",", ":"))
    save_file(tensors, os.path.join(out, "ops.safetensors"))


if __name__ == "__main__":
    main()
