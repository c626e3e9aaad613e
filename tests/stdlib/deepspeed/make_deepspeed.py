# Writes deepspeed.json, which training_test.lua, lr_schedules_test.lua and loss_scaler_test.lua read: losses, rates, norms, weights and filled
# configurations of small runs by Accelerate with DeepSpeed on CPUs, one rank and two (gloo), DeepSpeed's schedules, and its loss scaler.
#   DS_ACCELERATOR=cpu python3 make_deepspeed.py deepspeed.json        (needs torch, accelerate, deepspeed; about a minute)
import copy, json, os, subprocess, sys, tempfile

ADAMW = {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto", "torch_adam": True}}
WARMUP = {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}


def config(stage, steps=1, clip="auto", optimizer=ADAMW, scheduler=None, **zero):
    out = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": steps,
           "gradient_clipping": clip, "zero_optimization": {"stage": stage, **zero}, "optimizer": optimizer}
    if scheduler:
        out["scheduler"] = scheduler
    return out


CASES = {
    "stage0": config(0, scheduler={"type": "WarmupLR", "params": WARMUP}),
    "stage1": config(1, 2, 0.1, {"type": "Adam", "params": {"lr": 0.05, "torch_adam": True, "adam_w_mode": False}},
                     {"type": "WarmupDecayLR", "params": {**WARMUP, "total_num_steps": "auto"}}),
    "stage2": config(2, 2, scheduler={"type": "WarmupCosineLR", "params": {"total_num_steps": 12, "warmup_num_steps": 3}}),
    "stage3": config(3, 1, 0.0, scheduler={"type": "WarmupDecayLR", "params": {
        **WARMUP, "total_num_steps": "auto", "warmup_type": "linear"}}),
    "adagrad": config(1, optimizer={"type": "Adagrad", "params": {"lr": 0.1, "weight_decay": 0.01}}),
    "sgd": config(0, 1, 0.5, {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9}},
                  {"type": "LRRangeTest", "params": {"lr_range_test_min_lr": 0.01, "lr_range_test_step_size": 4}}),
    "onecycle": config(2, optimizer=ADAMW, scheduler={"type": "OneCycle", "params": {
        "cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 3, "decay_lr_rate": 0.1, "decay_step_size": 2}}),
}

SCHEDULES = [
    ("WarmupLR", {"warmup_min_lr": 0.01, "warmup_max_lr": 0.2, "warmup_num_steps": 7}),
    ("WarmupLR", {"warmup_num_steps": 5, "warmup_type": "linear"}),
    ("WarmupLR", {"warmup_num_steps": 1}),
    ("WarmupDecayLR", {"total_num_steps": 20, "warmup_max_lr": 0.5, "warmup_num_steps": 6}),
    ("WarmupDecayLR", {"total_num_steps": 10, "warmup_min_lr": 0.1, "warmup_num_steps": 4, "warmup_type": "linear"}),
    ("WarmupCosineLR", {"total_num_steps": 20, "warmup_num_steps": 6}),
    ("WarmupCosineLR", {"total_num_steps": 12, "warmup_num_steps": 4, "warmup_min_ratio": 0.2, "cos_min_ratio": 0.1, "warmup_type": "linear"}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 6, "cycle_second_step_size": 9,
                  "decay_step_size": 3, "decay_lr_rate": 0.5, "decay_mom_rate": 0.05}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 8, "cycle_first_stair_count": 4,
                  "cycle_second_stair_count": 2, "cycle_momentum": False}),
    ("LRRangeTest", {"lr_range_test_min_lr": 0.01, "lr_range_test_step_size": 5, "lr_range_test_step_rate": 2.0}),
    ("LRRangeTest", {"lr_range_test_min_lr": 0.01, "lr_range_test_step_size": 5, "lr_range_test_staircase": True}),
]

SCALERS = [
    {"initial_scale_power": 8, "loss_scale_window": 3},
    {"initial_scale_power": 8, "loss_scale_window": 2, "hysteresis": 3},
    {"initial_scale_power": 6, "loss_scale_window": 2, "hysteresis": 2, "consecutive_hysteresis": True},
    {"initial_scale_power": 5, "loss_scale_window": 4, "hysteresis": 1, "min_loss_scale": 4},
    {"loss_scale": 128},
]
OVERFLOWS = "..x.....x.x..xx..........xxx.x.............x"


