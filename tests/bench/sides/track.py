"""Side of the bench of accel.track: torch.utils.tensorboard's add_scalar, by microseconds per call in the fastest block and seconds until a million are in the file.

track.py DIR [--quick]: prints one JSON object of figures."""
import json
import sys
import tempfile
import time

from torch.utils.tensorboard import SummaryWriter

QUICK = "--quick" in sys.argv
N, ALL = (2000, 20000) if QUICK else (50000, 1000000)

writer = SummaryWriter(tempfile.mkdtemp(dir=sys.argv[1]))
BLOCK = 500
best = float("inf")
began = time.perf_counter()
for at in range(0, N, BLOCK):
    t = time.perf_counter()
    for i in range(at + 1, at + BLOCK + 1):
        writer.add_scalar("loss", 1 / i, i)
    best = min(best, time.perf_counter() - t)
writer.flush()
written = time.perf_counter() - began
writer.close()
print(json.dumps({"events": best / BLOCK * 1e6, "written": written * ALL / N}))
