--- Tensors of other ranks: here they are only shapes, on the meta device. In a dry run this rank's own tensors are on meta, so other
--- ranks' tensors are on a further device, whose memory, calls and messages are not counted. Used by all files of accel.parallel.
local core = require "accel.parallel.core"

local M = { device = "meta", simulated = false }

--- Whether a tensor is another rank's.
---@param t accel.Tensor
---@return boolean
function M.is(t) return t.device == M.device end

--- From here on this rank's own tensors are on meta: called by a dry run before its script.
function M.simulate() M.device, M.simulated = core.phantom(1), true end

--- Calls fn while other ranks' tensors are on a further device, in addition to those this rank lacks itself.
---@param fn fun()
function M.above(fn)
  local was = M.device
  M.device = core.phantom(2)
  local ok, why = pcall(fn)
  M.device = was
  if not ok then error(why, 0) end
end

return M
