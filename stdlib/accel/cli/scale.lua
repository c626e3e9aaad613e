--- accel-run scale JOB N: an elastic job continues with N ranks from the next boundary between two updates.
local ask_job = require "accel.cli.ask_job"
local command = require "accel.cli.command"

local NAME <const> = "accel-run scale"

return function(...)
  local _, words = command.parse({ name = NAME, usage = "JOB N",
    summary = "Changes the number of ranks of an elastic job (--num-machines 1:1) to N, from 1 to the number at its start. Ranks join"
      .. " and leave between two updates. accel-run ps lists the jobs." }, 2, 2, ...)
  local n = math.tointeger(tonumber(words[2]))
  if not n or n < 1 then return command.refuse(NAME, "'%s' is not a number of ranks", words[2]) end
  return ask_job(NAME, words[1], "scale", n, "asked for %d ranks; the change follows the current update")
end
