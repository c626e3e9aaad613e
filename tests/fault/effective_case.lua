-- A run that faults interrupt, by effective_test.lua: saves every 10 steps and continues from the newest checkpoint. On every rank:
--   effective_case.lua FOLDER SECONDS_OF_A_STEP      rank 0 appends "attempt step time" to FOLDER/steps
local accel = require "accel"
local nn, optim, dist = accel.nn, accel.optim, accel.dist
local folder, length = arg[1], tonumber(arg[2])
local rank = dist.get_rank()

local stat <close> = assert(io.open "/proc/self/stat")
local pids <close> = assert(io.open(("%s/pid.%d"):format(folder, rank), "w"))
pids:write(stat:read "n", "\n")
pids:close()

accel.set_seed(3)
local a = accel.Accelerator { project_config = accel.ProjectConfiguration { project_dir = folder, automatic_checkpoint_naming = true,
  total_limit = 2 } }
local net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
local model, optimizer = a:prepare(net, optim.AdamW(net:parameters(), { lr = 0.01 }))
local done = { n = 0 }
function done:state_dict() return { n = self.n } end
function done:load_state_dict(state) self.n = state.n end
a:register_for_checkpointing(done)

local attempt = os.getenv "TORCHELASTIC_RESTART_COUNT"
local log <close> = rank == 0 and assert(io.open(folder .. "/steps", "a")) or nil
while true do
  local began = accel.clock()
  a:backward(model(accel.randn(8, 16)):pow(2):mean())
  optimizer:step()
  optimizer:zero_grad()
  while accel.clock() - began < length do end -- at work
  done.n = done.n + 1
  if log then
    log:write(("%s %d %.6f\n"):format(attempt, done.n, accel.clock()))
    log:flush()
  end
  if done.n % 10 == 0 then a:save_state() end
end
