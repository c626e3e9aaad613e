-- What offload_kill_test.lua kills: 12 updates of a small model whose parameters, gradients and moments rest in files, a checkpoint every
-- third one, resumed by accel-run --resume auto. Prints the last loss and all parameters' sum in hexadecimal.
local accel = require "accel"
local nn = accel.nn
local dir = arg[1]
local accelerator = accel.Accelerator {
  project_config = accel.ProjectConfiguration { project_dir = dir, automatic_checkpoint_naming = true, total_limit = 2 },
  deepspeed_plugin = accel.DeepSpeedPlugin { hf_ds_config = {
    train_micro_batch_size_per_gpu = 8, gradient_accumulation_steps = 1,
    zero_optimization = {
      stage = 3, stage3_param_persistence_threshold = 0, sub_group_size = 20000,
      offload_param = { device = "nvme", nvme_path = dir }, offload_optimizer = { device = "nvme", nvme_path = dir },
    },
  } },
}
accel.manual_seed(2)
local net = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 8))
local optimizer = accel.optim.AdamW(net:parameters(), { lr = 1e-2 })
local model
model, optimizer = accelerator:prepare(net, optimizer)
local progress = { step = 0 }
function progress:state_dict() return { step = self.step } end
function progress:load_state_dict(state) self.step = state.step end
accelerator:register_for_checkpointing(progress)
local loss
while progress.step < 12 do
  accel.manual_seed(100 + progress.step)
  loss = model(accel.randn(8, 64)):pow(2):mean()
  accelerator:backward(loss)
  optimizer:step()
  optimizer:zero_grad()
  progress.step = progress.step + 1
  if progress.step % 3 == 0 and progress.step < 12 then accelerator:save_state() end
end
local sum = 0.0
for _, t in pairs(model:state_dict()) do sum = sum + t:to("f64"):sum():item() end
print(("end %a %a"):format(loss:item(), sum))
