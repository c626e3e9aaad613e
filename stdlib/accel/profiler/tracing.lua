--- Turns recording on and off: the flag that optimizers and loaders look at (accel.util.spans), and the tracer that stands among Module's fields
--- while a profile records calls of modules. Used by profile.lua and by a dry run.
local core = require "accel.profiler.core"
local spans = require "accel.util.spans"

local modules_seen = false

local function done(span, ...)
  core.finish(span)
  return ...
end

local function short(module) return (getmetatable(module).__name or "Module"):match "[^.]*$" end

--- Stands in for the hooks of a module that has none.
local tracer = {}
function tracer:run(module, ...)
  return done(core.begin(spans.MODULE, "nn.Module: " .. short(module)), module:forward(...))
end

local hooks_run

local function see_modules(on)
  local Module, Hooks = require "accel.nn.module", require "accel.nn.hooks"
  Module._hooks = on and tracer or nil
  if on and not hooks_run then
    hooks_run = Hooks.run
    function Hooks:run(module, ...)
      return done(core.begin(spans.MODULE, "nn.Module: " .. short(module)), hooks_run(self, module, ...))
    end
  elseif not on and hooks_run then
    Hooks.run, hooks_run = hooks_run, nil
  end
end

--- A recording begins, or ends.
---@param on boolean
---@param modules? boolean whether calls of modules are recorded
return function(on, modules)
  spans.running = on
  if on and modules or modules_seen then see_modules(on and modules or false) end
  modules_seen = on and modules or false
end
