# Writes one of the checkpoints that deepspeed_test.lua reads: a small model with tied, frozen and buffer tensors and two parameter groups, of
# two ranks (gloo, CPU), and expected.safetensors, what DeepSpeed's own zero_to_fp32.py makes of it. On both ranks, with RANK, WORLD_SIZE,
# MASTER_ADDR and MASTER_PORT set as for torchrun:
#   DS_ACCELERATOR=cpu python3 make_deepspeed.py 3 deepspeed/stage3       (needs torch, deepspeed, safetensors)
# Of stage 0, which zero_to_fp32.py does not read, also in 16 bits, and expected.safetensors has the fp32 masters that DeepSpeed keeps:
#   DS_ACCELERATOR=cpu python3 make_deepspeed.py 0 deepspeed/stage0_fp16 fp16        (or bf16; "fused" behind it: one flat master for each group)
import json, os, sys

os.environ["LOCAL_RANK"] = os.environ["RANK"]
import torch, deepspeed
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
from safetensors.torch import save_file

stage, out, half = int(sys.argv[1]), sys.argv[2], (sys.argv[3:] or [None])[0]
deepspeed.init_distributed("gloo")
deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True  # torch computes in it on CPUs, too
torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.a, self.bn = torch.nn.Embedding(11, 6), torch.nn.Linear(6, 9), (torch.nn.LayerNorm if half else torch.nn.BatchNorm1d)(9)
        self.frozen, self.b, self.head = torch.nn.Linear(9, 5), torch.nn.Linear(5, 6), torch.nn.Linear(6, 11, bias=False)
        self.head.weight = self.emb.weight
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.head(self.b(self.frozen(torch.tanh(self.bn(self.a(self.emb(x)))))))


net = Net()
learns = [p for p in net.parameters() if p.requires_grad]
groups = [{"params": [p for p in learns if p.ndim > 1]}, {"params": [p for p in learns if p.ndim == 1], "weight_decay": 0.0}]
config = {
    "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.1, "torch_adam": "fused" not in sys.argv}}}
if half:
    config[half] = {"enabled": True}
    config[half].update({"initial_scale_power": 8, "loss_scale_window": 2} if half == "fp16" else {})
if stage == 0:
    groups[0]["params"].append(net.frozen.weight)  # torch counts it, and keeps nothing for it
    config["gradient_clipping"] = 1.0
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=groups, config=config)
for i in range(3):
    loss = engine(torch.arange(4) + i + engine.global_rank).pow(2).mean()
    engine.backward(loss)
    engine.step()
engine.save_checkpoint(out, tag="global_step3")
if engine.global_rank == 0:
    if stage > 0:
        state = get_fp32_state_dict_from_zero_checkpoint(out)
    else:
        state = {k: v.float() for k, v in engine.module.state_dict().items()}
        names = {id(p): name for name, p in engine.module.named_parameters()}
        for low, high in zip(getattr(engine.optimizer, "fp16_groups", []), getattr(engine.optimizer, "fp32_groups", [])):
            for p, master in zip(low, high):
                state[names[id(p)]] = master.detach()
        for low, flat in zip(getattr(engine.optimizer, "fp16_groups", []), getattr(engine.optimizer, "fp32_groups_flat", [])):
            for p, master in zip(low, flat.detach().split([p.numel() for p in low])):
                state[names[id(p)]] = master.view_as(p)
        state["head.weight"] = state["emb.weight"]
    save_file({k: v.contiguous().clone() for k, v in state.items()}, out + "/expected.safetensors")
losses = []
for i in range(3, 7):  # what a run that goes on from the checkpoint has to find
    loss = engine(torch.arange(4) + i + engine.global_rank).pow(2).mean()
    engine.backward(loss)
    engine.step()
    every = [torch.zeros(()) for _ in range(engine.world_size)]
    torch.distributed.all_gather(every, loss.detach().float())
    losses.append([x.item() for x in every])
if engine.global_rank == 0:
    json.dump(losses, open(out + "/losses.json", "w"))
