--- accel-run doctor: checks this machine for problems and suggests remedies: memory and its limits, shared memory, files,
--- CPUs and their features, clocks, devices and libraries. Exit status 1 if it finds an error.
local accel = require "accel"
local command = require "accel.cli.command"

local NAME <const> = "accel-run doctor"
local GIB <const> = 1 << 30

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read "a"
  file:close()
  return text
end

--- Soft limit of /proc/self/limits by its title. math.huge: unlimited.
local function limit(title)
  for line in (read "/proc/self/limits" or ""):gmatch "[^\n]+" do
    if line:sub(1, #title) == title then
      local soft = line:sub(#title + 1):match "^%s+(%S+)"
      return soft == "unlimited" and math.huge or tonumber(soft)
    end
  end
end

local function bytes(n)
  if n == nil then return "unknown" end
  if n == math.huge then return "unlimited" end
  return (accel.accelerator.convert_bytes(math.floor(n)):gsub("([KMGTP])B$", "%1iB")) -- its units are powers of 1024
end

local rows = {}
local function row(name, fn) rows[#rows + 1] = { name, fn } end

row("memory", function(f)
  local free = (read "/proc/meminfo" or ""):match "MemAvailable:%s+(%d+)"
  free = free and tonumber(free) * 1024
  local text = ("%s usable, %s available now"):format(bytes(f.memory), bytes(free))
  if free and free < GIB then return "warn", text .. "; close other programs, or set --memory-limit" end
  return "ok", text
end)
row("address space", function()
  local n = limit "Max address space"
  if n ~= math.huge then return "warn", bytes(n) .. "; ulimit -v unlimited" end
  return "ok", "unlimited"
end)
row("locked memory", function(f)
  local n = limit "Max locked memory"
  if f.devices.cuda and f.devices.cuda.count > 0 and n and n < GIB then return "warn", bytes(n) .. "; ulimit -l unlimited" end
  return "ok", bytes(n)
end)
row("open files", function()
  local n = limit "Max open files"
  if n and n < 1024 then return "warn", ("%d; ulimit -n 65536"):format(n) end
  return "ok", n == math.huge and "unlimited" or tostring(math.floor(n or 0))
end)
row("processes", function(f)
  local n = limit "Max processes"
  if n and n < 64 * f.cpus then return "warn", ("%d; ulimit -u %d"):format(n, 256 * f.cpus) end
  return "ok", n == math.huge and "unlimited" or tostring(math.floor(n or 0))
end)
row("shared memory", function()
  local ok, why = pcall(function()
    local blob <close> = accel.process.blob(("x"):rep(4096))
    assert(#blob:read() == 4096)
  end)
  if not ok then return "fail", ("memfd does not work: %s"):format(tostring(why)) end
  return "ok", "memfd; ranks of one machine do not need /dev/shm"
end)
row("temporary folder", function()
  local base = os.getenv "TMPDIR" or "/tmp"
  local dir, why = accel.mkdtemp(base .. "/accel-doctor-")
  if not dir then return "fail", why end
  os.remove(dir)
  return "ok", base
end)
row("cpus", function(f)
  local quota = (read "/sys/fs/cgroup/cpu.max" or ""):match "^(%d+)"
  local text = ("%d usable, %d threads, kernels for %s"):format(f.cpus, accel.num_threads(), f.isa)
  if quota and tonumber(quota) < 100000 then return "warn", text .. "; the cgroup gives less than one CPU" end
  if f.isa == "base" then return "warn", text .. "; matrix products are slow without AVX2 or NEON" end
  return "ok", text
end)
row("clock", function()
  local source = (read "/sys/devices/system/clocksource/clocksource0/current_clocksource" or "unknown"):gsub("%s", "")
  local began = accel.clock()
  for _ = 1, 1000 do accel.clock() end
  local cost = (accel.clock() - began) / 1000
  if cost > 5e-6 then return "warn", ("%s, %.1f us per reading; timers are slow here"):format(source, cost * 1e6) end
  return "ok", source
end)
row("huge pages", function()
  local mode = (read "/sys/kernel/mm/transparent_hugepage/enabled" or ""):match "%[(%w+)%]"
  return "ok", mode or "none"
end)
row("yaml", function()
  local ok, why = accel.yaml.available()
  return ok and "ok" or "warn", ok and "libyaml" or why
end)
row("onednn", function(f) return f.onednn and "ok" or "warn", f.onednn or "absent; Debian: libdnnl3" end)
row("mpi", function(f) return "ok", f.mpi or "absent; only backend mpi needs it" end)
row("cuda", function(f)
  local d = f.devices.cuda
  return d and d.count > 0 and "ok" or "ok", d and d.state or "not built"
end)
row("arithmetic", function()
  local x = accel.randn(64, 64, { dtype = "f64" })
  local error_ = (x:to "f32":matmul(x:to "f32"):to "f64" - x:matmul(x)):abs():max():item()
  if error_ > 1e-3 then return "fail", ("a product in f32 is %g off"):format(error_) end
  return "ok", ("a product in f32 is %.1g off"):format(error_)
end)

return function(...)
  command.parse({ name = NAME, usage = "", summary = "Checks this machine for problems and suggests remedies." }, 0, 0, ...)
  local f, good = accel.features(), true
  for _, r in ipairs(rows) do
    local ok, state, text = pcall(r[2], f)
    if not ok then state, text = "fail", tostring(state) end
    io.stdout:write(("%-4s  %-16s  %s\n"):format(state, r[1], text))
    good = good and state ~= "fail"
  end
  return good
end
