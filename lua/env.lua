-- accel-run env: versions, machine, devices, optional parts, and every ACCEL_* parameter with its value and its source.
local accel = ...

local function bytes(n)
  for _, unit in ipairs { { 2 ^ 40, "TiB" }, { 2 ^ 30, "GiB" }, { 2 ^ 20, "MiB" }, { 2 ^ 10, "KiB" } } do
    if n >= unit[1] then return ("%.1f %s"):format(n / unit[1], unit[2]) end
  end
  return ("%d B"):format(n)
end

local function row(name, fmt, ...) io.write(("%-14s "):format(name), fmt:format(...), "\n") end

local function value_text(p)
  if p.type == "size" and math.type(p.value) == "integer" and p.value >= 1024 then
    return ("%s (%s)"):format(p.value, bytes(p.value))
  end
  return tostring(p.value)
end

return function(lua_dir)
  local f = accel.features()
  row("accel", "%s", accel._VERSION)
  row("lua", "%s", _VERSION)
  row("compiler", "%s", f.compiler)
  row("library", "%s", lua_dir or "accel/init.lua was not found: require \"accel\" will fail")
  local cpu = table.concat(f.cpu, " ")
  row("cpu", "%d usable, %d threads, %s; kernels for %s", f.cpus, accel.num_threads(), cpu, f.isa)
  row("memory", "%s usable", f.memory > 0 and bytes(f.memory) or "unknown")
  local list = {}
  for _, name in ipairs(accel.devices()) do
    local m = accel.mem_stats(name)
    list[#list + 1] = m.limit_bytes > 0 and ("%s (limit %s)"):format(name, bytes(m.limit_bytes)) or name
  end
  row("devices", "%s", table.concat(list, ", "))
  row("onednn", "%s", f.onednn or "absent: own matrix products only")
  for _, library in ipairs(accel.libraries()) do
    row(library.name, "%s", library.version or "absent: " .. library.absent)
  end
  row("mpi", "%s", f.mpi or "absent: backend mpi cannot be used (Debian: libopenmpi-dev)")
  for name, d in accel.pairs(f.devices) do
    if name ~= "cpu" and name ~= "meta" then row(name, "%s%s", d.count == 0 and "absent: " or "", d.state) end
  end
  io.write("\n")
  local params, unknown = accel.params()
  local width = 0
  for _, p in ipairs(params) do width = math.max(width, #p.name) end
  for _, p in ipairs(params) do
    local origin = p.set and "environment" or "default"
    local allowed = p.allowed and (" [" .. p.allowed .. "]") or ""
    local line = ("%-" .. width .. "s  %-10s %-11s %s%s\n")
    io.write(line:format(p.name, value_text(p), origin, p.help, allowed))
  end
  for _, u in ipairs(unknown) do
    local near = u.nearest and (" (did you mean %s?)"):format(u.nearest) or ""
    io.write(u.name, " is set but means nothing", near, "\n")
  end
end
