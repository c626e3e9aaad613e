--- Which of the DeepSpeed plugins of a process is active: those that the first Accelerator was given, by name. Every Accelerator
--- uses the active one. AcceleratorState:select_deepspeed_plugin chooses it. Installed by state.lua.
local accel = require "accel"
local divided = require "accel.nn.divided"
local check = require "accel.util.check"
local class = require "accel.util.class"
local listed = require("accel.util.options").listed
local nearest = require "accel.util.nearest"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"

local M = {}

local ONLY <const> = "default"

-- Belongs to this Lua state. Empty without DeepSpeed.
local plugins, active = {}, nil

--- Forgets them all.
function M.reset() plugins, active = {}, nil end

--- The active plugin. nil without DeepSpeed.
---@return accel.accelerator.DeepSpeedPlugin?
function M.active() return plugins[active] end

--- accel.deepspeed.zero if new parameters are sharded over ranks: inside zero.Init, or if the active plugin requests it
--- (zero3_init_flag).
function divided.creates()
  local zero, plugin = divided.creation, M.active()
  if plugin and plugin:is_zero3_init_enabled() then return require "accel.deepspeed.zero" end
  return zero and zero.active() and zero or nil
end

--- Whether there are any.
function M.any() return active ~= nil end

--- All of them by name. nil without DeepSpeed.
---@return table<string, accel.accelerator.DeepSpeedPlugin>?
function M.all() return active ~= nil and plugins or nil end

--- Those of the first Accelerator, checked: one, or several by name. The first one is to be active: of an accel.util.ordered the
--- first entry, of another table the first name in sorted order.
---@param given accel.accelerator.DeepSpeedPlugin|table<string, accel.accelerator.DeepSpeedPlugin>
---@param Plugin table the class DeepSpeedPlugin
---@return {plugins: table<string, accel.accelerator.DeepSpeedPlugin>, order: string[]} for commit
function M.collect(given, Plugin)
  if class.isinstance(given, Plugin) then given = { [ONLY] = given } end
  if type(given) ~= "table" then
    raise("Accelerator: deepspeed_plugins must be a table { name = plugin, ... }, got %s", check.shown(given))
  end
  local staged = { plugins = {}, order = {} }
  for name, plugin in (ordered.is(given) and pairs or accel.pairs)(given) do
    if not class.isinstance(plugin, Plugin) then
      raise("Accelerator: deepspeed_plugins.%s must be a DeepSpeedPlugin, made by accel.DeepSpeedPlugin { ... }", tostring(name))
    end
    staged.plugins[name], staged.order[#staged.order + 1] = plugin, name
  end
  if #staged.order == 0 then raise "Accelerator: deepspeed_plugins is empty" end
  return staged
end

--- They are the plugins of this process from now on.
function M.commit(staged)
  plugins, active = staged.plugins, staged.order[1]
  for key, plugin in next, plugins do rawset(plugin, "selected", key == active) end
end

--- The plugin of a name.
---@param name string
---@return accel.accelerator.DeepSpeedPlugin
function M.get(name)
  if active == nil then raise "get_deepspeed_plugin: there is no DeepSpeedPlugin; give accel.Accelerator { deepspeed_plugins = ... }" end
  local plugin = plugins[name]
  if plugin == nil then
    local near = type(name) == "string" and nearest(name, plugins)
    raise("deepspeed_plugins has no '%s'%s", tostring(name), near and ("; did you mean '%s'?"):format(near) or listed(plugins))
  end
  return plugin
end

--- Makes the plugin of a name the active one: models that are prepared from now on follow it.
---@param name string
function M.select(name)
  M.get(name)
  for key, plugin in next, plugins do rawset(plugin, "selected", key == name) end
  active = name
end

return M
