-- A job whose ranks are killed and replaced, for elastic_replace_test.lua. Every process appends the batches that it takes to
-- FOLDER/log.<pid> and prints the losses that it saw and a hash of the final weights.
--   elastic_replace_case.lua FOLDER MICRO_BATCHES UPDATES RANKS PLAN WORKERS
-- While ranks are missing, the others hold each update until one is ready to join. After the first time in vain they do not. PLAN, with commas:
--   SEAT:UPDATE     the process in that seat is killed when it begins that update, once
--   POINT[:N]       a new rank is killed there, once: preamble, prepared, receive (at message N), received, healed, first, error, other
--                   (its script makes another model), hand (it calls a collective by hand). send:N: the rank that gives it the state.
--                   stuck: a new rank never takes over the state that it received
--                   changed: the file of this script is changed when a process is killed
--   none            no new rank is expected
--   leave:UPDATE, scale:UPDATE  in that update the first rank asks for its last one to leave, or for all RANKS again
local accel = require "accel"
local core = require "accel.elastic.core"
local nn, dist = accel.nn, accel.dist
local folder <const>, M <const>, UPDATES <const>, RANKS <const> = arg[1], math.tointeger(tonumber(arg[2])), math.tointeger(tonumber(arg[3])),
  math.tointeger(tonumber(arg[4]))
local ROWS <const>, EPOCHS <const> = 2, 3
local hold = 10 -- seconds
local stat <close> = assert(io.open "/proc/self/stat")
local pid <const>, seat <const>, joins <const> = stat:read "n", os.getenv "RANK", core.observes()
local log <close> = assert(io.open(("%s/log.%d"):format(folder, pid), "w"))
log:setvbuf "no"

--- Whether this is the first process that comes to a point of the plan.
local function once(name) return os.execute(("mkdir '%s/%s' 2>/dev/null"):format(folder, (name:gsub(":", "_")))) or false end
local at = {}
local function die(name)
  if not once(name) then return end
  if at.changed then os.execute(("echo '-- another' >>'%s'"):format(arg[0])) end
  os.execute("kill -9 " .. pid)
end
for word in (arg[5] or ""):gmatch "[^,]+" do
  local name, n = word:match "^(%w+):?(%d*)$"
  at[name] = at[name] or {}
  table.insert(at[name], math.tointeger(tonumber(n)) or 1)
end
local function point(name) if joins and at[name] then die(name) end end
--- Kills the process at the n-th call of dist[name].
local function count(name, plan)
  local n, fn = 0, dist[name]
  dist[name] = function(...)
    n = n + 1
    if n == plan[1] then die(name) end
    return fn(...)
  end
end

if at.none or at.leave then hold = 0 elseif at.error or at.hand or at.other or at.changed or at.stuck then hold = 1 end
point "preamble"
if joins and at.error and once "error" then error("on purpose", 0) end
if joins and at.hand then dist.all_reduce(accel.ones(1)) end
if joins and at.receive then count("recv", at.receive) end
if not joins and at.send then count("send", at.send) end
accel.manual_seed(3)
local accelerator = accel.Accelerator { micro_batches = M, kwargs_handlers = { accel.DistributedDataParallelKwargs { deterministic = "world" } } }
local g, n = accel.Generator(1), UPDATES // EPOCHS * M * ROWS
local data = accel.data.TensorDataset(accel.randn(n, 16, { generator = g }), accel.randn(n, 2, { generator = g }), accel.arange(n))
local width = joins and at.other and once "other" and 65 or 64
local model = nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.BatchNorm1d(width), nn.Dropout(0.2), nn.Linear(width, 2))
local adam = accel.optim.AdamW(model:parameters(), { lr = 0.02 })
local schedule = accel.optim.lr_scheduler.StepLR(adam, 7, { gamma = 0.9 })
local loader = accel.data.DataLoader(data, { batch_size = ROWS, shuffle = true, seed = 9, num_workers = math.tointeger(tonumber(arg[6])) or 0 })
model, adam, schedule, loader = accelerator:prepare(model, adam, schedule, loader)
point "prepared"
local healed = core.healed
core.healed = function(...)
  point "received"
  while at.stuck do os.execute "sleep 0.1" end
  healed(...)
  point "healed"
end

local kinds, losses, step, pause, last, held = {}, {}, 0, 0, accel.clock(), 0
accelerator:on_membership_change(function(change)
  kinds[#kinds + 1] = ("%s:%d:%d"):format(change.kind, #change.joined, change.num_processes)
end)
while loader.iteration < EPOCHS do
  for batch in loader() do
    local now = accel.clock()
    pause, held = math.max(pause, now - last - held), 0
    point "first"
    for _, update in ipairs(at[seat] or {}) do
      if update == accelerator.step + 1 and not joins then die(("%s:%d"):format(seat, update)) end
    end
    while hold > 0 and accelerator.num_processes < RANKS and not core.asked() do
      os.execute "sleep 0.005"
      if accel.clock() - now > hold then hold = 0 end
    end
    for word, last in accel.pairs { leave = accelerator.num_processes - 1, scale = RANKS } do
      if at[word] and at[word][1] == accelerator.step + 1 then
        if accelerator.is_main_process then
          at[word] = nil
          assert(os.execute(("'%s' %s %d %d >&2"):format(accel.process.program(), word, pid, last)))
        end
        while not core.asked() and accel.clock() - now < 10 do os.execute "sleep 0.005" end
      end
    end
    held = accel.clock() - now
    log:write(("%d %d %d %s\n"):format(accelerator.step + 1, accelerator.generation, loader.iteration, table.concat(batch[3]:tolist(), " ")))
    accelerator:accumulate(model, function()
      local loss = (model(batch[1] + accel.randn(ROWS, 16) * 0.01) - batch[2]):pow(2):mean()
      accelerator:backward(loss)
      accelerator:clip_grad_norm_(model:parameters(), 0.5)
      adam:step()
      schedule:step()
      adam:zero_grad()
    end)
    last = now
    local update = accelerator.last_update
    if update and update.step > step then
      step = update.step
      losses[#losses + 1] = ("%d=%a"):format(step, update.loss)
    end
  end
end
local hash = 0
for _, t in accel.pairs(accelerator:unwrap_model(model):state_dict()) do
  for c in t:detach():contiguous():to_bytes():gmatch "." do hash = hash * 0x100000001b3 ~ c:byte() end
end
local out <close> = assert(io.open(("%s/result.%d"):format(folder, pid), "w"))
out:write(("%016x %d %d %.3f %s %s\n"):format(hash, accelerator.step, accelerator.num_processes, pause, table.concat(kinds, ","),
  table.concat(losses, ",")))
