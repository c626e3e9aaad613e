#!/usr/bin/env python3
"""GGUF files as llama.cpp's Python package writes them: python3 gguf_files.py OUTDIR
types.gguf: a tensor of every type that accel reads, and metadata of every kind; types.safetensors: the values that the package gives back, f32, and
`x`, the values before; x.q4_0 and x.q8_0 (u8): the blocks that the package makes of them. types.json: the metadata.
iq.gguf and iq.safetensors: blocks of the types IQ1, IQ2 and IQ3 with random bytes, which the package reads and does not write."""
import json, os, sys

import gguf, numpy as np
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

out = sys.argv[1]
os.makedirs(out, exist_ok=True)
rng = np.random.default_rng(3)
x = (rng.standard_normal((6, 96)) * np.exp(rng.standard_normal((6, 1)) * 2)).astype(np.float32)
x[2, 32:64] = 0
x[3, :32] = np.arange(32) - 16
w = gguf.GGUFWriter(os.path.join(out, "types.gguf"), "some-arch")
meta = {"m.u8": 200, "m.i8": -3, "m.u16": 60000, "m.i16": -30000, "m.u32": 4000000000, "m.i32": -5, "m.u64": 2**40, "m.i64": -(2**40), "m.f32": 1.5, "m.f64": 0.1, "m.bool": True, "m.text": "h\u00e9llo", "m.texts": ["a", "", "\u2603"], "m.ints": [1, -2, 3], "m.floats": [0.5, 2.0], "m.bools": [True, False]}
for key, value in meta.items():
    kind = key[2:]
    if isinstance(value, list): w.add_array(key, value)
    elif kind == "text": w.add_string(key, value)
    else: getattr(w, "add_" + {"u8": "uint8", "i8": "int8", "u16": "uint16", "i16": "int16", "u32": "uint32", "i32": "int32", "u64": "uint64", "i64": "int64", "f32": "float32", "f64": "float64", "bool": "bool"}[kind])(key, value)
expected = {"x": x}
T = gguf.GGMLQuantizationType
for kind in (T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1):
    if kind in (T.F32, T.F16):
        data = x.astype(np.float32 if kind == T.F32 else np.float16)
        w.add_tensor(kind.name, data)
        expected[kind.name] = data.astype(np.float32)
    else:
        data = quantize(x, kind)
        w.add_tensor(kind.name, data, raw_dtype=kind)
        expected[kind.name] = dequantize(data, kind).astype(np.float32)
        if kind in (T.Q8_0, T.Q4_0): expected["x." + kind.name.lower()] = np.ascontiguousarray(data.view(np.uint8)).reshape(-1)
for name, dtype in (("I8", np.int8), ("I16", np.int16), ("I32", np.int32), ("I64", np.int64), ("F64", np.float64)):
    data = np.arange(-6, 6).reshape(1, 2, 2, 3).astype(dtype)
    w.add_tensor(name, data)
    expected[name] = data.astype(np.float32)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
save_file(expected, os.path.join(out, "types.safetensors"))
with open(os.path.join(out, "types.json"), "w") as f: f.write(json.dumps(meta) + "\n")

w = gguf.GGUFWriter(os.path.join(out, "iq.gguf"), "some-arch")
expected = {}
for kind in (T.IQ1_S, T.IQ1_M, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS, T.IQ3_S):
    rows, blocks, (_, size) = 4, 2, gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows * blocks, size), dtype=np.uint8)
    if kind == T.IQ1_M: data[:, -1] &= 0x3f # a part of the scale, which is finite then
    else: data[:, :2] = rng.standard_normal(rows * blocks).astype(np.float16).view(np.uint8).reshape(-1, 2)
    data = data.reshape(rows, blocks * size)
    w.add_tensor(kind.name, data, raw_dtype=kind)
    expected[kind.name] = dequantize(data, kind).astype(np.float32)
w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()
save_file(expected, os.path.join(out, "iq.safetensors"))
