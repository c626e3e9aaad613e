--- accel-run runs sync: sends the remaining entries in outboxes of trackers, after a server was down or a run was
--- killed.
local accel = require "accel"
local command = require "accel.cli.command"

local PROGRAM <const> = "accel-run runs sync"

--- Journals that paths mean: files, or all of a folder.
local function journals(paths)
  local out = {}
  for _, path in ipairs(paths) do
    local names = accel.listdir(path)
    if names then
      table.sort(names)
      for _, name in ipairs(names) do
        if name:find "^[%w_]+%-%w+%.jsonl$" then out[#out + 1] = path .. "/" .. name end
      end
    else
      out[#out + 1] = path
    end
  end
  return out
end

return function(...)
  local o, paths = command.parse({
    name = PROGRAM, usage = "[JOURNAL | FOLDER ...]", summary = "Sends the entries in outboxes of trackers [.accel-outbox].",
    { "seconds", "number", 60, "S", "how long a journal may take that its server does not answer for" },
    epilog = "Runs that still write are left alone: sync after they have ended. Keys and tokens come from the environment, as theirs did.",
  }, 0, math.maxinteger, ...)
  if o.seconds <= 0 then return command.refuse(PROGRAM, "--seconds must be positive, got %g", o.seconds) end
  local sender, good = require "accel.track.outbox_sender", true
  local list = journals(#paths > 0 and paths or { ".accel-outbox" })
  if #list == 0 then print "nothing to send" end
  accel.on_interrupt "flag"
  for _, path in ipairs(list) do
    local last, idle = accel.clock(), false
    local done, message = sender.send(path, function(text) command.tell("%s: %s: %s", PROGRAM, path, text) end, function(state)
      if state == "sent" then last = accel.clock() end
      idle = state == "idle"
      return not idle and accel.clock() - last < o.seconds and not accel.interrupted()
    end)
    if done then command.say("%s: sent", path)
    elseif done == nil then good = command.refuse(PROGRAM, "%s", message)
    elseif idle then command.say("%s: partly sent; the run has not ended", path) -- killed, or still going
    else good = command.refuse(PROGRAM, "%s: not everything is sent", path) end
  end
  return good
end
