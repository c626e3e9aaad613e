-- Checkpoints of two machines, which are two launchers here: with save_on_each_node each writes and keeps a whole one of its own,
-- inside of an update, and goes on from it; SIGTERM to one of them has the ranks of both save at the same batch and end with status 75.
--   accel-run tests/stdlib/accelerator/checkpoint_nodes_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local program, tmp = accel.process.program(), (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/nodes"

if arg[1] then
  local folder, action = arg[1] .. os.getenv "GROUP_RANK", arg[2]
  accel.set_seed(3)
  local a = accel.Accelerator { gradient_accumulation_steps = 2, project_config = accel.ProjectConfiguration {
    save_on_each_node = true, project_dir = folder, automatic_checkpoint_naming = true, total_limit = 1 } }
  local net = accel.nn.Linear(3, 200)
  local x = accel.arange(120):view(40, 3):to "f32":sin()
  local m, o, l = a:prepare(net, accel.optim.AdamW(net:parameters()),
    accel.data.DataLoader(accel.data.TensorDataset(x), { batch_size = 1, shuffle = true }))
  if action == "load" then a:load_state() end
  if action == "save" then accel.accelerator.save({ w = accel.ones(2) }, folder .. ".safetensors", { save_on_each_node = true }) end
  local n = l:state_dict().samples // 4
  io.stdout:write("from ", n, " ", a.save_iteration, "\n")
  for _ = l.iteration + 1, 2 do
    for batch in l() do
      local _ <close> = a:accumulate(m)
      a:backward(m(batch[1]):pow(2):mean())
      o:step()
      o:zero_grad()
      _:close()
      n = n + 1
      if action == "save" and (n == 2 or n == 5) then a:save_state() end
      if action == "slow" then
        local ends = accel.clock() + 0.02
        while accel.clock() < ends do end
        if n == 4 then io.stdout:write "runs\n" io.stdout:flush() end
      end
    end
  end
  if a.process_index == 0 then io.stdout:write("sum ", ("%a"):format(a:get_state_dict(m).weight:to "f64":sum():item()), "\n") end
  return
end

local function read(path)
  local f <close> = io.open(path, "rb")
  return f and f:read "a" or ""
end

local port = 20000 + accel.util.Random((assert(io.open "/proc/self/stat"):read "n")):below(9000)

--- Runs both machines; signal(p) is called with the second one once they are under way. Their statuses and what they wrote.
local function run(options, action, signal)
  local p, status, out = {}, {}, {}
  port = port + 1
  for machine = 0, 1 do
    p[machine] = accel.process.spawn("/bin/sh", { "sh", "-c", ("exec '%s' --num_threads 1 --num_processes 4 --num_machines 2 "
      .. "--machine_rank %d --main_process_ip 127.0.0.1 --main_process_port %d %s %s'%s' '%s' %s >'%s.%d' 2>&1 </dev/null"):format(
      program, machine, port, options, ranks.before_script, arg[0], tmp, action, tmp, machine) }, {})
  end
  if signal then
    local deadline = accel.clock() + 60
    while not read(tmp .. ".1"):find "runs" do
      assert(not p[1]:wait(0.01) and accel.clock() < deadline, read(tmp .. ".0") .. read(tmp .. ".1"))
    end
    signal(p[1])
  end
  for machine = 0, 1 do
    local how, code = p[machine]:wait(120)
    out[machine] = read(("%s.%d"):format(tmp, machine))
    status[machine] = how == "exit" and code or how
    p[machine]:close()
  end
  return status, out
end

os.execute(("rm -rf '%s'*"):format(tmp))
local status, whole = run("", "save")
assert(status[0] == 0 and status[1] == 0, whole[0] .. whole[1])
local sum = whole[0]:match "sum [^\n]*"
for machine = 0, 1 do
  local names = accel.listdir(("%s%d/checkpoints"):format(tmp, machine))
  assert(#names == 1 and names[1] == "checkpoint_1", "one is kept on each machine")
  assert(accel.load(("%s%d.safetensors"):format(tmp, machine)).w:sum():item() == 2, "a file on each machine")
  local c = assert(accel.ckpt.open(("%s%d/checkpoints/checkpoint_1"):format(tmp, machine)))
  assert(c:verify() and c:bytes(("random_states_%d.accel"):format(2 * machine)) and c:tensors "gradients"[1].shape[1] == 2)
  c:close()
end
local out
status, out = run("", "load")
assert(status[0] == 0 and status[1] == 0, out[0] .. out[1])
assert(out[1]:find "from 5 2\n" and out[0]:match "sum [^\n]*" == sum, out[0] .. out[1])

os.execute(("rm -rf '%s'0 '%s'1"):format(tmp, tmp))
status, out = run("", "slow", function(p) p:signal(15) end)
assert(status[0] == 75 and status[1] == 75, ("%s %s\n%s%s"):format(status[0], status[1], out[0], out[1]))
assert(out[0]:find "accel: SIGTERM: stopped at step ", out[0])
status, out = run("--resume auto", "on")
assert(status[0] == 0 and status[1] == 0 and out[0]:match "sum [^\n]*" == sum, out[0] .. out[1])
