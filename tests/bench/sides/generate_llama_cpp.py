"""Side of the bench of decoding: greedy ids of the same prompt by llama.cpp, one JSON object on the last line."""
import argparse
import json
import os
import statistics
import time

import llama_cpp
import numpy

p = argparse.ArgumentParser()
p.add_argument("--file")
for name in ("vocab", "prompt", "tokens", "threads"):
    p.add_argument("--" + name, type=int)
o = p.parse_args()
prompt = [i * 37 % o.vocab for i in range(1, o.prompt + 1)]
model = llama_cpp.Llama(o.file, n_ctx=512, n_threads=o.threads, n_threads_batch=o.threads, n_gpu_layers=0, verbose=False)


def run(n):
    model.reset()
    ids, times, began, given = [], [], time.perf_counter(), prompt
    for _ in range(n):
        model.eval(given)
        logits = llama_cpp.llama_get_logits_ith(model.ctx, -1)  # model.scores stays zero unless all are asked for
        given = [int(numpy.argmax(numpy.ctypeslib.as_array(logits, shape=(o.vocab,))))]
        ids += given
        times.append(time.perf_counter())
    return ids, times[0] - began, [b - a for a, b in zip(times, times[1:])]


run(4)
ids, first, steps = run(o.tokens)
ms = statistics.median(steps) * 1e3
print(json.dumps({"ms": ms, "prompt_ms": first * 1e3, "gb": os.path.getsize(o.file) / ms / 1e6, "ids": " ".join(map(str, ids))}))
