"""Side of the bench of tokenizers: the same by the package tokenizers, each figure by its fastest call on one thread.

tokenizers.py TOKENIZER.json OUT TEXT... [--quick]: prints one JSON object of figures, writes OUT.ids and OUT.txt."""
import json
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
here = os.path.dirname(os.path.realpath(__file__))
sys.path = [p for p in sys.path if os.path.realpath(p) != here]  # this file has the package's name
from tokenizers import Tokenizer  # noqa: E402

QUICK = "--quick" in sys.argv
path, out, paths = sys.argv[1], sys.argv[2], [a for a in sys.argv[3:] if a != "--quick"]
BLOCK, PASSES = 4000, 1 if QUICK else 2

blocks, lines, size, line_size = [], [], 0, 0
for name in paths:
    with open(name, "rb") as f:
        text = f.read(20000 if QUICK else -1)
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + BLOCK) + 1 or len(text)
        blocks.append(text[start:end].decode())
        start = end
    size += len(text)
    found = [line for line in text.split(b"\n") if line]
    lines += [line.decode() for line in found]
    line_size += sum(map(len, found))


def best(n, *ways):
    least = float("inf")
    for _ in range(PASSES):
        for way in ways:
            began = time.perf_counter()
            way()
            least = min(least, time.perf_counter() - began)
    return n / least / 1e6


began = time.perf_counter()
tok = Tokenizer.from_file(path)
figures = {"load": (time.perf_counter() - began) * 1e3}
fast = getattr(tok, "encode_batch_fast", tok.encode_batch)  # no offsets


def each(texts):
    return lambda: [tok.encode(x).ids for x in texts]


def batch(call, texts):
    return lambda: [e.ids for e in call(texts)]


began = time.perf_counter()
ids = batch(fast, blocks)()
figures["first"] = size / (time.perf_counter() - began) / 1e6
figures["ids"] = best(size, each(blocks), batch(tok.encode_batch, blocks), batch(fast, blocks))
figures["offsets"] = best(size, each(blocks), batch(tok.encode_batch, blocks))
figures["lines"] = best(line_size, each(lines), batch(tok.encode_batch, lines), batch(fast, lines))
figures["decode"] = best(size, lambda: [tok.decode(x) for x in ids], lambda: tok.decode_batch(ids))

with open(out + ".ids", "w", newline="") as f:
    for row in ids + batch(fast, lines)():
        f.write(" ".join(map(str, row)) + "\n")
with open(out + ".txt", "w", newline="", encoding="utf-8") as f:
    for text in tok.decode_batch(ids):
        f.write(text + "\n")
print(json.dumps(figures))
