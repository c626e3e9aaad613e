# Writes a run of fp16.json, which fp16_test.lua reads (window 1000: "steady", 4: "grows", with one "init"): losses and loss scales of a small model that DeepSpeed trains in fp16 on two ranks (gloo, CPU),
# with clipping and steps that are skipped. The same for stages 1 to 3. On both ranks, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT
# set as for torchrun:
#   DS_ACCELERATOR=cpu python3 make_fp16.py 2 OUT 1000       (needs torch, deepspeed)
import json, os, sys
os.environ["LOCAL_RANK"] = os.environ["RANK"]
import torch, deepspeed
from deepspeed.accelerator import get_accelerator
get_accelerator().is_fp16_supported = lambda: True  # the products run, slowly
deepspeed.init_distributed("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
init = {k: v.clone() for k, v in net.state_dict().items()}
engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=list(net.parameters()), config={
    "train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0.5, "zero_optimization": {"stage": int(sys.argv[1])},
    "fp16": {"enabled": True, "initial_scale_power": 20, "loss_scale_window": int(sys.argv[3]), "hysteresis": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.02, "torch_adam": True}}})
losses, scales = [], []
for i in range(16):
    x = torch.sin(torch.arange(32, dtype=torch.float32).reshape(4, 8) * 0.37 + i + engine.global_rank * 0.5).half()
    loss = engine(x).pow(2).float().mean()
    engine.backward(loss)
    engine.step()
    every = [torch.zeros(()) for _ in range(engine.world_size)]
    torch.distributed.all_gather(every, loss.detach())
    losses.append([v.item() for v in every]); scales.append(engine.optimizer.cur_scale if hasattr(engine.optimizer, "cur_scale") else engine.optimizer.loss_scale)
if engine.global_rank == 0:
    json.dump({"losses": losses, "scales": scales, "init": {k: v.flatten().tolist() for k, v in init.items()}}, open(sys.argv[2], "w"))
