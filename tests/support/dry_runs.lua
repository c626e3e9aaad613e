--- Real ranks beside accel-run --dry-run of the same script (dry_run_script.lua).
local accel = require "accel"

local tests = debug.getinfo(1, "S").source:match "^@(.*)support/dry_runs%.lua$"
local M = {}

local function read(path)
  local f = assert(io.open(path, "rb"))
  local text = f:read "a"
  f:close()
  return text
end

local function run(command)
  local errors = os.tmpname()
  local pipe = assert(io.popen(("%s </dev/null 2>'%s'"):format(command, errors)))
  local out = pipe:read "a"
  local ok, _, status = pipe:close()
  local err = read(errors)
  os.remove(errors)
  return out, ok and 0 or status, err
end

local rates = {} -- files, by how many ranks measured

--- An option: rates of some machine, for tests of bytes and forms, where measuring this one would take most of the time.
M.RATES = ("--rates '%ssupport/rates.json'"):format(tests)

--- A script on so many real ranks: its errors, and its exit status.
function M.real(n, script, args, env)
  local _, status, errors = run(("env %s '%s' --num_processes %d '%s' %s"):format(env or "", accel.process.program(), n, script, args))
  return errors, status
end

--- What rank r wrote into a folder.
function M.result(folder, r) return accel.json.decode(read(("%s/%d.json"):format(folder, r))) end

--- How many ranks measure rates for a dry run: as many as the cores take side by side.
local function measured_by(options) return math.min(tonumber(options:match "num_processes (%d+)") or 1, accel.process.cores()) end

--- What a dry run prints; exit status; errors.
function M.text(options, script, args, env)
  local known = rates[measured_by(options)]
  if known and not options:find "cuda" and not options:find(M.RATES, 1, true) then options = ("--rates '%s' %s"):format(known, options) end
  return run(("%s '%s' --dry-run %s '%s' %s"):format(env or "", accel.process.program(), options, script, args))
end

--- Its report as a table (nil without one), exit status, errors. Rates are measured by the first one of so many ranks.
function M.dry(options, script, args, env)
  local out, status, errors = M.text("--json " .. options, script, args, env)
  local by = measured_by(options)
  if not rates[by] and status == 0 and out:find '"rates"' then
    rates[by] = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/rates") .. "/rates.json"
    assert(accel.write_file(rates[by], out))
  end
  return out:sub(1, 1) == "{" and accel.json.decode(out) or nil, status, errors
end

local ZERO <const> = "ACCELERATE_USE_DEEPSPEED=true ACCELERATE_DEEPSPEED_ZERO_STAGE="

--- Where DeepSpeed's plugin of a stage puts parts of training, as environment variables.
local function offload_of(tier, stage, folder)
  local text = ""
  for _, what in ipairs { "OPTIMIZER", stage == "3" and "PARAM" or nil } do
    text = text .. ("ACCELERATE_DEEPSPEED_OFFLOAD_%s_DEVICE=%s ACCELERATE_DEEPSPEED_OFFLOAD_%s_NVME_PATH='%s' "):format(what, tier, what,
      folder)
  end
  return text
end

--- Asserts that they agree. o: ranks (list of world sizes), model (arguments of the script), exact (collection), within (of the peak), slack
--- (bytes beside), time (within, where the machine is quiet), plans (all), offload ("cpu" or "nvme").
local function compare(_, o)
  local script, gc = tests .. "support/dry_run_script.lua", o.exact and "ACCEL_GC=exact " or ""
  local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/dry-runs")
  for _, n in ipairs(o.ranks) do
    for _, plan in ipairs(o.plans or n == 1 and { "ddp" } or { "ddp", "zero1", "zero2", "zero3" }) do
      local base = gc .. (o.offload and offload_of(o.offload, plan:sub(-1), folder) or "")
      local why, failed = M.real(n, script, ("%s '%s'"):format(o.model, folder), base .. (plan ~= "ddp" and ZERO .. plan:sub(-1) or ""))
      assert(failed == 0, why)
      local all = {}
      for r = 0, n - 1 do all[r + 1] = tostring(r) end
      local told, status, errors = M.dry(("--num_processes %d --plan %s --rank %s"):format(n, plan, table.concat(all, ",")), script,
        o.model, base ~= "" and "env " .. base or "")
      assert(status == 0, errors)
      if o.show then
        local cpu, real, slowest = 0, 0, told.time.total
        for r = 0, n - 1 do
          local result = M.result(folder, r)
          cpu, real = cpu + result.cpu, math.max(real, result.time)
        end
        cpu = cpu / accel.process.cores()
        print(("%d ranks, %-5s step %.1f ms, foretold %.1f (%+.0f %%); CPU time over the cores %.1f ms (%+.0f %%)"):format(n, plan, 1e3 * real,
          1e3 * slowest, 100 * (slowest / real - 1), 1e3 * cpu, 100 * (slowest / cpu - 1)))
      end
      for r, played in ipairs(told.ranks) do
        local what = ("rank %d of %d, %s %s"):format(r - 1, n, plan, o.offload or "")
        local real = M.result(folder, r - 1)
        local list = {}
        for i, c in ipairs(played.collectives) do list[i] = ("%s %s %d"):format(c.kind, c.kind ~= "barrier" and c.dtype or "u8", c.payload) end
        assert(table.concat(list, "\n") == table.concat(real.collectives, "\n"),
          ("%s: collectives foretold\n%s\nmade\n%s"):format(what, table.concat(list, "\n"), table.concat(real.collectives, "\n")))
        local off = math.abs(played.peak.total - real.peak)
        assert(off <= o.within * real.peak + (o.slack or 8192), ("%s: peak %d, foretold %d"):format(what, real.peak, played.peak.total))
        if o.show then
          print(("%-24s peak %10d foretold %+.2f %%, %2d collectives"):format(what, real.peak, 100 * (played.peak.total / real.peak - 1), #list))
        end
      end
    end
  end
end

return setmetatable(M, { __call = compare })