def train(name):
    import torch
    from accelerate import Accelerator, DeepSpeedPlugin
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DummyOptim, DummyScheduler
    AcceleratorState._reset_state(False)
    PartialState()  # it looks for ranks on GPUs only
    PartialState._shared_state.update(num_processes=int(os.environ["WORLD_SIZE"]), process_index=int(os.environ["RANK"]))
    a = Accelerator(deepspeed_plugin=DeepSpeedPlugin(hf_ds_config=copy.deepcopy(CASES[name])))
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    row = {"start": {k: v.tolist() for k, v in net.state_dict().items()}, "losses": [], "rates": [], "norms": []}
    optimizer = DummyOptim(net.parameters(), lr=0.1, weight_decay=0.01)
    objects = [net, optimizer]
    if "scheduler" in CASES[name]:
        objects.append(DummyScheduler(optimizer, total_num_steps=24, warmup_num_steps=4))
    data = ((torch.arange(192).view(64, 3) * 37) % 101).float() / 50 - 1
    objects.append(torch.utils.data.DataLoader(data, batch_size=4))
    prepared = a.prepare(*objects)
    net, optimizer, loader = prepared[0], prepared[1], prepared[-1]
    for i, x in enumerate(loader):
        if i == 8:
            break
        with a.accumulate(net):
            loss = net(x).pow(2).mean()
            a.backward(loss)
            norm = a.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        row["losses"].append(loss.item())
        row["rates"].append([float(g["lr"]) for g in optimizer.param_groups])
        row["norms"].append(norm)
    filled = json.loads(json.dumps(a.deepspeed_config, default=str))
    for key in ("steps_per_print", "zero_allow_untested_optimizer"):
        filled.pop(key, None)
    row["config"], row["filled"] = CASES[name], filled
    return row


def worker(path):
    import torch.distributed as dist
    rows = {name: train(name) for name in CASES}
    all_rows = [None] * dist.get_world_size()
    dist.all_gather_object(all_rows, {n: r["losses"] for n, r in rows.items()})
    if dist.get_rank() == 0:
        for name, row in rows.items():
            row["losses"] = [r[name] for r in all_rows]
        json.dump(rows, open(path, "w"))


def schedules():
    import torch
    from deepspeed.runtime import lr_schedules
    out = []
    for name, params in SCHEDULES:
        p = torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.Adam([p], lr=0.3)
        s = getattr(lr_schedules, name)(optimizer, **params)
        row = {"name": name, "params": params, "rates": [], "momenta": []}
        for _ in range(26):
            row["rates"].append(float(optimizer.param_groups[0]["lr"]))
            row["momenta"].append(list(optimizer.param_groups[0]["betas"]))
            s.step()
        out.append(row)
    return out


def scalers():
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    out = []
    for block in SCALERS:
        if block.get("loss_scale"):
            s = LossScaler(block["loss_scale"])
        else:
            s = DynamicLossScaler(2.0 ** block["initial_scale_power"], block["loss_scale_window"], block.get("min_loss_scale", 1),
                                  block.get("hysteresis", 2), block.get("consecutive_hysteresis", False))
        scales, error = [], None
        for c in OVERFLOWS:
            try:
                s.update_scale(c == "x")
            except Exception:
                error = len(scales)
                break
            scales.append(s.loss_scale)
        out.append({"block": block, "overflows": OVERFLOWS, "scales": scales, "fails_at": error})
    return out


def ranks(n, path):
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29500 + n), "WORLD_SIZE": str(n), "DS_ACCELERATOR": "cpu"}
    jobs = [subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", path],
                             env={**env, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(n)]
    assert all([j.wait() == 0 for j in jobs])
    return json.load(open(path))


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        worker(sys.argv[2])
        sys.exit()
    import accelerate, deepspeed, torch
    with tempfile.TemporaryDirectory() as folder:
        runs = {str(n): ranks(n, os.path.join(folder, "rows.json")) for n in (1, 2)}
    deepspeed.init_distributed = None
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    from deepspeed import comm
    comm.init_distributed("gloo")
    out = {"versions": {"torch": torch.__version__, "accelerate": accelerate.__version__, "deepspeed": deepspeed.__version__},
           "runs": runs, "schedules": schedules(), "scalers": scalers()}
    with open(sys.argv[1], "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")
