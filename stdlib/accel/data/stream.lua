--- How a pass over a stream begins and ends, whatever kind of iterator it gives.
local fetch = require "accel.data.fetch"

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

--- Batches of the samples that step() gives, as a function that returns nil at the end.
---@param step fun(): any
---@param size integer
---@param drop_last boolean
---@param gather fun(samples: any[]): any
---@return fun(): any
function M.batches(step, size, drop_last, gather)
  return function()
    local samples = {}
    while #samples < size do
      local sample = step()
      if sample == nil then break end
      samples[#samples + 1] = sample
    end
    if #samples == 0 or #samples < size and drop_last then return nil end
    return fetch.collate(samples, gather)
  end
end

--- Closes the fourth value of an iterator, if there is one.
---@param closing any
function M.close(closing)
  local meta = debug.getmetatable(closing)
  if type(meta) == "table" and meta.__close then meta.__close(closing, nil) end
end

return M
