-- The house has one direction: an include may only point left along
--   base < text < device < tensor < ops < ... < bindings < app
-- Usage: lua include_order.lua <source tree>. Prints one line per violation and exits 1, or says how much was
-- checked. Beyond the order of stages: host/ knows nothing of Lua outside app/, app/ uses public headers
-- only, public headers include public headers only, and nothing climbs with "..".

local STAGES = { "base", "text", "device", "tensor", "ops", "autograd", "comm", "file", "offload", "precision",
  "shard", "ckpt", "track", "profile", "launch", "attach", "bindings", "app" }
local RANK = {}
for i, stage in ipairs(STAGES) do RANK[stage] = i end

-- Public headers are named after their stage; these are not.
local PUBLIC = { image = "file", sound = "file",
  op = "ops", rest = "track", store = "track", opdef = "ops", http = "track", host = "bindings", accel = "bindings", lua = "bindings",
  version = "base" }
-- Headers that the build generates.
local GENERATED = { ["ops_x.h"] = "ops" }

local root = assert(arg[1], "usage: include_order.lua <source tree>")
local violations, n_files, n_includes = 0, 0, 0

local function exists(path)
  local f = io.open(path)
  if f then f:close() end
  return f ~= nil
end

local function violation(file, line, text, ...)
  violations = violations + 1
  io.write(("%s:%d: %s\n"):format(file, line, text:format(...)))
end

-- The stage a file of ours belongs to, by its path below the root.
local function stage_of(file)
  local public = file:match("^host/include/accel/([%w_]+)%.h$")
  if public then return RANK[public] and public or PUBLIC[public], true end
  if file:match("^bindings/") then return "bindings", false end
  return file:match("^host/([%w_]+)/"), false
end

-- The stage an include leads to; nil when it is none of ours. `public` tells the two kinds apart.
local function target_of(file, name)
  local public = name:match("^accel/([%w_]+)%.h$")
  if public then return RANK[public] and public or PUBLIC[public] or "?", true end
  if GENERATED[name] then return GENERATED[name], false end
  local folder = file:match("^(.*)/")
  if exists(root .. "/" .. folder .. "/" .. name) then return (stage_of(folder .. "/" .. name)), false end
  local first = name:match("^([%w_]+)/")
  if RANK[first] then return first, false end
  return nil, false
end

local function check(file)
  local stage, is_public = stage_of(file)
  if not RANK[stage] then
    violation(file, 1, "of no stage (public headers are named after theirs, or listed in the check)")
    return
  end
  n_files = n_files + 1
  local number = 0
  for line in io.lines(root .. "/" .. file) do
    number = number + 1
    local open, name = line:match('^%s*#%s*include%s*([<"])([^>"]+)')
    if name then
      n_includes = n_includes + 1
      local target, target_public = target_of(file, name)
      if name:find("..", 1, true) then
        violation(file, number, "'%s' climbs: name the stage instead", name)
      elseif name:match("^lua%.h") or name:match("^lauxlib") or name:match("^lualib") then
        if RANK[stage] < RANK.bindings then violation(file, number, "%s/ knows nothing of Lua", stage) end
      elseif target == "?" then
        violation(file, number, "'%s' belongs to no known stage", name)
      elseif target and RANK[target] > RANK[stage] then
        violation(file, number, "%s may not include %s ('%s'): it stands to the right", stage, target, name)
      elseif target and not target_public and is_public then
        violation(file, number, "a public header includes the private '%s'", name)
      elseif target and not target_public and stage == "app" and target ~= "app" then
        violation(file, number, "app uses public headers only, not '%s'", name)
      elseif open == '"' and not target then
        violation(file, number, "'%s' is not found from here", name)
      end
    end
  end
end

local find = "cd '%s' && find host bindings -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort"
for file in assert(io.popen(find:format(root))):lines() do check(file) end
if violations > 0 then
  io.write(("%d violations of the include order\n"):format(violations))
  os.exit(1)
end
assert(n_files > 0, "no sources found below " .. root)
io.write(("%d includes of %d files point left\n"):format(n_includes, n_files))
