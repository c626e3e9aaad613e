--- accel-run sweep: runs a script with many configurations, several at once, and compares the runs. Trials come from
--- accel.cli.sweep_trials, the file from accel.cli.sweep_file. All state is in the run store: a sweep that is started again goes on.
local accel = require "accel"
local command = require "accel.cli.command"
local environment = require "accel.track.environment"
local files = require "accel.cli.sweep_file"
local open_read = require("accel.file.core").open_read
local Progress = require "accel.util.progress"
local Run = require "accel.track.run"
local shown = require "accel.cli.runs_shown"
local Store = require "accel.track.store"
local trials_of = require "accel.cli.sweep_trials"

local PROGRAM <const> = "accel-run sweep"
local POLL_SECONDS <const>, LOOK_SECONDS <const>, GRACE_SECONDS <const>, MOST_TRIALS <const> = 0.1, 0.2, 5, 100000
local SIGTERM <const> = 15

---@class accel.cli.Sweep
local Sweep = {}
Sweep.__index = Sweep

--- The store, once a run has made it.
function Sweep:open()
  if not self.store then self.store = Store.open(self.folder, { write = true }) end
  return self.store
end

--- What the store has of this sweep, into the trials: the last run of each.
function Sweep:look()
  local store = self:open()
  if not store then return end
  local latest = {}
  for _, run in ipairs(assert(store:runs())) do -- the last one first
    local place = run.sweep
    if place and place.sweep == self.file.name and place.command == self.command and type(place.parameters) == "table" then
      local key = trials_of.key(place.parameters)
      if not latest[key] or latest[key].sweep.state ~= "finished" and place.state == "finished" then latest[key] = run end
    end
  end
  for _, t in ipairs(self.trials) do
    t.run = latest[t.key]
    t.series = t.run and self.file.metric and assert(store:rows("SELECT * FROM series WHERE run=? AND tag=?", t.run.id, self.file.metric))[1]
    t.state = t.active and "running" or t.state or t.run and (t.run.sweep.state or t.run.status == "finished" and "finished") or nil
    if t.state == "failed" and not t.tried then t.state = nil end -- repeated
  end
end

--- The metric of a trial at a rung: of the first step that reaches it. nil: not yet. false: not a number.
function Sweep:at(t, rung)
  if not t.series or (t.series.last_step or -1) < rung then return nil end
  t.rung = t.rung or {}
  if t.rung[rung] == nil then
    local row = assert(self.store:rows("SELECT value FROM points WHERE series=? AND step>=? ORDER BY step, seq LIMIT 1", t.series.id, rung))[1]
    t.rung[rung] = row and row.value or false
  end
  return t.rung[rung]
end

