--- accel-run --profile FILE: the whole script in one profile, whose trace all ranks add to one file. Called by accel-run around the script.
local ranks = require "accel.profiler.ranks"

local M = {}

local MOST <const> = 1000000 -- spans: some hundred megabytes of trace
local prof, offset, real_exit

local function say(fmt, ...)
  if ranks.rank() == 0 then io.stderr:write("accel-run: --profile: ", fmt:format(...), "\n") end
end

--- Begins, before the script.
function M.begin()
  offset = ranks.clock_offset()
  prof = require "accel.profiler".Profile { record_shapes = true, profile_memory = true, with_flops = true, with_stack = true,
    with_modules = true }
  prof.max_spans, prof.whole = MOST, M
  prof:start()
  real_exit = os.exit
  rawset(os, "exit", function(code, ...)
    local written = M.finish()
    if not written and (code == nil or code == true or code == 0) then code = 1 end
    return real_exit(code, ...)
  end)
end

--- The script's own profile takes over: two do not record at once.
function M.yield()
  say "the script records its own profile: this one ends here"
  M.finish()
end

--- Ends, after the script or when it failed: writes the trace and lists the most expensive ops. Returns false if the trace could not be
--- written, which makes the exit status 1.
---@return boolean
function M.finish()
  local ended = prof
  if not ended then return true end
  prof = nil
  rawset(os, "exit", real_exit)
  ended:stop()
  local path = os.getenv "ACCEL_PROFILE"
  local _, dropped = ended._recorder:count()
  if dropped > 0 then
    say("only the first %d spans are in the trace, %d came after them; accelerator:profile() with a schedule records some steps", MOST,
      dropped)
  end
  local ok, why = ended:export_chrome_trace(path, { add = true, clock_offset = offset })
  if not ok then
    io.stderr:write("accel-run: --profile: ", why, "\n")
    return false
  end
  if ranks.rank() ~= 0 then return true end
  local terminal = require "accel.util.terminal"
  io.stderr:write(ended:key_averages():table { sort_by = "self_cpu_time_total", row_limit = 15, header = "rank 0",
    width = terminal.interactive(2) and terminal.width() or nil })
  say("the trace is in %s; open it with ui.perfetto.dev", path)
  return true
end

return M
