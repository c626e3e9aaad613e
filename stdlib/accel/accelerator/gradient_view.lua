--- accel.GradientState: a view of the position of this process's training loop, like Accelerate's singleton. It holds nothing
--- itself: every read and write is one of the state of the Accelerator made last, so that both always agree.
local GradientState = require "accel.accelerator.gradient_state"
local check = require "accel.util.check"
local class = require "accel.util.class"
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"

--- The position of the training loop: sync_gradients, num_steps, adjust_scheduler, sync_with_dataloader, sync_each_batch,
--- in_dataloader, active_dataloader, dataloader_references, end_of_dataloader, remainder. Every GradientState() is a view of the
--- gradient_state of the Accelerator made last. Without an Accelerator it holds the values outside training: every step ends an
--- update.
--- example: local a, flags = accel.Accelerator { gradient_accumulation_steps = 2 }, {}
---   for k = 1, 4 do a:accumulate(function() flags[k] = accel.GradientState().sync_gradients end) end return flags
---   --> { false, true, false, true }
---@class accel.accelerator.GradientStateView : accel.accelerator.GradientState
local View = class("accel.accelerator.GradientState")

-- The state of a script without an Accelerator. It is kept here, since otherwise only Accelerators hold states.
local alone

local function state()
  local current = GradientState.current()
  if not current then
    alone = GradientState(require "accel.accelerator.configuration".GradientAccumulationPlugin(1))
    current = alone
  end
  return current
end

local PUBLIC <const> = { "sync_gradients", "step", "num_steps", "adjust_scheduler", "sync_with_dataloader", "sync_each_batch",
  "active_dataloader", "dataloader_references", "in_dataloader", "end_of_dataloader", "remainder", "plugin", "initialized" }
local is_public = {}
for _, name in ipairs(PUBLIC) do is_public[name] = true end
local SETTABLE <const> = { sync_gradients = "boolean", num_steps = "count", adjust_scheduler = "boolean", sync_with_dataloader = "boolean",
  sync_each_batch = "boolean" }

--- With a plugin, its settings become the settings of the training loop.
---@param plugin? accel.accelerator.GradientAccumulationPlugin
function View:init(plugin) -- luacheck: ignore self
  if plugin == nil then return end
  local Plugin = require "accel.accelerator.configuration".GradientAccumulationPlugin
  if not class.isinstance(plugin, Plugin) then
    raise("GradientState: expected a GradientAccumulationPlugin or nothing, got %s", check.shown(plugin))
  end
  state().plugin = plugin
end

local function refuse(key)
  if type(key) == "string" then require "accel.util.absent".refuse("GradientState:", key) end
  local near = type(key) == "string" and nearest(key, PUBLIC)
  raise("GradientState has no attribute '%s'%s", tostring(key), near and ("; did you mean '%s'?"):format(near) or "")
end

--- The gradient_state of the Accelerator made last, nil without one.
---@return accel.accelerator.GradientState?
function View.current() return GradientState.current() end

--- Forgets the state of the Accelerator made last.
function View._reset_state()
  GradientState._reset_state()
  alone = nil
end

function View.__index(_, key)
  local value = rawget(View, key)
  if value ~= nil then return value end
  if not is_public[key] then refuse(key) end
  return state()[key]
end

function View.__newindex(_, key, value)
  if not is_public[key] then refuse(key) end
  local kind = SETTABLE[key]
  if not kind then raise("GradientState: %s cannot be set; it follows the loops over prepared loaders", key) end
  if kind == "count" then
    check.positive("GradientState", key, value)
  elseif type(value) ~= "boolean" then
    raise("GradientState: %s must be a boolean, got %s", key, check.shown(value))
  end
  state()[key] = value
end

function View.__tostring() return tostring(state()) end

return View
