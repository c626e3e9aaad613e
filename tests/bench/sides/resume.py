"""Side of the bench of resuming: the same model of Transformers and AdamW under Accelerate, save_state and load_state; see resume.lua."""
import json
import os
import sys
import time

sys.path.pop(0)  # this folder has a tokenizers.py
import torch
from accelerate import Accelerator
from transformers import GPT2Config, GPT2LMHeadModel

FOLDER = sys.argv[sys.argv.index("--folder") + 1]
LAYERS, WIDTH, HEADS, VOCAB = (2, 64, 2, 512) if "--quick" in sys.argv else (12, 768, 12, 50257)
path = FOLDER + "/torch"

accelerator = Accelerator(cpu=True)
torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, resid_pdrop=0,
                                   embd_pdrop=0, attn_pdrop=0))
model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-4))
ids = (torch.arange(64) % VOCAB).view(1, 64)


def step():
    loss = torch.nn.functional.cross_entropy(model(ids).logits.view(-1, VOCAB), ids.view(-1))
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


if "--make" in sys.argv:
    step()
    accelerator.save_state(path)
    torch.save(step(), FOLDER + "/torch.loss")
    sys.exit()

t = time.monotonic()
accelerator.load_state(path)
loaded = time.monotonic()
loss = step()
done = time.monotonic()
with open("/proc/self/stat") as f:
    started = int(f.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
kept = torch.load(FOLDER + "/torch.loss")
assert abs(loss - kept) <= 1e-4 * kept, (loss, kept)
print(json.dumps({"load": (loaded - t) * 1e3, "step": (done - loaded) * 1e3, "all": (done - t) * 1e3,
                  "process": (time.monotonic() - started) * 1e3}))
