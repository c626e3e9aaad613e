"""The PyTorch and Accelerate side of accelerator_step.lua: microseconds per step of both loops, by turns."""
import json, statistics, sys, time
import torch
from accelerate import Accelerator
torch.set_num_threads(1)
n, size, rounds = (256, 8, 1) if "--quick" in sys.argv else (4096, 8, 5)
torch.manual_seed(1)
x = torch.randn(n, 8)
y = x.sum(1, keepdim=True)

def parts():
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=size, shuffle=True)
    return model, optimizer, loader, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1)

def passes(model, optimizer, loader, scheduler, accelerator=None):
    start = time.perf_counter()
    for a, b in loader:
        if accelerator:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.mse_loss(model(a), b)
                accelerator.backward(loss)
                optimizer.step(); scheduler.step(); optimizer.zero_grad()
        else:
            loss = torch.nn.functional.mse_loss(model(a), b)
            loss.backward()
            optimizer.step(); scheduler.step(); optimizer.zero_grad()
    return (time.perf_counter() - start) * 1e6 / (n // size)

accelerator = Accelerator(cpu=True)
bare, layered = parts(), accelerator.prepare(*parts())
passes(*bare); passes(*layered, accelerator)
a, b = [], []
for _ in range(rounds):
    a.append(passes(*bare)); b.append(passes(*layered, accelerator))
print(json.dumps({"bare": statistics.median(a), "layered": statistics.median(b),
                  "over": statistics.median([q - p for p, q in zip(a, b)])}))
