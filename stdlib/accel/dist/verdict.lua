--- A common verdict of all ranks: verdict(accelerator, who, fn, ...) calls fn on every rank and returns its results. If it
--- raises on any rank, all raise one error that names the first such rank. A collective. Used to save or load a state,
--- which all ranks do or none.
local dist = require "accel.dist"
local raise = require "accel.util.raise"
local refuse = require "accel.util.refuse"

---@param accelerator accel.Accelerator
---@param who string
---@param fn function
---@param ... any
---@return any ...
return function(accelerator, who, fn, ...)
  if accelerator.num_processes == 1 or dist.get_world_size() == 1 then return fn(...) end
  local results = table.pack(pcall(fn, ...))
  local mine = results[1] and "" or tostring(results[2]):gsub("\nstack traceback.*", "")
  local final = not results[1] and refuse.raised(results[2])
  for rank, told in ipairs(dist.all_gather_object({ mine, final }, { max_bytes = math.maxinteger })) do
    local message = told[1]
    if message ~= "" then
      if message:find "interrupted" and mine == message then error(results[2], 0) end
      local end_ = told[2] and refuse or raise
      end_("%s: rank %d: %s", who, rank - 1, (message:gsub("^[^\n:]*%.lua:%d+: ", ""):gsub("^" .. who .. ": ", "")))
    end
  end
  return table.unpack(results, 2, results.n)
end
