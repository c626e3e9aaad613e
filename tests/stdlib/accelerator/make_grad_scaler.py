"""What torch.amp.GradScaler does on a CPU with given sequences of gradients, for grad_scaler_test.lua.

    python3 make_grad_scaler.py > grad_scaler.json

Each case: options of the scaler; for every round one letter per optimizer, g (finite), i (inf), n (NaN), - (does not
step); after each round the scale, the tracker, whether each optimizer stepped, and its parameter."""
import json
import math
import random

import torch

VALUES = {"g": 0.25, "i": math.inf, "n": math.nan}


def run(options, rounds):
    scaler = torch.amp.GradScaler("cpu", **options)
    n = len(rounds[0])
    params = [torch.ones(1, requires_grad=True) for _ in range(n)]
    optimizers = [torch.optim.SGD([p], lr=0.5) for p in params]
    out = []
    for letters in rounds:
        losses = [p * VALUES[c] for p, c in zip(params, letters) if c != "-"]
        scaler.scale(sum(losses).sum()).backward()
        before = [p.item() for p in params]
        for optimizer, c in zip(optimizers, letters):
            if c != "-":
                scaler.step(optimizer)
        scaler.update()
        for optimizer in optimizers:
            optimizer.zero_grad()
        state = scaler.state_dict()
        out.append({"scale": state["scale"], "tracker": state["_growth_tracker"],
                    "stepped": [b != p.item() for b, p in zip(before, params)], "params": [p.item() for p in params]})
    return {"options": options, "rounds": rounds, "results": out}


def sequence(rng, n, length):
    letters = "gggggin" if n == 1 else "ggggin-"
    rounds = []
    while len(rounds) < length:
        r = "".join(rng.choice(letters) for _ in range(n))
        if set(r) != {"-"}:
            rounds.append(r)
    return rounds


rng = random.Random(6)
cases = [run({}, ["g", "n", "n", "g"]), run({}, ["g", "i", "g", "g"]),
         run({"growth_interval": 2}, ["g"] * 5 + ["n"] + ["g"] * 4),
         run({"init_scale": 2.0 ** 126, "growth_interval": 1}, ["g"] * 4),
         run({"init_scale": 1024.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 3},
             sequence(rng, 1, 24))]
for n in (2, 3):
    cases.append(run({"init_scale": 256.0, "growth_interval": 2}, sequence(rng, n, 20)))
    cases.append(run({"init_scale": 8.0, "growth_factor": 1.5, "backoff_factor": 0.7, "growth_interval": 2},
                     sequence(rng, n, 20)))
print(json.dumps({"torch": torch.__version__, "cases": cases}, separators=(",", ":")))