--- Stops the running trials that are not among the best at a rung that they have reached.
function Sweep:halve()
  local h = self.file.halving
  for _, t in ipairs(self.active) do
    for _, rung in ipairs(not t.stopping and t.series and trials_of.rungs(h, t.series.last_step or 0) or {}) do
      t.judged = t.judged or {}
      if not t.judged[rung] then
        t.judged[rung] = true
        local values = {}
        for _, other in ipairs(self.trials) do
          local x = self:at(other, rung)
          if x ~= nil then values[#values + 1] = x end
        end
        if not trials_of.goes_on(t.rung[rung] or nil, values, h.factor, self.file.goal) then
          t.stopping, t.stopped_at = accel.clock(), rung
          t.process:signal(SIGTERM)
          break
        end
      end
    end
  end
end

--- What a run may use: its part of the threads and of the memory, unless the environment has a limit.
function Sweep:limits()
  local ranks, env = self.parallel * self.file.num_processes, {}
  if not os.getenv "ACCEL_NUM_THREADS" and not os.getenv "OMP_NUM_THREADS" then
    env.ACCEL_NUM_THREADS = tostring(math.max(1, accel.process.cores() // ranks))
  end
  if not os.getenv "ACCEL_MEM_LIMIT" and ranks > 1 then env.ACCEL_MEM_LIMIT = ("%d%%"):format(math.max(1, 90 // ranks)) end
  return env
end

function Sweep:start(t)
  local env = self:limits()
  t.uid = environment.random_id(10)
  env.ACCEL_SWEEP = accel.json.encode { id = t.uid, store = self.path, sweep = self.file.name, trial = t.index, parameters = t.parameters,
    command = self.command }
  t.log = ("%s/trial-%03d.log"):format(self.logs, t.index)
  local program = accel.process.program()
  local argv = { "sh", "-c", 'log=$1; shift; exec "$@" >"$log" 2>&1', "sh", t.log, program }
  if self.file.num_processes > 1 then table.move({ "--num-processes", tostring(self.file.num_processes) }, 1, 2, #argv + 1, argv) end
  argv[#argv + 1] = self.file.script
  table.move(self.file.args, 1, #self.file.args, #argv + 1, argv)
  table.move(t.words, 1, #t.words, #argv + 1, argv)
  t.active, t.state, t.tried, t.began = true, "running", true, accel.clock()
  t.process = accel.process.spawn("/bin/sh", argv, env)
  self.active[#self.active + 1] = t
end

local function last_line(path)
  local handle = open_read(path)
  local text = handle and handle:read(65536) or ""
  if handle then handle:close() end
  local found
  for line in text:gmatch "[^\r\n]+" do
    if not line:find "^%s" and not line:find "^stack traceback" and not line:find "^Try '" then found = line end
  end
  return found
end

--- The end of a trial: its state goes into the store. Returns nil and a message if the sweep cannot go on.
function Sweep:ended(t, how, number)
  t.active, t.process = nil, nil
  local good = how == "exit" and number == 0
  if good then t.stopped_at = nil end -- it was done before the signal came
  t.state = good and "finished" or t.stopped_at and "stopped" or "failed"
  self:look()
  local mine = t.run and t.run.uid == t.uid
  if mine then
    local place = t.run.sweep
    place.state, place.stopped_at = t.state, t.stopped_at
    assert(self.store:annotate(t.run, "sweep", place))
    if t.stopped_at then
      assert(self.store:rows("UPDATE runs SET status='finished', exit_code=0, message=? WHERE id=?",
        ("stopped at step %d by sweep %s"):format(t.stopped_at, self.file.name), t.run.id))
    end
  end
  if t.state == "failed" then
    self.bar:log(("trial %d (%s) failed with %s %s: %s; see %s"):format(t.index, t.text, how, number or "", last_line(t.log) or "no output", t.log))
  elseif not mine then
    return nil, ("trial %d logged no run: the script must log with log_with = \"store\" or accel.track.Run"):format(t.index)
  elseif self.file.metric and not t.series and t.state == "finished" then
    local names = {}
    for _, s in ipairs(assert(self.store:series(t.run))) do names[#names + 1] = s.tag end
    local near = require "accel.util.nearest"(self.file.metric, names)
    return nil, ("trial %d has no series '%s'; %s"):format(t.index, self.file.metric,
      near and ("did you mean '%s'?"):format(near) or "there are " .. (#names > 0 and table.concat(names, ", ") or "none"))
  end
  return true
end

function Sweep:kill()
  for _, t in ipairs(self.active) do t.process:signal(SIGTERM) end
  for _, t in ipairs(self.active) do t.process:close() end
  self.active = {}
end

--- Runs all trials that are not done. Returns true, or nil and a message, "interrupted" on Ctrl-C.
function Sweep:run()
  local waiting = {}
  for _, t in ipairs(self.trials) do
    if not t.state then waiting[#waiting + 1] = t end
  end
  local function update()
    local best, done = self:best(), 0
    for _, t in ipairs(self.trials) do done = done + (t.state and t.state ~= "running" and 1 or 0) end
    self.bar:update(done / #self.trials, done, { { "runs", ("%d/%d"):format(done, #self.trials) },
      best and { self.file.metric, shown.number(self:value(best)) } or nil })
  end
  local at, looked = 1, -math.huge
  while #self.active > 0 or at <= #waiting do
    while #self.active < self.parallel and at <= #waiting do
      self:start(waiting[at])
      at = at + 1
    end
    if accel.interrupted() then return nil, "interrupted" end
    if accel.clock() >= looked + LOOK_SECONDS then
      self:look()
      if self.file.halving then self:halve() end
      looked = accel.clock()
    end
    for i = #self.active, 1, -1 do
      local t = self.active[i]
      if t.stopping and accel.clock() - t.stopping > GRACE_SECONDS then t.process:signal(9) end
      local how, number = t.process:wait(POLL_SECONDS / #self.active)
      if how then
        table.remove(self.active, i)
        if accel.interrupted() then return nil, "interrupted" end
        local ok, message = self:ended(t, how, number)
        if not ok then return nil, message end
      end
    end
    if self.bar:due() then update() end
  end
  update()
  return true
end

--- The metric of a trial: its best value.
function Sweep:value(t)
  if not t.series then return nil end
  return self.file.goal == "maximize" and t.series.max or self.file.goal == "minimize" and t.series.min or nil
end

function Sweep:best()
  local found
  for _, t in ipairs(self.trials) do
    local x, y = self:value(t), found and self:value(found)
    if x and (not y or (self.file.goal == "maximize" and x > y or self.file.goal == "minimize" and x < y)) then found = t end
  end
  return found
end

--- The trials, the best one first.
function Sweep:sorted()
  local list = table.move(self.trials, 1, #self.trials, 1, {})
  table.sort(list, function(a, b)
    local x, y = self:value(a), self:value(b)
    if x ~= y and x and y then
      if self.file.goal == "maximize" then return x > y end
      return x < y
    end
    if (x == nil) ~= (y == nil) then return x ~= nil end
    return a.index < b.index
  end)
  return list
end

function Sweep:table(json)
  local list = self:sorted()
  if json then
    local out = {}
    for i, t in ipairs(list) do
      out[i] = { trial = t.index, state = t.state or "waiting", parameters = t.parameters, run = t.run and t.run.uid, best = self:value(t),
        last = t.series and t.series.last, step = t.run and t.run.last_step }
    end
    print(accel.json.encode(accel.json.array(shown.plain(out)), { pretty = true }))
    return
  end
  local head, rows = { "TRIAL", "STATE" }, {}
  for _, p in ipairs(self.file.parameters) do head[#head + 1] = p.name end
  if self.file.metric then head[#head + 1], head[#head + 2] = "BEST", "LAST" end
  for _, word in ipairs { "STEP", "TIME", "RUN" } do head[#head + 1] = word end
  rows[1] = head
  for _, t in ipairs(list) do
    local row = { tostring(t.index), t.state or "waiting" }
    for _, p in ipairs(self.file.parameters) do row[#row + 1] = trials_of.word(t.parameters[p.name]) end
    if self.file.metric then row[#row + 1], row[#row + 2] = shown.number(self:value(t)), shown.number(t.series and t.series.last) end
    row[#row + 1] = tostring(t.run and t.run.last_step or "-")
    row[#row + 1] = t.run and shown.duration((t.run.ended or t.run.heartbeat) - t.run.started) or "-"
    row[#row + 1] = t.run and t.run.uid or "-"
    rows[#rows + 1] = row
  end
  shown.table(rows)
end

return function(...)
  local o, words = command.parse({
    name = PROGRAM, usage = "FILE", summary = "Runs a script with many configurations (help tracking describes FILE).",
    { "parallel", "int", nil, "N", "runs at once; threads and memory are divided [the file's, otherwise 1]", least = 1 },
    { "store", "string", "runs", "DIR", "folder of the run store that the runs log to" },
    { "list", "flag", false, nil, "print the trials and their state, and run nothing" },
    { "json", "flag", false, nil, "print the table as JSON" },
    epilog = "A sweep that is started again continues: runs that have finished, or were stopped early, are not repeated.",
  }, 1, 1, ...)
  local file, message = files.read(words[1])
  if not file then return command.refuse(PROGRAM, "%s", message) end
  if trials_of.count(file) > MOST_TRIALS then
    return command.refuse(PROGRAM, "%s: %.0f trials are more than %d; use method random", file.path, trials_of.count(file), MOST_TRIALS)
  end
  local version, why = require("accel.track.core").sqlite()
  if not version then return command.refuse(PROGRAM, "%s", why) end
  local path = Run.path_of(o.store)
  if path:sub(1, 1) ~= "/" then path = environment.folder() .. "/" .. path end
  local line = table.concat({ file.script:match "[^/]+$", table.unpack(file.args) }, " ") -- another script or other words: other runs
  local self = setmetatable({ file = file, command = line, trials = trials_of.list(file), active = {}, folder = o.store, path = path,
    parallel = o.parallel or file.parallel or 1, logs = (path:match "^(.*)/" or ".") .. "/" .. file.name .. ".logs" }, Sweep)
  if file.runs and #self.trials < file.runs then
    command.tell("%s: %s: only %d of %d runs: the parameters have no more values that differ", PROGRAM, file.path, #self.trials, file.runs)
  end
  self:look()
  if o.list then
    self:table(o.json)
    return true
  end
  local ok
  ok, message = accel.makedirs(self.logs)
  if not ok then return command.refuse(PROGRAM, "%s", message) end
  local kept = 0
  for _, t in ipairs(self.trials) do kept = kept + (t.state and 1 or 0) end
  if kept > 0 then command.tell("%s: %d of %d runs of %s are done; continuing with the rest", PROGRAM, kept, #self.trials, file.name) end
  if kept == #self.trials then
    self:table(o.json)
    return true
  end
  self.bar = Progress { label = file.name, unit = "run" }
  accel.on_interrupt "flag"
  local good, result, reason = xpcall(self.run, debug.traceback, self)
  self:kill()
  self.bar:finish()
  if not good then error(result, 0) end
  if not result and reason ~= "interrupted" then return command.refuse(PROGRAM, "%s", reason) end
  for _, t in ipairs(self.trials) do
    if t.active then t.active, t.state = nil, nil end
  end
  self:look()
  self:table(o.json)
  if not result then
    command.refuse(PROGRAM, "interrupted; all runs have ended. Start it again to continue")
    os.exit(130, true)
  end
  command.tell("The page of these runs: accel-run ui %s --filter group=%s", o.store, file.name)
  for _, t in ipairs(self.trials) do
    if t.state == "failed" then return false end
  end
  return true
end
