# Writes one of the checkpoints that deepspeed_test.lua reads: a small model with tied, frozen and buffer tensors and two parameter groups, of
# two ranks (gloo, CPU), and expected.safetensors, what DeepSpeed's own zero_to_fp32.py makes of it. On both ranks, with RANK, WORLD_SIZE,
# MASTER_ADDR and MASTER_PORT set as for torchrun:
#   DS_ACCELERATOR=cpu python3 make_deepspeed.py 3 deepspeed/stage3       (needs torch, deepspeed, safetensors)
import json, os, sys

os.environ["LOCAL_RANK"] = os.environ["RANK"]
import torch, deepspeed
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from safetensors.torch import save_file

stage, out = int(sys.argv[1]), sys.argv[2]
deepspeed.init_distributed("gloo")
torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.a, self.bn = torch.nn.Embedding(11, 6), torch.nn.Linear(6, 9), torch.nn.BatchNorm1d(9)
        self.frozen, self.b, self.head = torch.nn.Linear(9, 5), torch.nn.Linear(5, 6), torch.nn.Linear(6, 11, bias=False)
        self.head.weight = self.emb.weight
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.head(self.b(self.frozen(torch.tanh(self.bn(self.a(self.emb(x)))))))


net = Net()
learns = [p for p in net.parameters() if p.requires_grad]
groups = [{"params": [p for p in learns if p.ndim > 1]}, {"params": [p for p in learns if p.ndim == 1], "weight_decay": 0.0}]
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=groups, config={
    "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.1, "torch_adam": True}}})
for i in range(3):
    loss = engine(torch.arange(4) + i + engine.global_rank).pow(2).mean()
    engine.backward(loss)
    engine.step()
engine.save_checkpoint(out, tag="global_step3")
if engine.global_rank == 0:
    state = get_fp32_state_dict_from_zero_checkpoint(out)
    save_file({k: v.contiguous().clone() for k, v in state.items()}, out + "/expected.safetensors")
losses = []
for i in range(3, 7):  # what a run that goes on from the checkpoint has to find
    loss = engine(torch.arange(4) + i + engine.global_rank).pow(2).mean()
    engine.backward(loss)
    engine.step()
    every = [torch.zeros(()) for _ in range(engine.world_size)]
    torch.distributed.all_gather(every, loss.detach())
    losses.append([x.item() for x in every])
if engine.global_rank == 0:
    json.dump(losses, open(out + "/losses.json", "w"))
