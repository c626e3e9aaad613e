-- What accel's sides share: options, medians, repeated timing, and the memory that this process holds. A side ends with
-- side.finish(figures), the JSON line that harness.lua reads.
--   local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local accel = require "accel"

local M = {}

--- --name value for each of the defaults, by type; a default of false is a flag. --quick is always there.
function M.options(defaults)
  local o = { quick = false }
  for name, value in pairs(defaults or {}) do o[name] = value end
  local i = 1
  while arg[i] do
    local name = arg[i]:match "^%-%-([%w_]+)$"
    if not name or o[name] == nil then error("unknown option " .. arg[i], 0) end
    if o[name] == false then
      o[name] = true
    else
      i = i + 1
      o[name] = type(o[name]) == "number" and assert(tonumber(arg[i]), name .. ": not a number") or assert(arg[i])
    end
    i = i + 1
  end
  return o
end

function M.median(v)
  local s = table.move(v, 1, #v, 1, {})
  table.sort(s)
  local n = #s
  return n % 2 == 1 and s[(n + 1) // 2] or (s[n // 2] + s[n // 2 + 1]) / 2
end

--- Seconds of one call of f, the median of as many as fill the time (at least five).
function M.time(f, quick, seconds)
  local times, all = {}, 0
  f()
  while #times < (quick and 1 or 5) or (not quick and all < (seconds or 0.15)) do
    local t = accel.clock()
    f()
    t = accel.clock() - t
    times[#times + 1], all = t, all + t
  end
  return M.median(times)
end

--- Steps of a training loop: step() returns its loss (a tensor) and the moments at which its parts ended.
--- Figures: ms, forward_ms, backward_ms, update_ms, losses of all steps.
function M.train(steps, drop, step)
  local times, losses, clock = { {}, {}, {}, {} }, {}, accel.clock
  for i = 1, steps do
    local t0 = clock()
    local loss, t1, t2 = step(i)
    local t3 = clock()
    losses[i] = loss:item()
    if i > drop then
      for k, v in ipairs { t3 - t0, t1 - t0, t2 - t1, t3 - t2 } do table.insert(times[k], v * 1e3) end
    end
  end
  return { ms = M.median(times[1]), forward_ms = M.median(times[2]), backward_ms = M.median(times[3]),
    update_ms = M.median(times[4]), losses = losses }
end

-- ---- memory ----

local function status(name)
  local file <close> = assert(io.open("/proc/self/status", "rb"))
  return tonumber(file:read "a":match(name .. ":%s*(%d+) kB")) * 1024 / 1e6
end

--- Resident megabytes now, and at most since the start or M.reset_peak().
function M.resident() return status "VmRSS" end
function M.peak() return status "VmHWM" end

function M.reset_peak()
  local file <close> = io.open("/proc/self/clear_refs", "wb")
  if file then file:write "5" end
end

-- ---- files ----

--- The tensors of FOLDER/<name>.safetensors.
function M.load(folder, name) return assert(accel.load(folder .. "/" .. name .. ".safetensors")) end
function M.save(folder, name, tensors) assert(accel.save(folder .. "/" .. name .. ".safetensors", tensors)) end

--- Mean of the magnitudes, by which sides show that they computed the same.
function M.mean_abs(t) return t:to("f32"):abs():mean():item() end

function M.finish(figures) print(accel.json.encode(figures)) end

return M
