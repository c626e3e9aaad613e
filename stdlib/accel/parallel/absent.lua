--- What other ranks have: tensors that are shapes alone here, on the meta device. In a dry run this rank's own tensors are there, so that
--- what others have is on a further one, whose memory, calls and messages count for nothing. Used by all files of accel.parallel.
local core = require "accel.parallel.core"

local M = { device = "meta", simulated = false }

--- Whether a tensor is another rank's.
---@param t accel.Tensor
---@return boolean
function M.is(t) return t.device == M.device end

--- From here on this rank's own tensors are on meta: called by a dry run before its script.
function M.simulate() M.device, M.simulated = core.phantom(1), true end

--- Calls fn while what is another rank's is on one more device, above what this rank lacks itself.
---@param fn fun()
function M.above(fn)
  local was = M.device
  M.device = core.phantom(2)
  local ok, why = pcall(fn)
  M.device = was
  if not ok then error(why, 0) end
end

return M
