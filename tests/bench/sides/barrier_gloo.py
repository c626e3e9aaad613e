"""torchrun's side of the launch bench: joins and passes one barrier."""
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
