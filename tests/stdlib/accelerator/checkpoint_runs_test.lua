-- Which run a checkpoint is of: a second run in a folder is refused on all ranks with one line, by its first step or save, and changes
-- nothing; the three ways past that; restarts of --max-restarts are one run; runs beside each other; checkpoints of earlier releases.
-- Random sequences of all this are in checkpoint_age_test.lua.
--   accel-run tests/stdlib/accelerator/checkpoint_runs_test.lua
-- tier: sampled
local accel = require "accel"
local sample = dofile((arg[0]:match "^.*/" or "") .. "../../support/sample.lua")

if arg[1] == "run" then
  local project, actions = arg[2], table.concat(arg, " ", 3)
  local function told(word) return actions:match(word .. "=(%S+)") or actions:find(word, 1, true) and true or nil end
  local function make()
    local a = accel.Accelerator { project_config = accel.ProjectConfiguration { project_dir = project, automatic_checkpoint_naming = true,
      total_limit = tonumber(told "limit"), on_existing = told "beside" and "beside" or nil } }
    local net = accel.nn.Linear(1, 1)
    accel.no_grad(function() net.weight:fill_(1) end)
    return a, net, a:prepare(net, accel.optim.SGD(net:parameters(), { lr = 0.5 }))
  end
  local a, net, model, optimizer = make()
  local function say(...)
    io.stdout:write(table.concat({ ... }, " "), "\n")
    io.stdout:flush()
  end
  local function value(v)
    if v then accel.no_grad(function() net.weight:fill_(v) end) end
    return ("%g"):format(net.weight:item())
  end
  say("attempt", os.getenv "TORCHELASTIC_RESTART_COUNT" or "-", a.resumed_from and a.resumed_from:match "[^/]*$" or "-", value())
  for _, action in ipairs { table.unpack(arg, 3) } do
    local what, v = action:match "^(%a+)=?(.*)$"
    local ok, why = true, nil
    if what == "step" then
      a:backward(model(accel.ones(1, 1)):sum())
      local before = value()
      ok, why = pcall(optimizer.step, optimizer)
      if not ok then assert(value() == before, "a refused step changed the parameters") end
      optimizer:zero_grad()
    elseif what == "save" then
      value(tonumber(v))
      ok, why = pcall(a.save_state, a)
      if ok then say("saved", why:match "[^/]*$", accel.listdir(why) and "there" or "GONE") end
    elseif what == "to" then
      ok, why = pcall(a.save_state, accel.Accelerator {}, project .. "/" .. v)
    elseif what == "load" then
      ok, why = pcall(a.load_state, a)
      if ok then say("loaded", why:match "[^/]*$", value()) end
    elseif what == "again" then
      a, net, model, optimizer = make()
    elseif what == "child" then -- another run beside this one, in the same folder
      if a.is_main_process then
        os.execute(("ACCEL_WORLD=none '%s' --num_threads 1 '%s' run '%s' beside save=%s >/dev/null"):format(accel.process.program(), arg[0],
          project, v))
      end
      a:wait_for_everyone() -- a rank that fails earlier would end the other one with its child
    elseif what == "fail" then
      if os.getenv "TORCHELASTIC_RESTART_COUNT" == "0" then error "as asked" end
    end
    if not ok then say("refused", (tostring(why):gsub("^[^\n]-:%d+: ", ""):gsub("\n.*", ""):gsub("rank 0: ", ""))) end
  end
  return
end

local program, tmp = accel.process.program(), (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/runs"
local project = tmp .. "/p"
os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(tmp, tmp))

--- The lines of a run.
local function run(options, actions)
  local pipe <close> = assert(io.popen(("'%s' --num_threads 1 %s '%s' run '%s' %s 2>'%s/err'"):format(program, options, arg[0], project,
    actions, tmp)))
  return pipe:read "a"
end
local function same(a, b, what) assert(a == b, ("%s: got\n%s\nexpected\n%s"):format(what, a, b)) end
local function names()
  local list = accel.listdir(project .. "/checkpoints") or {}
  table.sort(list)
  return table.concat(list, " ")
end
local function files()
  local pipe <close> = assert(io.popen(("cd '%s' && find . -type f -exec cksum {} + | sort"):format(project)))
  return pipe:read "a"
end
local function fresh() os.execute(("rm -rf '%s'"):format(project)) end
local function manifest(name)
  local c <close> = assert(accel.ckpt.open(project .. "/checkpoints/" .. name))
  return c.manifest
