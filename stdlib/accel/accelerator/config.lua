--- The resolved configuration of an Accelerator: every setting with its value and its origin. Its constructor makes it
--- (resolve.lua), and it never changes. Each changing value belongs to one owner (accelerator.lua).
local class = require "accel.util.class"
local check = require "accel.util.check"
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

--- Settings as fields, which cannot be assigned. origin(name) returns the source of a setting: "argument" of the
--- constructor, a given configuration or plugin, "ACCELERATE_..." of the environment, "first Accelerator" or "default".
--- As text it lists them all.
--- example: local c = accel.Accelerator({ gradient_accumulation_steps = 2 }).config
---   return c.gradient_accumulation_steps, c:origin "gradient_accumulation_steps", c:origin "even_batches"
---   --> 2, "argument", "default"
---@class accel.accelerator.Config
local Config = class("accel.accelerator.Config")

--- Settings that change during a run. They belong to the project's record, and this holds only their origin.
local changing <const> = {
  project_dir = "accelerator.project_dir", logging_dir = "accelerator.logging_dir",
  iteration = "accelerator.save_iteration",
}

---@param values table<string, any>
---@param origins table<string, string> of every setting, whether it has a value or none
function Config:init(values, origins)
  for name in next, changing do values[name] = nil end
  rawset(self, "_values", values)
  rawset(self, "_origins", origins)
end

function Config.__index(self, key)
  local method = Config[key]
  if method ~= nil then return method end
  local values = rawget(self, "_values")
  if changing[key] then raise("config: %s changes during the run; read %s", key, changing[key]) end
  return values and values[key]
end

function Config.__newindex(_, key)
  raise("config: %s cannot be set; a configuration is resolved once, by accel.Accelerator { ... }", tostring(key))
end

--- The source of a value.
---@param name string
---@return string
function Config:origin(name)
  local origin = self._origins[name]
  if not origin then
    local near = type(name) == "string" and nearest(name, self._origins)
    raise("config: no setting '%s'%s", tostring(name), near and ("; did you mean '%s'?"):format(near) or "")
  end
  return origin
end

local function sorted(origins)
  local names = {}
  for name in next, origins do names[#names + 1] = name end
  table.sort(names)
  return names
end

function Config.__pairs(self)
  local names, i = sorted(self._origins), 0
  return function()
    while i < #names do
      i = i + 1
      local value = self._values[names[i]]
      if value ~= nil then return names[i], value end
    end
  end
end

local function shown(value)
  if type(value) ~= "table" or getmetatable(value) ~= nil then return check.shown(value) end
  local parts = {}
  for i, x in ipairs(value) do parts[i] = shown(x) end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

function Config.__tostring(self)
  local lines = {}
  for i, name in ipairs(sorted(self._origins)) do
    local value = changing[name] and "<see " .. changing[name] .. ">" or shown(self._values[name])
    lines[i] = ("%s = %s  (%s)"):format(name, value, self._origins[name])
  end
  return table.concat(lines, "\n")
end

return Config
