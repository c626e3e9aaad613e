-- What accel's sides share: options, medians, repeated timing, and the memory that this process (on a GPU: the device's pool)
-- holds. A side ends with side.finish(figures), the JSON line that harness.lua reads.
--   local side = dofile((arg[0]:match "^.*/" or "") .. "side.lua")
local accel = require "accel"

local M = {}
local device = "cpu"
local clock = accel.clock

--- --name value for each of the defaults, by type; a default of false is a flag. --quick and --device are always there:
--- tensors are made on that device, and times are taken when it has done its work.
function M.options(defaults)
  local o = { quick = false, device = device }
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
  device = o.device
  accel.set_default_device(device)
  return o
end

--- Waits for the device.
function M.sync()
  if device ~= "cpu" then accel.synchronize(device) end
end

function M.median(v)
  local s = table.move(v, 1, #v, 1, {})
  table.sort(s)
  local n = #s
  return n % 2 == 1 and s[(n + 1) // 2] or (s[n // 2] + s[n // 2 + 1]) / 2
end

--- Seconds of one call of f, the median of as many as fill the time (at least five). A GPU is given several at a time, which
--- take 20 ms, so that it waits for none of them.
function M.time(f, quick, seconds)
  local times, all, n = {}, 0, 1
  local function run()
    local t = clock()
    for _ = 1, n do f() end
    M.sync()
    return clock() - t
  end
  run()
  if device ~= "cpu" and not quick then n = math.max(1, math.ceil(0.02 / run())) end
  while #times < (quick and 1 or 5) or (not quick and all < (seconds or 0.15)) do
    local t = run()
    times[#times + 1], all = t / n, all + t
  end
  return M.median(times)
end

--- Steps of a training loop: step() returns its loss (a tensor) and the moments at which its parts ended.
--- Figures: ms, forward_ms, backward_ms, update_ms, losses of all steps. On a GPU the parts are when the host had given them.
function M.train(steps, drop, step)
  local times, losses = { {}, {}, {}, {} }, {}
  for i = 1, steps do
    local t0 = clock()
    local loss, t1, t2 = step(i)
    M.sync()
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

local function pool(key) return accel.mem_stats(device)[key] / 1e6 end

--- Resident megabytes now, and at most since the start or M.reset_peak(); on a GPU those of live tensors.
function M.resident() return device == "cpu" and status "VmRSS" or pool "live_bytes" end
function M.peak() return device == "cpu" and status "VmHWM" or pool "peak_bytes" end

function M.reset_peak()
  if device ~= "cpu" then return accel.reset_peak_memory(device) end
  local file <close> = io.open("/proc/self/clear_refs", "wb")
  if file then file:write "5" end
end

-- ---- files ----

--- The tensors of FOLDER/<name>.safetensors, on the device.
function M.load(folder, name)
  local tensors = assert(accel.load(folder .. "/" .. name .. ".safetensors"))
  for key, t in accel.pairs(tensors) do tensors[key] = t:to(device) end
  return tensors
end
function M.save(folder, name, tensors) assert(accel.save(folder .. "/" .. name .. ".safetensors", tensors)) end

--- Mean of the magnitudes, by which sides show that they computed the same.
function M.mean_abs(t) return t:to("f32"):abs():mean():item() end

function M.finish(figures) print(accel.json.encode(figures)) end

return M
