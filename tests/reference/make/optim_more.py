"""LBFGS, SparseAdam, averages of models and chained schedules: writes tests/reference/optim_more.json.

    python tests/reference/make/optim_more.py

The runs are spelled out here and in tests/stdlib/optim/{lbfgs,sparse_adam,swa_utils,chained}_test.lua alike. Parameters start at cos(1.3 i + k),
inputs are sin(0.9 i + s) (element i of parameter k or of step s, all from 0). Everything is f64.
"""
import json
import pathlib

import torch
from torch.optim.lr_scheduler import (ChainedScheduler, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, CyclicLR, ExponentialLR, LambdaLR,
                                      LinearLR, MultiplicativeLR, MultiStepLR, PolynomialLR, ReduceLROnPlateau, StepLR)
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn, get_swa_avg_fn, update_bn

out = {}
f64 = torch.float64


def wave(n, k):
    return torch.cos(torch.arange(n, dtype=f64) * 1.3 + k)


def x(s):
    return torch.sin(torch.arange(8, dtype=f64) * 0.9 + s).view(4, 2)


def lbfgs(line_search, **options):
    p, q = torch.tensor([-1.2, 1.0], dtype=f64, requires_grad=True), torch.tensor([[0.5]], dtype=f64, requires_grad=True)
    o = torch.optim.LBFGS([p, q], line_search_fn=line_search, **options)

    def closure():
        o.zero_grad()
        loss = 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2 + (q ** 4).sum() + (q * p[0]).sum()
        loss.backward()
        return loss

    rows = []
    for _ in range(5):
        loss = o.step(closure)
        rows.append([loss.item()] + p.tolist() + q.view(-1).tolist() + [o.state[p]["func_evals"], o.state[p]["n_iter"]])
    return rows


out["lbfgs"] = {"none": lbfgs(None, lr=0.05, max_iter=5, history_size=3), "strong_wolfe": lbfgs("strong_wolfe", max_iter=5, history_size=3),
                "max_eval": lbfgs("strong_wolfe", max_iter=8, max_eval=4)}


def sparse_adam():
    rows = {}
    for maximize in (False, True):
        e = torch.nn.Embedding(5, 3, sparse=True).double()
        with torch.no_grad():
            e.weight.copy_(wave(15, 0).view(5, 3))
        o = torch.optim.SparseAdam(e.parameters(), lr=0.1, betas=(0.8, 0.95), eps=1e-6, maximize=maximize)
        for s in range(4):
            o.zero_grad()
            (e(torch.tensor([s % 5, 3, (s * 2) % 5])) ** 2).sum().backward()
            o.step()
        rows[str(maximize).lower()] = e.weight.flatten().tolist()
    return rows


out["sparse_adam"] = sparse_adam()


def averaged(**options):
    m = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1)).double()
    for k, p in enumerate(m.parameters()):
        with torch.no_grad():
            p.copy_(wave(p.numel(), k).view_as(p))
    a, o = AveragedModel(m, **options), torch.optim.SGD(m.parameters(), lr=0.1)
    s, rates = SWALR(o, 0.02, anneal_epochs=4), []
    for step in range(6):
        o.zero_grad()
        (m(x(step)) ** 2).sum().backward()
        o.step()
        a.update_parameters(m)
        rates.append(o.param_groups[0]["lr"])
        s.step()
    row = {"rates": rates, "state": {k: v.flatten().tolist() for k, v in a.state_dict().items()}}
    update_bn([x(10), x(11), x(12)], a)
    a.eval()
    row.update(y=a(x(20)).flatten().tolist(), mean=a.module[1].running_mean.tolist(), var=a.module[1].running_var.tolist())
    return row


out["averaged"] = {"swa": averaged(), "swa_fn": averaged(avg_fn=get_swa_avg_fn()), "ema": averaged(multi_avg_fn=get_ema_multi_avg_fn(0.9)),
                   "ema_fn": averaged(avg_fn=get_ema_avg_fn(0.9)), "buffers": averaged(multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)}


def sharded_ema():
    """Two ranks with half of a batch each see the mean of both gradients: one process with the whole batch."""
    m = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    for k, p in enumerate(m.parameters()):
        with torch.no_grad():
            p.copy_(wave(p.numel(), k).view_as(p))
    a, o = AveragedModel(m, multi_avg_fn=get_ema_multi_avg_fn(0.75)), torch.optim.AdamW(m.parameters(), lr=0.05)
    for step in range(5):
        o.zero_grad()
        (m(x(step)) ** 2).mean().backward()
        o.step()
        a.update_parameters(m)
    return {"state": {k: v.flatten().tolist() for k, v in a.state_dict().items()}, "y": a(x(20)).flatten().tolist(),
            "model": m(x(20)).flatten().tolist()}


out["sharded_ema"] = sharded_ema()


def rates(make, n=14):
    o = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    s, row = make(o), []
    for _ in range(n):
        row.append(o.param_groups[0]["lr"])
        o.step()
        s.step()
    return row


def plateau():
    o = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    s, row = ReduceLROnPlateau(o, "max", 0.5, 1, threshold=0.05, threshold_mode="abs", cooldown=1, min_lr=0.04, eps=1e-3), []
    for metric in [1, 1.01, 1.02, 1.03] + [1.2] * 10:
        s.step(metric)
        row.append(o.param_groups[0]["lr"])
    return row


out["rates"] = {
    "const_exp": rates(lambda o: ChainedScheduler([ConstantLR(o, 0.1, 3), ExponentialLR(o, 0.9)])),
    "lin_cos": rates(lambda o: ChainedScheduler([LinearLR(o, 0.25, 1.0, 4), CosineAnnealingLR(o, 5, eta_min=0.05)])),
    "lambda_step": rates(lambda o: ChainedScheduler([LambdaLR(o, lambda s: 0.95 ** s), StepLR(o, 3, 0.5)])),
    "step_lambda": rates(lambda o: ChainedScheduler([StepLR(o, 3, 0.5), LambdaLR(o, lambda s: 0.95 ** s)])),
    "poly_mult_multi": rates(lambda o: ChainedScheduler([PolynomialLR(o, 12, 2.0), MultiplicativeLR(o, lambda s: 0.98), MultiStepLR(o, [2, 2, 6], 0.5)])),
    "swalr_linear": rates(lambda o: SWALR(o, 0.05, anneal_epochs=4, anneal_strategy="linear")),
    "swalr_zero": rates(lambda o: SWALR(o, 0.05, anneal_epochs=0)),
    "chained_swalr": rates(lambda o: ChainedScheduler([ExponentialLR(o, 0.9), SWALR(o, 0.05, anneal_epochs=5)])),
    "warm_restarts": rates(lambda o: CosineAnnealingWarmRestarts(o, 3, 2, 0.01)),
    "cos_long": rates(lambda o: CosineAnnealingLR(o, 4, eta_min=0.05)),
    "cyc_exp": rates(lambda o: CyclicLR(o, 0.1, 0.5, 3, 5, mode="exp_range", gamma=0.95, cycle_momentum=False)),
    "plateau": plateau(),
}
path = pathlib.Path(__file__).resolve().parent.parent / "optim_more.json"
path.write_text(json.dumps(out, separators=(",", ":")) + "\n")
