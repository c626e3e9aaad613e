--- Whether a dry run is under way, and the folders and files of weights and states that it leaves unwritten. Writers ask once their
--- arguments are checked, so that a dry run takes the forms that a real run takes.
local M = {}

--- Set by a dry run: called with a path before it is written. Returns whether it must stay unchanged.
---@type (fun(path: string): boolean)?
M.note = nil

--- Set by a dry run: called with a path that is not written in any case.
---@type fun(path: string)?
M.leave = nil

--- Whether a dry run is under way, in which tensors have no values.
---@return boolean
function M.dry_run() return M.note ~= nil end

--- Whether the path is left as it is.
---@param path string
---@return boolean
function M.skips(path)
  return M.note ~= nil and M.note(path)
end

--- Whether writing a state is skipped: a dry run writes none, since the number of its folder depends on existing ones.
---@param path? string
---@return boolean
function M.leaves_state(path)
  if not M.note then return false end
  M.leave(path or "?")
  return true
end

return M
