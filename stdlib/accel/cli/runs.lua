--- accel-run runs: the content of a run store, as text that also works in a pipe.
local accel = require "accel"
local command = require "accel.cli.command"
local opened = require "accel.cli.runs_store"
local shown = require "accel.cli.runs_shown"

local PROGRAM <const> = "accel-run runs"

local function ls(...)
  local o = command.parse({
    name = PROGRAM .. " ls", usage = "[options]", summary = "Lists runs, the last one first.",
    opened.option, { "project", "string", nil, "NAME", "only of this project" },
    { "status", { "running", "finished", "failed", "killed" }, nil, "WORD", "only such ones" },
    { "limit", "int", nil, "N", "at most N of them", least = 1 }, { "json", "flag", false, nil, "print JSON" },
  }, 0, 0, ...)
  local store <close> = opened.open(PROGRAM .. " ls", o)
  local list = opened.need(store and store.store:runs())
  if not list then return false end
  local taken = {}
  for _, run in ipairs(list) do
    if (not o.project or run.project == o.project) and (not o.status or run.status == o.status) and #taken < (o.limit or math.huge) then
      taken[#taken + 1] = run
    end
  end
  if o.json then
    print(accel.json.encode(accel.json.array(taken), { pretty = true }))
  elseif #taken == 0 then
    print(#list == 0 and "no runs here" or "no such runs here")
  else
    local rows = { { "ID", "NAME", "PROJECT", "STATUS", "STARTED", "TIME", "STEP" } }
    for _, run in ipairs(taken) do
      rows[#rows + 1] = { run.uid, run.name, run.project, run.status, os.date("%Y-%m-%d %H:%M", run.started // 1 | 0),
        shown.duration((run.ended or run.heartbeat) - run.started), tostring(run.last_step or "-") }
    end
    shown.table(rows, { 2, 3 })
  end
  return true
end

local function show(...)
  local o, words = command.parse({
    name = PROGRAM .. " show", usage = "RUN", summary = "Prints a run's configuration, its last values, and its other logged data.",
    opened.option, { "json", "flag", false, nil, "print JSON" },
  }, 1, 1, ...)
  local store <close>, run = opened.run(PROGRAM .. " show", o, words[1])
  if not run then return false end
  local s = store.store
  local config, series = opened.need(s:config(run)), opened.need(s:series(run))
  if not config or not series then return false end
  local records = {}
  for _, kind in ipairs { "text", "image", "histogram", "table", "artifact", "alert" } do records[kind] = s:records(run, kind) or {} end
  if o.json then
    print(accel.json.encode({ run = run, config = config, series = accel.json.array(shown.plain(series)) }, { pretty = true }))
    return true
  end
  local env = run.environment
  local git = env.git and ("%s%s%s"):format((env.git.revision or "?"):sub(1, 12), env.git.branch and " on " .. env.git.branch or "",
    env.git.dirty and ", files differ" or "")
  local rows = {}
  local function row(key, value) if value and value ~= "" then rows[#rows + 1] = { key, tostring(value) } end end
  row("id", run.uid)
  row("name", run.name)
  row("project", run.project)
  row("group", run.group)
  row("tags", run.tags and table.concat(run.tags, ", "))
  row("notes", run.notes)
  row("status", run.status .. (run.exit_code and run.exit_code ~= 0 and (", exit status %d"):format(run.exit_code) or ""))
  row("message", run.message)
  row("started", os.date("%Y-%m-%d %H:%M:%S", run.started // 1 | 0))
  row("time", shown.duration((run.ended or run.heartbeat) - run.started))
  row("host", ("%s, process %d, %s rank%s"):format(run.host, run.pid, env.num_processes or 1, (env.num_processes or 1) == 1 and "" or "s"))
  row("git", git)
  row("command", env.command and table.concat(env.command, " "))
  row("folder", env.directory)
  row("accel", env.accel)
  shown.table(rows)
  shown.section("Config", config)
  local values = { { "SERIES", "POINTS", "STEP", "LAST", "MIN", "MAX" } }
  for _, x in ipairs(series) do
    values[#values + 1] = { x.tag, tostring(x.n), tostring(x.last_step), shown.number(x.last), shown.number(x.min), shown.number(x.max) }
  end
  if #values > 1 then
    print ""
    shown.table(values, { 1 })
  end
  for kind, list in accel.pairs(records) do
    if #list > 0 then command.say("\n%s", shown.heading(kind)) end
    for i, r in ipairs(list) do
      if i > 5 and i < #list - 4 then
        if i == 6 then print(("  ... %d more"):format(#list - 10)) end
      else
        print("  " .. shown.record(r))
      end
    end
  end
  return true
end

local function rm(...)
  local o, words = command.parse({
    name = PROGRAM .. " rm", usage = "RUN ...", summary = "Removes runs and their logged data permanently.",
    opened.option, { "force", "flag", false, nil, "also ones that run" },
    { "pack", "flag", false, nil, "return their space to the disk; takes as long as copying the store" },
  }, 1, math.maxinteger, ...)
  o.write = true
  local store <close> = opened.open(PROGRAM .. " rm", o)
  if not store then return false end
  local runs = {}
  for i, word in ipairs(words) do -- all are known before one goes
    local run, message = store.store:find(word)
    if not run then return command.refuse(PROGRAM .. " rm", "%s", message) end
    if run.status == "running" and not o.force then
      return command.refuse(PROGRAM .. " rm", "%s is running; add --force to remove it anyway", run.name)
    end
    runs[i] = run
  end
  for _, run in ipairs(runs) do
    if not opened.need(store.store:remove(run)) then return false end
    command.say("removed %s (%s)", run.name, run.uid)
  end
  return not o.pack or opened.need(store.store:pack()) ~= nil
end

return function(...)
  return command.dispatch(PROGRAM, "Prints the logs of runs in a run store (log_with = \"store\", accel.track.Run).\n"
    .. "A RUN is an id, the begin of one, a name, last, or last~1 for the one before.", {
    { "ls", "", "the runs of a store", ls },
    { "show", "RUN", "one of them", show },
    { "diff", "RUN RUN", "compare two of them", require "accel.cli.runs_diff" },
    { "plot", "RUN ...", "curves as text", require "accel.cli.runs_plot" },
    { "tail", "RUN", "the last values; --follow waits for new ones", require "accel.cli.runs_tail" },
    { "rm", "RUN ...", "remove runs", rm },
    { "export", "RUN", "as CSV, JSON lines or TensorBoard's event files", require "accel.cli.runs_export" },
    { "sync", "[FOLDER ...]", "send the entries in outboxes of trackers", require "accel.cli.runs_sync" },
  }, ...)
end
