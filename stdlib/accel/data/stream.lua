--- How a pass over a stream begins and ends, whatever kind of iterator it gives.
local M = {}

--- A pass over `source` as a function without arguments, which may be called again after the end, and the value
--- to close.
---@param source table with the method iterate
---@param epoch? integer
---@param seed? integer
---@return fun(): any
---@return any closing
function M.begin(source, epoch, seed)
  local step, state, control, closing = source:iterate(epoch, seed)
  local ended = false
  return function()
    if ended then return nil end
    control = step(state, control)
    ended = control == nil
    return control
  end, closing
end

--- Closes the fourth value of an iterator, if there is one.
---@param closing any
function M.close(closing)
  local meta = debug.getmetatable(closing)
  if type(meta) == "table" and meta.__close then meta.__close(closing, nil) end
end

return M
