-- What harness.lua knows of the machine: the CPUs that sides are pinned to, the idle gate (nothing is measured beside
-- other work, which moves figures more than any change that is looked for), and what to write down with figures.
local accel = require "accel"
local children = require "children"

local M = {}

local FLAGS <const> = "amx_bf16|amx_tile|avx512_bf16|avx512f|avx2|asimd|bf16" -- of interest to matrix products
local BUSY <const>, WINDOW <const>, PATIENCE <const> = 0.06, 2, 60 -- share of all CPUs; seconds
M.FOREIGN = 0.03 -- what a round may lose to others, as a share of all CPUs
local SHORT <const> = 0.5 -- seconds: the kernel counts in hundredths, so less says nothing

local function first_line(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "l" or ""
end

--- The CPUs that this program may use.
---@return integer[]
function M.cpus()
  local list, file = {}, io.open("/proc/self/status", "rb")
  local text = file and file:read "a" or ""
  if file then file:close() end
  for from, to in (text:match "Cpus_allowed_list:%s*([%d,%-]+)" or ""):gmatch "(%d+)%-?(%d*)" do
    for cpu = tonumber(from), tonumber(to) or tonumber(from) do list[#list + 1] = cpu end
  end
  return list
end

--- Words before a command that keep it on n CPUs: "" where it cannot be done.
function M.pin(n)
  local cpus = M.cpus()
  if #cpus < n or not children.capture "command -v taskset" then return "", nil end
  local list = table.concat(cpus, ",", 1, n)
  return ("taskset -c %s "):format(list), list
end

-- ---- idleness ----

-- Hundredths of seconds since the start of the machine: of all CPUs, and those at work or taken by the hypervisor.
local function counters()
  local v = {}
  for n in first_line "/proc/stat":gmatch "%d+" do v[#v + 1] = tonumber(n) end
  local total = 0
  for i = 1, math.min(8, #v) do total = total + v[i] end
  local own = {}
  for n in first_line "/proc/self/stat":gsub("^.*%) %S+ ", ""):gmatch "%S+" do own[#own + 1] = tonumber(n) end
  -- own and ended children's: fields 14 to 17 of the line
  return { total = total, busy = total - (v[4] or 0) - (v[5] or 0), steal = v[8] or 0, clock = accel.clock(),
    own = (own[11] or 0) + (own[12] or 0) + (own[13] or 0) + (own[14] or 0) }
end

--- Begins to watch; the function returned tells the shares of all CPUs that others had since: {foreign =, steal =}, nil
--- where the time was too short to tell.
function M.watch()
  local from = counters()
  return function()
    local to = counters()
    local total = to.total - from.total
    if total <= 0 or to.clock - from.clock < SHORT then return nil end
    local steal = (to.steal - from.steal) / total
    local foreign = (to.busy - from.busy - (to.own - from.own)) / total - steal
    return { foreign = math.max(0, foreign), steal = steal }
  end
end

--- Waits until others use less than 6 % of all CPUs for two seconds. Returns their share, and whether that was reached
--- within a minute.
---@param say fun(text: string)
---@return number busy, boolean idle
function M.wait_idle(say)
  local began = accel.clock()
  while true do
    local watch = M.watch()
    children.sleep(WINDOW)
    local seen = watch()
    local busy = seen and seen.foreign + seen.steal or 0
    if busy < BUSY then return busy, true end
    if accel.clock() - began > PATIENCE then return busy, false end
    say(("waiting for an idle machine: %.0f %% busy"):format(100 * busy))
  end
end

-- ---- facts ----

local function probe(command)
  local text = children.capture(command)
  return text and text:match "%S[^\n]*" or nil
end

--- What belongs to figures that are written down.
---@return table
function M.facts()
  local f = accel.features()
  return {
    cpu = probe "sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1" or "unknown",
    cpus = f.cpus, isa = f.isa, features = f.cpu, memory_bytes = f.memory, kernel = probe "uname -sr",
    flags = probe("grep -o -w -E '" .. FLAGS .. "' /proc/cpuinfo | sort -u | tr '\\n' ' '"),
    accel = accel._VERSION, compiler = f.compiler, onednn = f.onednn, lua = _VERSION,
  }
end

return M
