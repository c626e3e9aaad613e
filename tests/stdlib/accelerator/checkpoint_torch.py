"""Reads a checkpoint of accel with PyTorch: checkpoint_torch.py FOLDER RANKS; beside it lies FOLDER.expected.safetensors."""
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

folder, ranks = sys.argv[1], int(sys.argv[2])
expected = load_file(folder + ".expected.safetensors")
for kind in ("model", "optimizer"):
    want = {k[len(kind) + 1:]: v for k, v in expected.items() if k.startswith(kind + ".")}
    if ranks == 1:
        got = load_file(f"{folder}/{kind}.safetensors")
        assert got.keys() == want.keys(), (kind, got.keys() ^ want.keys())
    else:
        reader = dcp.HuggingFaceStorageReader(f"{folder}/{kind}")
        names = set(reader.read_metadata().state_dict_metadata)
        assert names == want.keys(), (kind, names ^ want.keys())
        got = {k: torch.full_like(v, 77) for k, v in want.items()}
        dcp.load(got, storage_reader=dcp.HuggingFaceStorageReader(f"{folder}/{kind}"), no_dist=True)
    for name, value in want.items():
        assert got[name].dtype == value.dtype and torch.equal(got[name], value), (kind, name)
print(f"torch {torch.__version__}: {len(expected)} tensors of a checkpoint of {ranks} ranks")
