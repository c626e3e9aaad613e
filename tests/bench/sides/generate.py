"""Side of the bench of decoding: the same greedy ids by Transformers on torch, one JSON object on the last line."""
import argparse
import json
import os
import statistics
import sys
import time

here = os.path.dirname(os.path.realpath(__file__))
sys.path = [p for p in sys.path if os.path.realpath(p) != here]  # a file here has the name of a package
import torch  # noqa: E402
import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
p = argparse.ArgumentParser()
p.add_argument("--quick", action="store_true")
p.add_argument("--family", default="gpt2")
p.add_argument("--dtype", default="f32")
p.add_argument("--data", default="")
for name in ("layers", "width", "heads", "vocab", "inner", "prompt", "tokens"):
    p.add_argument("--" + name, type=int)
o = p.parse_args()
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[o.dtype]
model = transformers.AutoModelForCausalLM.from_pretrained(o.data + "/model", dtype=dtype).eval()
# of positions, and of tokens where no head is tied to them, one row is read
count = sum(w.numel() * w.element_size() // (w.shape[0] if "wpe." in name or "embed_tokens." in name else 1)
            for name, w in model.named_parameters())
prompt = torch.tensor([[i * 37 % o.vocab for i in range(1, o.prompt + 1)]])


class Times:
    def __init__(self):
        self.at = []

    def put(self, value):
        self.at.append(time.perf_counter())

    def end(self):
        pass


def run(n):
    times = Times()
    with torch.inference_mode():
        began = time.perf_counter()
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=n, min_new_tokens=n, do_sample=False,
                             eos_token_id=None, pad_token_id=0, streamer=times)
    at = times.at[1:]  # the prompt is put first
    return out[0, o.prompt:].tolist(), at[0] - began, [b - a for a, b in zip(at, at[1:])]


run(4)
ids, first, steps = run(o.tokens)
ms = statistics.median(steps) * 1e3
print(json.dumps({"ms": ms, "prompt_ms": first * 1e3, "gb": count / ms / 1e6, "ids": " ".join(map(str, ids))}))
