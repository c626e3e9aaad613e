"""Loads a folder that accel wrote into Accelerate and continues: prints the losses of the next steps as JSON.
python3 checkpoint_accelerate_python.py FOLDER SPEC.json DATA.safetensors"""
import json
import sys
import warnings

import torch
from accelerate import Accelerator
from safetensors.torch import load_file

warnings.filterwarnings("error", category=UserWarning, message=".*state.*")
torch.set_num_threads(1)
spec, data = json.load(open(sys.argv[2])), load_file(sys.argv[3])


class Box:
    value = None

    def state_dict(self):
        return self.value

    def load_state_dict(self, value):
        self.value = value


def schedule(optimizer, s):
    cls = getattr(torch.optim.lr_scheduler, s["class"])
    if "parts" in s:
        parts = [schedule(optimizer, p) for p in s["parts"]]
        return cls(optimizer, parts, s["milestones"]) if "milestones" in s else cls(parts)
    return cls(optimizer, **{k: v for k, v in s.items() if k != "class"})


accelerator = Accelerator(cpu=True)
torch.manual_seed(9)
model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
params = list(model.parameters())
groups = [{"params": params[:1], "lr": 0.02}, {"params": params[1:]}]
optimizer = getattr(torch.optim, spec["optimizer"])(groups, **spec["options"])
objects = [model, optimizer]
if spec.get("schedule"):
    objects.append(schedule(optimizer, spec["schedule"]))
objects = accelerator.prepare(*objects)
box = Box()
accelerator.register_for_checkpointing(box)
accelerator.load_state(sys.argv[1])
losses = []
for _ in range(spec["steps"]):
    loss = torch.nn.functional.cross_entropy(objects[0](data["x"]), data["y"])
    accelerator.backward(loss)
    for x in objects[1:]:
        x.step()
    objects[1].zero_grad()
    losses.append(loss.item())
rates = [group["lr"] for group in objects[1].param_groups]
print(json.dumps({"losses": losses, "rates": rates, "step": accelerator.step, "box": box.value["n"], "list": box.value["list"]}))
