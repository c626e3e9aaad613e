--- Models whose trained parameters change after prepare, in cases that the wrapper of data parallelism cannot follow alone: models
--- without trained parameters, and models split over a mesh. Changes that cannot be followed raise an error with the names. Used by
--- prepare.lua.
local Trained = require "accel.nn.trained"
local accel = require "accel"
local coalesce = require "accel.dist.coalesce"
local raise = require "accel.util.raise"

local M = {}

local WHO <const> = "prepare"

local checks = setmetatable({}, { __mode = "k" }) -- of models that no wrapper watches

--- The names of splits besides tensor and data parallelism, or nil.
local function shared_by(parallel)
  local c = parallel.config
  return (parallel.megatron and "Megatron's plugin") or (c.pp_size > 1 and "pipeline parallelism")
    or (c.ep_size > 1 and "expert parallelism") or (c.cp_size > 1 and "context parallelism") or (c.sp_size > 1 and "sequence parallelism")
end

--- The parameters as ranks that share them out agree on them: with their whole shapes.
local function whole_lines(trained)
  local placements, lines = require "accel.parallel.placements".of, {}
  for i, e in ipairs(trained.entries) do
    local shape, cut = table.move(e.p.shape, 1, e.p.ndim, 1, {}), placements[e.p]
    if cut then shape[cut.dim] = cut.whole end
    lines[i] = ("'%s' %s (%s)%s"):format(e.name, e.p.dtype, table.concat(shape, ", "), e.learns and "" or " frozen")
  end
  return lines
end

--- Follows a change of a model on a mesh. trained: still as it was before.
local function follow(parallel, model, changes, trained)
  local by, shown = shared_by(parallel), Trained.shown(changes)
  if by and changes.others then
    raise("%s: the model's parameters differ from those at prepare, which %s does not support: %s; make modules and adapters before"
      .. " prepare", WHO, by, shown)
  elseif parallel.megatron or parallel.config.pp_size > 1 then -- stages have agreed on the parameters with gradients
    raise("%s: the trained parameters changed, which %s does not support: %s; change them before prepare", WHO, by, shown)
  end
  local tp = parallel:axis "tp"
  if tp.size == 1 then return end
  local before, now = {}, Trained(model, trained.ignored)
  for _, e in ipairs(trained.entries) do before[e.p] = true end
  Trained.agree(WHO, changes, whole_lines(now), tp.group)
  local fresh = {}
  local cut = require "accel.parallel.placements".of -- a weight with a merged adapter is of this rank's part already
  for _, e in ipairs(now.entries) do fresh[#fresh + 1] = not before[e.p] and not cut[e.p] and e.p or nil end
  coalesce.broadcast(fresh, 0, tp.group)
  require("accel.parallel.tensor_parallel").follow(model)
end

--- Newly trained parameters are held in f32.
local function upcast(model) require "accel.shard.upcast".model(model) end

--- A model that no wrapper watches: asked before every forward that learns.
---@return fun() check
local function watch_alone(parallel, model, made, in_f32)
  local trained = Trained(model)
  local alone = #trained.learning == 0 and not (parallel and parallel:axis "data".size == 1)
  local function check()
    local changes = trained:changes()
    if not changes then return end
    if alone then
      raise("%s: the model had no trained parameters, so ranks do not average its gradients, and now %s; \z
        let a parameter require gradients before prepare",
        WHO, Trained.shown(changes))
    end
    follow(parallel, model, changes, trained)
    if in_f32 then upcast(model) end
    trained:take()
  end
  made:register_forward_pre_hook(function()
    if accel.is_grad_enabled() then check() end
  end, { prepend = true })
  return check
end

--- On one rank nothing is split, but newly trained parameters are still held in f32.
local function watch_dtypes(model, made)
  local trained = Trained(model)
  made:register_forward_pre_hook(function()
    if not (accel.is_grad_enabled() and trained:changes()) then return end
    upcast(model)
    trained:take()
  end, { prepend = true })
end

--- Watches a model that was prepared.
---@param accelerator accel.Accelerator
---@param model accel.nn.Module as it was given
---@param made accel.nn.Module the prepared model
---@param in_f32 boolean hold newly trained parameters in f32, as accel.shard.upcast does
function M.watch(accelerator, model, made, in_f32)
  local engine = rawget(made, "reducer")
  if accelerator.num_processes == 1 then
    if in_f32 and not (engine and engine.units) then watch_dtypes(model, made) end
    return
  end
  local parallel = accelerator._parallel
  local trained = rawget(made, "trained")
  if trained and parallel then
    rawset(made, "_changing", function(changes)
      follow(parallel, model, changes, trained)
      if in_f32 and not engine.units then upcast(model) end -- sharding does so itself
    end)
  elseif not trained then
    checks[made] = watch_alone(parallel, model, made, in_f32)
  end
end

--- Follows all changes so far, before the next forward would, because states are saved and loaded by the current split. A collective if
--- something has changed.
---@param accelerator accel.Accelerator
function M.settle(accelerator)
  if accelerator.num_processes == 1 then return end
  for _, made in ipairs(accelerator._prepared.models) do
    local trained = rawget(made, "trained")
    local changes = trained and trained:changes()
    if changes then made:_follow(changes) elseif checks[made] then checks[made]() end
  end
end

return M
