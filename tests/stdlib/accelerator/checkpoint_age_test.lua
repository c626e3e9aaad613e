-- Which checkpoint is the newest, and what may be removed: random sequences of runs that save, save in the background, load, are killed
-- and find the clock set, and of ckpt prune between them, against a small model of what must exist. After every process the folder holds
-- what the model has, with the values that were saved; a run that is refused changes no file.
--
-- tier: sampled (one of 8 sequences in a run of every change)
--   accel-run tests/stdlib/accelerator/checkpoint_age_test.lua
local accel = require "accel"

-- ---- a run: what it is told, in order ----

if arg[1] == "run" then
  local project, mode, limit, step = arg[2], arg[3], tonumber(arg[4]), arg[5] == "step"
  local function say(...)
    print(...)
    io.stdout:flush()
  end
  local a = accel.Accelerator { project_config = accel.ProjectConfiguration { project_dir = project, total_limit = limit,
    automatic_checkpoint_naming = mode ~= "named", on_existing = mode == "beside" and "beside" or nil } }
  local net = accel.nn.Linear(1, 1)
  local model, optimizer = a:prepare(net, accel.optim.SGD(net:parameters(), { lr = 0 }))
  local function weight(value)
    if value then accel.no_grad(function() net.weight:fill_(value) end) end
    return ("%d"):format(net.weight:item())
  end
  local function name(path) return path:sub(#project + 2) end
  if a.resumed_from then say("loaded", name(a.resumed_from), weight()) end
  if mode == "load" then say("loaded", name(a:load_state()), weight()) end
  local ok, why = pcall(function()
    if step then
      a:backward(model(accel.ones(1, 1)):sum())
      optimizer:step()
      optimizer:zero_grad()
    end
    for i = 6, #arg do
      local what, value, where = arg[i]:match "^(%a+)(%d*)=?(.*)$"
      if what == "save" then
        weight(tonumber(value))
        say("saved", name(a:save_state(mode == "named" and project .. "/" .. where or nil)), value)
      elseif what == "async" then
        weight(tonumber(value))
        local path = a:save_state(mode == "named" and project .. "/" .. where or nil, { asynchronous = true })
        weight(0)
        a:wait_for_save()
        say("saved", name(path), value)
      elseif what == "load" then
        say("loaded", name(a:load_state()), weight())
      else -- killed, perhaps while it writes
        weight(tonumber(value))
        say("dies", name(a:save_state(mode == "named" and project .. "/" .. where or nil, { asynchronous = true })), value)
        local ends = accel.clock() + value % 4 * 0.02
        while accel.clock() < ends do end
        local pid = assert(io.open "/proc/self/stat"):read "n"
        os.execute("kill -9 " .. pid)
      end
    end
  end)
  if not ok then say("raised", (tostring(why):gsub("\n.*", ""))) end
  return
end

-- ---- the driver ----

local tests = arg[0]:match "^.*/" or ""
local ranks = dofile(tests .. "../../support/ranks.lua")
local sample = ranks.sample
local program, tmp = accel.process.program(), (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/age"
local clock = not sample.sanitized and (os.getenv "ACCEL_TEST_PLUGINS" or "") .. "/plugin_clock_step.so" or ""
local has_clock = io.open(clock, "rb")
if has_clock then has_clock:close() else print "skipped: the clock is not set (no plugin_clock_step.so)" end

--- Runs a command; what it wrote.
local function shell(command)
  local pipe <close> = assert(io.popen(command .. " 2>&1", "r"))
  return pipe:read "a"
end

--- The checkpoints of a project on disk: name -> value of the weight.
local function on_disk(project)
  local out = {}
  for _, prefix in ipairs { "", "checkpoints/" } do
    for _, entry in ipairs(accel.ckpt.scan(project .. "/" .. prefix) or {}) do
      if entry.status == "ok" then
        local c <close> = assert(accel.ckpt.open(entry.path))
        assert(c:verify())
        local t = accel.empty(1, 1)
        assert(c:read("model", "weight", t))
        out[prefix .. entry.name] = t:item()
      else
        assert(entry.status ~= "damaged", entry.path .. ": " .. entry.reason)
      end
    end
  end
  return out
end

local seen = { saved = 0, loaded = 0, refused = 0, killed = 0, ["killed behind the commit"] = 0, pruned = 0 }

local function everything(project) return shell(("cd '%s' && find . -type f -exec md5sum {} + | sort"):format(project)) end

--- One sequence. model: entries { name, value, run, continues }, in the order of saving.
local function sequence(seed)
  local random = accel.util.Random(seed)
  local function one_of(list) return list[1 + random:below(#list)] end
  local project, model, runs, value, log = tmp .. "/p", {}, 0, 0, {}
  os.execute(("rm -rf '%s' && mkdir -p '%s'"):format(project, project))

  local function fail(format, ...)
    error(("ACCEL_TEST_SEED=%d: %s\n%s"):format(seed, format:format(...), table.concat(log, "\n")), 0)
  end
  local function expect(ok, ...) if not ok then fail(...) end end

  local function automatic(entry) return entry.name:find "^checkpoints/" ~= nil end
  --- Keeps the last `keep` of those that `of` takes.
  local function keep_last(keep, of)
    local n = 0
    for i = #model, 1, -1 do
      if of(model[i]) then
        n = n + 1
        if n > keep then table.remove(model, i) end
      end
    end
  end
  --- The last one for which `of` holds.
  local function last(of)
    for i = #model, 1, -1 do
      if of(model[i]) then return model[i] end
    end
  end
  local function compare(what)
    local disk, want = on_disk(project), {}
    for _, entry in ipairs(model) do want[entry.name] = entry.value end
    for name, v in pairs(want) do expect(disk[name] == v, "%s: %s holds %s, must hold %d", what, name, disk[name], v) end
    for name in pairs(disk) do expect(want[name], "%s: %s is there", what, name) end
  end

  --- A process of a run: what it is told, what it says, what the model makes of that.
  local function run()
    runs = runs + 1
    local mode, limit = one_of { "plain", "plain", "resume", "load", "beside", "named" }, one_of { "none", "1", "2", "3" }
    if mode == "load" and not last(automatic) then mode = "resume" end
    local actions, shift = {}, one_of { 0, 0, -86400, 86400, -40 * 86400, 3600, -5 }
    for i = 1, 1 + random:below(4) do
      value = value + 1
      local what = one_of { "save", "save", "save", "async", "load", "kill" }
      if what == "load" and (mode == "named" or i == 1 or mode == "plain") then what = "save" end
      actions[i] = what == "load" and what or ("%s%d=%s"):format(what, value, "state_" .. random:below(4))
      if what == "kill" then break end
    end
    local command = ("cd '%s' && %s '%s' %s --num_threads 1 %s'%s' run '%s' %s %s %s %s"):format(tmp,
      has_clock and ("LD_PRELOAD='%s' ACCEL_TEST_CLOCK_STEP=%d"):format(clock, shift) or "", program,
      mode == "resume" and "--resume auto" or "", ranks.before_script, arg[0], project, mode, limit, random:below(2) == 0 and "step" or "no",
      table.concat(actions, " "))
    log[#log + 1] = ("run %d: %s, limit %s, clock %+d: %s"):format(runs, mode, limit, shift, table.concat(actions, " "))
    local before = everything(project)
    local out = shell(command)
    log[#log + 1] = "  " .. out:gsub("\n", "\n  ")
    local mine = { [runs] = true }
    local function is_mine(entry) return mine[entry.run] end
    local function loads(name, v)
      local fresh = next(mine) == runs and next(mine, runs) == nil
      local want
      if mode == "resume" and fresh and not last(is_mine) then want = last(function() return true end)
      else want = last(function(e) return automatic(e) and is_mine(e) end) or last(automatic) end
      expect(want and want.name == name and want.value == v, "loaded %s (%d), the newest is %s", name, v, want and want.name)
      mine[want.run] = true
      for r in pairs(want.continues) do mine[r] = true end
    end
    local function saves(name, v)
      local greatest = -1
      for i = #model, 1, -1 do
        if mode == "named" and model[i].name == name then table.remove(model, i) else
          greatest = math.max(greatest, automatic(model[i]) and tonumber(model[i].name:match "%d+$") or -1)
        end
      end
      expect(mode == "named" or tonumber(name:match "^checkpoints/checkpoint_(%d+)$") == greatest + 1,
        "saved %s behind number %d", name, greatest)
      local continues = {}
      for r in pairs(mine) do continues[r] = true end
      model[#model + 1] = { name = name, value = v, run = runs, continues = continues }
    end
    if mode == "plain" and last(automatic) then -- of another run
      local text = out:match "raised\t([^\n]*)"
      expect(text and text:find("holds checkpoints of another run", 1, true) and text:find("load_state()", 1, true)
        and text:find("--resume auto", 1, true) and text:find('on_existing = "beside"', 1, true), "was not refused: %s", out)
      expect(not out:find "saved", "saved before it was refused")
      expect(everything(project) == before, "a refused run changed files")
      seen.refused = seen.refused + 1
      return
    end
    local killed
    for line in out:gmatch "[^\n]+" do
      local what, name, v = line:match "^(%a+)\t([^\t]*)\t?(%d*)$"
      v = tonumber(v)
      if what and seen[what] then seen[what] = seen[what] + 1 end
      if what == "loaded" then loads(name, v)
      elseif what == "saved" then
        saves(name, v)
        local most = mode ~= "named" and tonumber(limit)
        if most then keep_last(most, function(e) return automatic(e) and is_mine(e) end) end
      elseif what == "dies" then killed = { name, v }
      elseif what == "raised" then fail("%s", line) end
    end
    if killed then -- it is there whole, or nothing of it is
      local there = on_disk(project)[killed[1]] == killed[2]
      if there then saves(killed[1], killed[2]) end
      local what = there and "killed behind the commit" or "killed"
      seen[what] = seen[what] + 1
    end
    local done = select(2, out:gsub("%f[%a]saved\t", "")) + select(2, out:gsub("\nloaded\t", ""))
    expect(killed or done >= #actions - 1, "it ended early")
  end

  for _ = 1, 10 do
    if random:below(5) == 0 and last(automatic) then
      local keep = 1 + random:below(3)
      log[#log + 1] = ("prune --keep %d"):format(keep)
      local newest = last(automatic)
      shell(("'%s' ckpt prune --keep %d '%s'"):format(program, keep, project))
      keep_last(keep, automatic)
      seen.pruned = seen.pruned + 1
      assert(last(automatic) == newest)
    else
      run()
    end
    compare(log[#log])
  end
  os.execute(("rm -rf '%s'"):format(project))
end

os.execute(("mkdir -p '%s'"):format(tmp))
local take = sample.one_of(8)
for k = 1, 8 do
  if take() then sequence(sample.seed * 100 + k) end
end
local told = {}
for what, n in accel.pairs(seen) do told[#told + 1] = ("%s %d"):format(what, n) end
print(table.concat(told, ", "))
