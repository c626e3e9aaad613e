"""Side of the bench of data loading: the same loads by torch.utils.data. Prints one JSON object of figures."""
import json
import re
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

QUICK = "--quick" in sys.argv


class Fast(Dataset):
    def __len__(self):
        return 500 if QUICK else 20000

    def __getitem__(self, i):
        return 1


class Decoding(Dataset):
    def __init__(self, n):
        self.n = n
        self.text = " ".join(str(i % 256) for i in range(1, 3 * 32 * 32 + 1))

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        values = [float(x.group()) for x in re.finditer(r"\d+", self.text)]
        return torch.tensor(values).view(3, 32, 32) / 255


def best(loader):
    out = float("inf")
    for _ in range(3):
        began, n = time.perf_counter(), 0
        for _ in loader:
            n += 1
        out = min(out, (time.perf_counter() - began) / n)
    return out


def once(loader):
    began = time.perf_counter()
    for _ in loader:
        pass
    return time.perf_counter() - began


rows = TensorDataset(torch.arange(64000).view(6400, 10), torch.arange(6400))
figures = {
    "fast": best(DataLoader(Fast(), batch_size=None)) * 1e6,
    "tensors": best(DataLoader(rows, batch_size=8)) * 1e6,
    "handed": best(DataLoader(rows, batch_size=8, num_workers=1)) * 1e6,
}
began = time.perf_counter()
for _ in DataLoader(rows, batch_size=8, num_workers=2):
    break
figures["start"] = (time.perf_counter() - began) * 1e3
for n in (0, 1, 2, 4):
    figures[f"decode{n}"] = once(DataLoader(Decoding(16 if QUICK else 1024), batch_size=8, num_workers=n)) * 1e3
print(json.dumps(figures))
