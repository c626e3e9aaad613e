--- What all ranks do and agree on: verdict(accelerator, who, fn, ...) calls fn on every rank and returns what it returns;
--- where it raises on any of them, all raise one error that names the first such rank. A collective. Used where a state is
--- saved or loaded, which all ranks do or none.
local dist = require "accel.dist"
local raise = require "accel.util.raise"

---@param accelerator accel.Accelerator
---@param who string
---@param fn function
---@param ... any
---@return any ...
return function(accelerator, who, fn, ...)
  if accelerator.num_processes == 1 or dist.get_world_size() == 1 then return fn(...) end
  local results = table.pack(pcall(fn, ...))
  local mine = results[1] and "" or tostring(results[2]):gsub("\nstack traceback.*", "")
  for rank, message in ipairs(dist.all_gather_object(mine, { max_bytes = math.maxinteger })) do
    if message ~= "" then
      if message:find "interrupted" and mine == message then error(results[2], 0) end
      raise("%s: rank %d: %s", who, rank - 1, (message:gsub("^[^\n:]*%.lua:%d+: ", ""):gsub("^" .. who .. ": ", "")))
    end
  end
  return table.unpack(results, 2, results.n)
end
