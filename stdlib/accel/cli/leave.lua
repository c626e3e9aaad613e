--- accel-run leave JOB RANK: a rank leaves an elastic job at the next boundary between two updates, without a micro-batch done again.
local ask_job = require "accel.cli.ask_job"
local command = require "accel.cli.command"

local NAME <const> = "accel-run leave"

return function(...)
  local _, words = command.parse({ name = NAME, usage = "JOB RANK",
    summary = "Removes one rank from an elastic job (--num-machines 1:1) between two updates. RANK is its number at the start of the"
      .. " job. accel-run ps lists the jobs." }, 2, 2, ...)
  local rank = math.tointeger(tonumber(words[2]))
  if not rank or rank < 0 then return command.refuse(NAME, "'%s' is not a rank", words[2]) end
  return ask_job(NAME, words[1], "leave", rank, "asked rank %d to leave after the current update")
end
