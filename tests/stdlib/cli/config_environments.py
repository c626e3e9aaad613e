#!/usr/bin/env python3
"""What launching with configuration files sets, by Accelerate: python3 config_environments.py FILE ... prints one JSON line per file,
{"env": {...}} or {"error": text}. The machine: 8 physical cores, 4 GPUs, fp8 libraries, Open MPI, every port free."""
import contextlib, io, json, os, sys, warnings
from unittest import mock

warnings.filterwarnings("ignore")
os.environ["HF_HOME"] = "/nonexistent"
import psutil
import torch
import accelerate.utils as U
import accelerate.utils.imports as I
import accelerate.utils.launch as UL
from accelerate.commands import launch as L

BASE = {k: os.environ[k] for k in ("PATH", "HOME") if k in os.environ}


@contextlib.contextmanager
def machine():
    with contextlib.ExitStack() as s:
        put = lambda o, name, value: hasattr(o, name) and s.enter_context(mock.patch.object(o, name, value))
        put(psutil, "cpu_count", lambda logical=True: 16 if logical else 8)
        put(torch.cuda, "device_count", lambda: 4)
        put(torch.cuda, "is_available", lambda: True)
        for module in (I, UL, L, U):
            put(module, "is_cuda_available", lambda: True)
            put(module, "is_fp8_available", lambda: True)
            put(module, "is_port_in_use", lambda *a: False)
        put(UL, "which", lambda x: "/bin/" + x if x == "mpirun" else None)
        put(UL.subprocess, "check_output", lambda *a, **k: b"mpirun (Open MPI) 4.1.4")
        yield


def environment(path):
    words = ["--config_file", path, "train.py"]
    with mock.patch.dict(os.environ, BASE, clear=True), machine(), contextlib.redirect_stdout(io.StringIO()):
        with mock.patch.object(sys, "argv", ["accelerate-launch"] + words):
            args = L.launch_command_parser().parse_args(words)
        args, defaults, from_file = L._validate_launch_command(args)
        if args.use_deepspeed and not args.cpu:
            fields = list(defaults.deepspeed_config.keys()) + (["mixed_precision"] if from_file else [])
            args.deepspeed_fields_from_accelerate_config = ",".join(fields)
            _, env = UL.prepare_deepspeed_cmd_env(args)
        elif (args.use_fsdp or args.use_megatron_lm or args.multi_gpu) and not args.cpu:
            env = UL.prepare_multi_gpu_env(args)
        elif args.tpu and not args.cpu:
            _, env = UL.prepare_tpu(args, {}, bool(args.tpu_use_cluster))
        else:
            _, env = UL.prepare_simple_launcher_cmd_env(args)
    return {k: str(v) for k, v in env.items() if BASE.get(k) != v}


for name in sys.argv[1:]:
    try:
        print(json.dumps({"env": environment(name)}))
    except (Exception, AssertionError, SystemExit) as e:
        print(json.dumps({"error": f"{type(e).__name__}: {e}"}))
