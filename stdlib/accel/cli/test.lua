--- accel-run test: a sanity check on the ranks that a configuration asks for. Every rank runs each check (accel.cli.test_ranks). A
--- table of ticks shows the passed ones.
local accel = require "accel"
local command = require "accel.cli.command"
local config = require "accel.config"

local NAME <const> = "accel-run test"

local function ranks_of(o)
  if not o.config_file then return o.num_processes or 2, nil end
  local plan, why = config.plan { "--config_file", o.config_file, "test.lua" }
  if not plan then return nil, why end
  return o.num_processes or math.max(1, plan.values.num_processes), plan.env
end

return function(...)
  local o = command.parse({ name = NAME, usage = "[options]",
    summary = "Checks collectives, loaders, precision and training on several ranks of this machine.",
    { "config_file", "string", nil, "FILE", "how many ranks, in which precision" },
    { "num_processes", "int", nil, "N", "ranks [2, or the file's]", least = 1 },
  }, 0, 0, ...)
  local n, env = ranks_of(o)
  if not n then return command.refuse(NAME, "%s", env) end
  local passed = {}
  for name in ("PATH LD_LIBRARY_PATH PYTHONPATH KMP_AFFINITY KMP_BLOCKTIME MASTER_ADDR MASTER_PORT"):gmatch "%S+" do passed[name] = true end
  local given = {}
  for name, value in next, env or {} do given[name] = not passed[name] and value or nil end
  local ok, results = pcall(accel.launch, "accel.cli.test_ranks", {}, { num_processes = n, env = given, time_limit = 300 })
  if not ok then return command.refuse(NAME, "%s", tostring(results)) end
  local good = true
  io.stdout:write(("%d ranks\n"):format(n))
  for i, first in ipairs(results[1]) do
    local why
    for rank = 1, n do
      local check = results[rank][i]
      if not check.ok then why = why or ("rank %d: %s"):format(rank - 1, check.why) end
    end
    io.stdout:write(("  %s  %s%s\n"):format(why and "FAIL" or "ok  ", first.name, why and ": " .. why or ""))
    good = good and not why
  end
  io.stdout:write(good and "all checks passed\n" or "a check failed\n")
  return good
end