end

-- ---- refused on every rank with one line ----
local take, numbers = sample.one_of(2), {}
for n = 1, 2 do numbers[#numbers + 1] = take() and n or nil end
for _, n in ipairs(numbers) do
  fresh()
  local ranks = n > 1 and "--num_processes " .. n or ""
  assert(run(ranks, "save=1 save=2"):find "saved checkpoint_1 there")
  local before = files()
  local line = ("holds checkpoints of another run (checkpoint_0); to continue that run call load_state() first or start with accel-run "
    .. '--resume auto, to keep both set ProjectConfiguration { on_existing = "beside" }')
  for what, who in pairs { step = "optimizer:step()", save = "save_state" } do
    local out = run(ranks, what)
    local _, count = out:gsub(("refused %s: %s/checkpoints %s\n"):format(who, project, line):gsub("%p", "%%%0"), "")
    assert(count == n, ("%d ranks, %s: %d lines\n%s"):format(n, what, count, out))
    assert(files() == before, what .. " changed files")
  end
  -- the three ways, and a name that the script gives
  assert(run(ranks, "load step save=3"):find "loaded checkpoint_1 2\n.*saved checkpoint_2 there")
  assert(run(ranks .. " --resume auto", "step save=4"):find "attempt %S+ checkpoint_2 3\n.*saved checkpoint_3 there")
  assert(run(ranks, "beside step save=5"):find "saved checkpoint_4 there")
  same(names(), "checkpoint_0 checkpoint_1 checkpoint_2 checkpoint_3 checkpoint_4", "all of them")
  assert(not run(ranks, "to=mine"):find "refused" and accel.ckpt.open(project .. "/mine"))
end

do -- limits: of this run and of those that it continues, none of others
  local ranks = "--num_processes 2"
  assert(run(ranks, "beside limit=1 save=6 save=7"):find "saved checkpoint_6 there")
  same(names(), "checkpoint_0 checkpoint_1 checkpoint_2 checkpoint_3 checkpoint_4 checkpoint_6", "beside")
  assert(run(ranks, "load limit=1 save=8"):find "loaded checkpoint_6 7\n.*saved checkpoint_7 there")
  same(names(), "checkpoint_0 checkpoint_1 checkpoint_2 checkpoint_3 checkpoint_4 checkpoint_7", "the run that is continued")
  -- a chain of runs that continue each other is as one, from its end
  fresh()
  ranks = ""
  run(ranks, "save=1")
  for k = 2, 4 do assert(run(ranks .. " --resume auto", "save=" .. k):find("saved checkpoint_" .. k - 1)) end
  assert(#manifest "checkpoint_3".continues == 3)
  run(ranks .. " --resume auto", "limit=2 save=5")
  same(names(), "checkpoint_3 checkpoint_4", "a chain")
end

-- ---- a process is one run, whatever its Accelerators ----
fresh()
same(run("", "save=1 again save=2 again limit=2 step save=3 load"), "attempt - - 1\nsaved checkpoint_0 there\nsaved checkpoint_1 there\n"
  .. "saved checkpoint_2 there\nloaded checkpoint_2 3\n", "several Accelerators")
same(names(), "checkpoint_1 checkpoint_2", "several Accelerators")

-- ---- restarts are the same run, also where another run saves beside them ----
fresh()
local out = run("--num_processes 2 --max_restarts 1 --monitor_interval 0", "step save=5 child=6 fail limit=2 save=7 load")
assert(out:find "attempt 0 %- 1\n" and out:find "attempt 1 checkpoint_0 5\n" and out:find "loaded checkpoint_%d 7\n", out)
same(names(), "checkpoint_1 checkpoint_2 checkpoint_3 checkpoint_4", "two of this run are kept, and those of both children")
local own = manifest "checkpoint_4".run
assert(#own == 16 and manifest "checkpoint_2".run == own and manifest "checkpoint_1".run ~= own and manifest "checkpoint_3".run ~= own)
assert(run("--resume auto", "load"):find "attempt %- checkpoint_%d 7\n", "the newest of all")

-- A restart without a checkpoint of its own run starts as the first time: refused again, or beside, and not from another run's state.
for _, way in ipairs { "step fail", "beside fail step save=8" } do
  if not take() then goto next end
  fresh()
  run("", "save=5")
  local before, beside = files(), way:find "beside"
  out = run("--num_processes 2 --max_restarts 1 --monitor_interval 0", way)
  assert(out:find "attempt 1 %- 1\n" and not out:find "attempt 1 checkpoint", out)
  assert(beside and out:find "saved checkpoint_1 there" or out:find "attempt 1 .*refused" and files() == before, out)
  ::next::
end

-- ---- another run that comes later does not end this one ----
for _, first in ipairs { "save=1", "step" } do
  if take() then
    fresh()
    out = run("", first .. " child=6 save=2 step again step save=3")
    assert(not out:find "refused" and out:find "saved checkpoint_%d there\n$", out)
  end
end

do -- two runs that save at the same time take different numbers
  fresh()
  local saves = ("save=1 "):rep(15)
  local command = ("'%s' --num_threads 1 '%s' run '%s' beside limit=2 %s"):format(program, arg[0], project, saves)
  os.execute(("(%s >'%s/one') & %s >'%s/two'; wait"):format(command, tmp, command, tmp))
  for _, name in ipairs { "one", "two" } do
    local f <close> = assert(io.open(tmp .. "/" .. name))
    local text = f:read "a"
    assert(select(2, text:gsub("saved checkpoint_%d+ there", "")) == 15, text)
  end
  assert(#accel.listdir(project .. "/checkpoints") == 4, names())
end

-- ---- checkpoints of releases before there was an age ----

local function crc32c(text)
  local crc = 0xffffffff
  for i = 1, #text do
    crc = crc ~ text:byte(i)
    for _ = 1, 8 do crc = crc & 1 == 1 and crc >> 1 ~ 0x82f63b78 or crc >> 1 end
  end
  return ~crc & 0xffffffff
end

--- Makes a checkpoint one of format 1.0, written at a time of 2020.
local function make_old(name, hour)
  local path = project .. "/checkpoints/" .. name .. "/MANIFEST.json"
  local f <close> = assert(io.open(path, "rb"))
  local text, n = f:read "a"
  text, n = text:gsub('"version": "1.1"', '"version": "1.0"'):gsub('\n  "run": [^\n]*\n  "sequence": [^\n]*\n  "continues": %[%],', "")
  assert(n == 1, text)
  text = text:gsub('"created": "[^"]*"', ('"created": "2020-01-02T%02d:00:00Z"'):format(hour)):gsub('%x+"\n}\n$', "")
  local out <close> = assert(io.open(path, "wb"))
  out:write(text, ("%08x"):format(crc32c(text)), '"\n}\n')
end

fresh()
run("", "save=0 save=1 save=2 save=3")
for name, hour in pairs { checkpoint_3 = 5, checkpoint_2 = 4, checkpoint_0 = 6, checkpoint_1 = 6 } do make_old(name, hour) end
local order = {}
for i, entry in ipairs(accel.ckpt.scan(project .. "/checkpoints")) do order[i] = entry.name:match "%d+" .. entry.run end
same(table.concat(order, " "), "2 3 0 1", "by the second of writing, then by number")
assert(run("", "step"):find "refused optimizer:step%(%): .* of another run")
assert(run("", "beside limit=1 save=9"):find "saved checkpoint_4 there")
same(names(), "checkpoint_0 checkpoint_1 checkpoint_2 checkpoint_3 checkpoint_4", "nothing of another run is removed")
assert(run("", "load save=10"):find "loaded checkpoint_4 9\n", "newer than all old ones")
fresh()
run("", "save=0 save=1 save=2")
for k = 0, 2 do make_old("checkpoint_" .. k, 9 - k) end
assert(run("--resume auto", "limit=2 save=3"):find "attempt %- checkpoint_0 0\n", "the last that was written")
same(names(), "checkpoint_0 checkpoint_3", "a run that continues an old one removes the oldest of these")

do -- folders that are no checkpoints of ours count where they have such a name; others do not
  fresh()
  assert(accel.makedirs(project .. "/checkpoints/logs"))
  assert(run("", "step save=1"):find "saved checkpoint_0 there")
  assert(accel.makedirs(project .. "/checkpoints/checkpoint_7"))
  os.execute(("rm -rf '%s/checkpoints/checkpoint_0'"):format(project))
  assert(run("", "save=1"):find "refused save_state: .*%(checkpoint_7%)")
  assert(run("", "beside save=1"):find "saved checkpoint_8 there")
end
os.execute(("rm -rf '%s'"):format(tmp))
