-- A run to be killed, by ckpt_kill_test.lua: trains a small model, saves after every few updates, and goes on from the newest
-- checkpoint. Prints every acknowledged step, and at the end a digest of all that the run is. On every rank:
--   ckpt_kill_case.lua FOLDER STEPS EVERY ASYNCHRONOUS [STAGE]        STAGE: of ZeRO; "no": data parallelism; "mesh": tensor parallelism
--- over 2 of 4 ranks, each in a pipeline of 2 stages
local accel = require "accel"
local nn, optim, data, dist = accel.nn, accel.optim, accel.data, accel.dist
local folder, steps, every, asynchronous = arg[1], tonumber(arg[2]), tonumber(arg[3]), arg[4] == "yes"
local rank, stage, mesh = dist.get_rank(), math.tointeger(arg[5]), arg[5] == "mesh"
local width = stage and 160 or 16 -- every rank has a part

local stat <close> = assert(io.open "/proc/self/stat")
local pids <close> = assert(io.open(("%s/pid.%d"):format(folder, rank), "w"))
pids:write(stat:read "n", "\n")
pids:close()

accel.set_seed(11)
local a = accel.Accelerator { gradient_accumulation_steps = mesh and 1 or 2, -- a mesh saves between updates
  deepspeed_plugin = stage and accel.DeepSpeedPlugin { zero_stage = stage, zero3_save_16bit_model = true } or nil,
  parallelism_config = mesh and accel.ParallelismConfig { tp_size = 2, pp_size = 2,
    pp_handler = accel.accelerator.PipelineParallelConfig { num_micro_batches = 2 } } or nil,
  project_config = accel.ProjectConfiguration {
  project_dir = folder, automatic_checkpoint_naming = true, total_limit = 2 } }
local net = nn.Sequential(nn.Linear(6, width), nn.Dropout(0.3), nn.BatchNorm1d(width), nn.Tanh(), nn.Linear(width, 3))
local inputs = accel.arange(300):view(50, 6):to "f32":sin()
if mesh then
  net = accel.models.GPT2 { vocab_size = 17, n_positions = 8, n_embd = 8, n_layer = 2, n_head = 2 }
  inputs = (accel.arange(300) * 7 % 17):view(50, 6)
end
local function loss_of(model, x)
  if mesh then return (model(x, { labels = x })) end
  return model(x):pow(2):mean()
end
local opt = optim.AdamW(net:parameters(), { lr = 0.01 })
local set = data.TensorDataset(inputs, accel.arange(50))
local model, optimizer, loader, schedule = a:prepare(net, opt, data.DataLoader(set, { batch_size = 2, shuffle = true }),
  optim.lr_scheduler.StepLR(opt, 5, 0.8))
local seen = { h = 0xcbf29ce484222325, draws = 0, n = 0 } -- what was trained on, in its order
function seen:add(x) self.h = (self.h ~ x) * 0x100000001b3 end
function seen:state_dict() return { h = self.h, draws = self.draws, n = self.n } end
function seen:load_state_dict(state) self.h, self.draws, self.n = state.h, state.draws, state.n end
a:register_for_checkpointing(seen)

local function say(fmt, ...)
  if rank > 0 then return end
  io.stdout:write(fmt:format(...), "\n")
  io.stdout:flush()
end

say("from %d", seen.n)
local acknowledged -- batches of an asynchronous save that is under way
while seen.n < steps do
  for batch in loader() do
    local _ <close> = a:accumulate(model)
    a:backward(loss_of(model, batch[1]))
    optimizer:step()
    schedule:step()
    optimizer:zero_grad()
    for _, part in ipairs(a.num_processes > 1 and dist.all_gather_object(batch[2]:tolist()) or { batch[2]:tolist() }) do
      for _, x in ipairs(part) do seen:add(x) end
    end
    seen.draws = seen.draws ~ math.random(1 << 40)
    seen.n = seen.n + 1
    _:close()
    if seen.n % every == 0 then
      if asynchronous then
        a:wait_for_save()
        if acknowledged then say("saved %d", acknowledged) end
      end
      a:save_state(nil, { asynchronous = asynchronous })
      if asynchronous then acknowledged = seen.n else say("saved %d", seen.n) end
    end
    if seen.n >= steps then break end
  end
end
a:wait_for_save()

local h = seen.h
local function add(bytes)
  for i = 1, #bytes do h = (h ~ bytes:byte(i)) * 0x100000001b3 end
end
for name, t in pairs(a:get_state_dict(model)) do add(name .. t:contiguous():to_bytes()) end
local state = optimizer:state_dict()
for i = 0, #optimizer.param_groups[1].params - 1 do
  for _, key in ipairs { "exp_avg", "exp_avg_sq", "step" } do add(state.state[i][key]:contiguous():to_bytes()) end
end
local random = accel.get_rng_state()
for _, key in ipairs { "seed", "step", "stream" } do add(tostring(random[key])) end
for _, x in ipairs(random.math) do add(tostring(x)) end
add(("%d %d %.17g %d"):format(seen.draws, optimizer.applied, optimizer.param_groups[1].lr, schedule.last_epoch))
for r, other in ipairs(mesh and dist.all_gather_object(h) or {}) do h = (h ~ other + r) * 0x100000001b3 end
say("done %016x", h)
