--- The norm of gradients of a model that is shared out over a mesh, and clipping by it: parts count once each, whatever holds the same.
--- For accelerator:clip_grad_norm_.
local accel = require "accel"
local absent = require "accel.parallel.absent"
local core = require "accel.optim.core"
local deferred = require "accel.nn.deferred"
local dist = require "accel.dist"
local holders = require "accel.parallel.holders"
local raise = require "accel.util.raise"

local M = {}

--- As nn.utils.clip_grad_norm_, over all ranks. A collective.
---@param params accel.Tensor[] parameters of the model, in the order of the model
---@param max_norm number
---@param opts? {norm_type: number?, error_if_nonfinite: boolean?}
---@param parallel accel.accelerator.Parallelism
---@return accel.Tensor norm before, f32
function M.norm(params, max_norm, opts, parallel)
  local p = opts and opts.norm_type or 2
  local owners = package.loaded["accel.shard.owners"]
  local counted, all, wide = {}, {}, false
  local function add(param, stepped, cut)
    local grads = core.gradients(stepped)
    for i in ipairs(stepped) do
      local grad = grads[i]
      if grad then
        all[#all + 1] = grad
        if holders.speaks(parallel, param, cut) then counted[#counted + 1] = grad end
      end
    end
  end
  for _, param in ipairs(params) do
    wide = wide or param.dtype == "f64"
    if not absent.is(param) then
      local place = owners and owners.of[param]
      if place then
        local piece = place.unit.pieces[place.i]
        if piece then
          deferred.among { piece }
          add(param, { piece }, true)
        end
      else
        deferred.among { param }
        add(param, { param }, false)
      end
    end
  end
  local _ <close> = accel.no_grad()
  local norm = 0.0
  if #counted > 0 then norm = accel.clip_grad_norm_(counted, math.huge, { norm_type = p }):item() end
  local sum = accel.full({}, (p == math.huge or p == 0) and norm or norm ^ p, { dtype = "f64", device = "cpu" })
  dist.all_reduce(sum, p == math.huge and "max" or "sum")
  norm = (p == math.huge or p == 0) and sum:item() or sum:item() ^ (1 / p)
  if opts and opts.error_if_nonfinite and (norm ~= norm or norm == math.huge) then
    raise("clip_grad_norm_: the norm of the gradients is %s; they were not clipped", tostring(norm))
  end
  local factor = max_norm / (norm + 1e-6)
  if #all > 0 and max_norm < math.huge and not (factor >= 1) then
    local at = all[1].device
    accel.amp_foreach_unscale_(all, accel.zeros({}, { device = at }), accel.full({}, factor, { dtype = "f64", device = at }))
    core.spend(all)
  end
  return accel.full({}, norm, { dtype = wide and "f64" or "f32" })
end

return M
