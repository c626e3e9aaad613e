--- The library's spans in a profile, besides ops: calls of modules, steps of optimizers, batches of loaders. While nothing
--- records, an optimizer's step and a batch cost one check of `running`. Modules report to a tracer among Module's fields, which
--- exists as long as a profile with modules runs.
local core = require "accel.profiler.core"

--- running: set by a profile. whole: the recorder of a dry run, which records the whole script.
local M = { running = false, whole = false }

--- Numbers of ac_span_kind and ac_memory_category.
M.FUNCTION, M.MODULE, M.OPTIMIZER, M.LOADER, M.STEP = 3, 4, 5, 6, 7
M.PARAMETER, M.GRADIENT, M.STATE = 0, 1, 2

M.begin, M.finish, M.mark = core.begin, core.finish, core.mark

local function short(module) return (getmetatable(module).__name or "Module"):match "[^.]*$" end

--- The tensors of an optimizer, for the timeline of memory. Gradients are marked as they arrive: p.grad would make a handle
--- here, which would hold the gradient until the collector comes.
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
