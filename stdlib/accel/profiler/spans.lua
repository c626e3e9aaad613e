--- The places of the library that a profile looks at beside ops: calls of modules, steps of optimizers, batches of loaders. While
--- nothing records, an optimizer's step and a batch cost one look at `running`; modules are told by a tracer that stands
--- among Module's fields as long as a profile with modules runs.
local core = require "accel.profiler.core"

local M = { running = false, modules = false }

--- Numbers of ac_span_kind and ac_memory_category.
M.FUNCTION, M.MODULE, M.OPTIMIZER, M.LOADER, M.STEP = 3, 4, 5, 6, 7
M.PARAMETER, M.GRADIENT, M.STATE = 0, 1, 2

M.begin, M.finish, M.mark = core.begin, core.finish, core.mark

local function done(span, ...)
  core.finish(span)
  return ...
end

local function short(module) return (getmetatable(module).__name or "Module"):match "[^.]*$" end

--- Stands in for the hooks of a module that has none.
local tracer = {}
function tracer:run(module, ...)
  return done(core.begin(M.MODULE, "nn.Module: " .. short(module)), module:forward(...))
end

local hooks_run

local function see_modules(on)
  local Module, Hooks = require "accel.nn.module", require "accel.nn.hooks"
  Module._hooks = on and tracer or nil
  if on and not hooks_run then
    hooks_run = Hooks.run
    function Hooks:run(module, ...)
      return done(core.begin(M.MODULE, "nn.Module: " .. short(module)), hooks_run(self, module, ...))
    end
  elseif not on and hooks_run then
    Hooks.run, hooks_run = hooks_run, nil
  end
end

--- A recording begins, or ends.
---@param on boolean
---@param modules? boolean
function M.set(on, modules)
  M.running = on
  if on and modules or M.modules then see_modules(on and modules or false) end
  M.modules = on and modules or false
end

--- What an optimizer holds: for the timeline of memory. Gradients are marked as they arrive: p.grad would make a handle here,
--- which would hold the gradient until the collector comes.
---@param optimizer accel.optim.Optimizer
function M.mark_optimizer(optimizer)
  for _, group in ipairs(optimizer.param_groups) do
    for _, p in ipairs(group.params) do
      core.mark(p, M.PARAMETER)
      for _, value in next, optimizer.state[p] or {} do
        if type(value) == "userdata" then core.mark(value, M.STATE) end
      end
    end
  end
end

--- "Optimizer.step#AdamW.step", as PyTorch calls it.
function M.step_name(optimizer) return ("Optimizer.step#%s.step"):format(short(optimizer)) end

return M
