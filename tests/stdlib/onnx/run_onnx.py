#!/usr/bin/env python3
"""Runs ONNX files with ONNX Runtime: python3 run_onnx.py DIR
DIR has NAME.onnx and NAME.safetensors with in.* and out.*. Checks each file with ONNX's checker as well, prints a line for each output that is
further than 1e-4 of the largest value from out.*, and the number of files. Exit status 1 if there is such a line."""
import glob, json, os, sys

import numpy as np
import onnxruntime

try:
    import onnx
except ImportError:
    onnx = None

TYPES = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "I64": np.int64, "I32": np.int32, "BOOL": np.bool_}


def tensors(path):
    with open(path, "rb") as f: data = f.read()
    n = int.from_bytes(data[:8], "little")
    out = {}
    for name, t in json.loads(data[8:8 + n]).items():
        if name == "__metadata__": continue
        a, b = t["data_offsets"]
        out[name] = np.frombuffer(data[8 + n + a:8 + n + b], TYPES[t["dtype"]]).reshape(t["shape"])
    return out


wrong = 0
files = sorted(glob.glob(os.path.join(sys.argv[1], "*.onnx")))
for path in files:
    if onnx: onnx.checker.check_model(path, full_check=True)
    known = tensors(path[:-5] + ".safetensors")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    got = session.run(None, {i.name: known["in." + i.name] for i in session.get_inputs()})
    for output, value in zip(session.get_outputs(), got):
        want = known["out." + output.name]
        off = np.abs(value.astype(np.float64) - want).max() / max(1.0, np.abs(want).max())
        if value.shape != want.shape or not off <= 1e-4:
            print(os.path.basename(path), output.name, value.shape, want.shape, off)
            wrong += 1
print(len(files), "files")
sys.exit(wrong > 0)
