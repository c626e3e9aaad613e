-- A run for resume_test.lua: trains, saves where it is told to, and prints where it began and what it came to.
--   resume_case.lua FOLDER EPOCHS [pause=S] [save=N] [fail=N] [twice] [late] [unarmed]
local accel = require "accel"
local nn, optim, data = accel.nn, accel.optim, accel.data
local folder, epochs, given = arg[1], tonumber(arg[2]), {}
for i = 3, #arg do
  local key, value = arg[i]:match "^([^=]+)=?(.*)$"
  given[key] = tonumber(value) or true
end
accel.set_seed(5)
local a = accel.Accelerator(not given.unarmed and { project_config = accel.ProjectConfiguration {
  project_dir = folder, automatic_checkpoint_naming = true } } or nil)
local net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
local opt = optim.AdamW(net:parameters(), { lr = 0.01 })
local x = accel.arange(160):view(40, 4):to "f32":sin()
local m, o, l = a:prepare(net, opt, data.DataLoader(data.TensorDataset(x, x:sum(2)), { batch_size = 2, shuffle = true }))
local schedule = optim.lr_scheduler.StepLR(opt, 20, 0.9)
if not given.late then schedule = a:prepare(schedule) end

local function say(...)
  if a.is_main_process then
    print(...)
    io.stdout:flush()
  end
end
if given.twice then assert(a:load_state() == a.resumed_from) end
say("from", o.applied, l.iteration, a.resumed_from or "nothing")
do
  local f <close> = assert(io.open(("%s.pid%d"):format(folder, a.process_index), "w"))
  f:write((assert(io.open "/proc/self/stat"):read "n"))
end
local attempt = tonumber(os.getenv "TORCHELASTIC_RESTART_COUNT" or 0)
for _ = l.iteration + 1, epochs do
  for batch in l() do
    a:backward(nn.functional.mse_loss(m(batch[1]), batch[2]:view(-1, 1)))
    o:step()
    schedule:step()
    o:zero_grad()
    if given.save == o.applied then a:save_state() end
    if given.fail == o.applied and attempt == 0 then error "as asked" end
    if given.pause then
      if o.applied == 3 then say "runs" end
      local ends = accel.clock() + given.pause
      while accel.clock() < ends do end
    end
  end
end
local sums = {}
for name, t in pairs(a:get_state_dict(m)) do sums[#sums + 1] = name .. "=" .. ("%a"):format(t:to "f64":sum():item()) end
table.sort(sums)
say("end", o.applied, l.iteration, table.concat(sums, " "))
