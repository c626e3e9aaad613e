--- Where the script called the library: the first function on the stack that is not the library's own, as `debug.getinfo` tells it
--- ("Sl"), and its level as seen from the function that asks; nil where there is none, as in the thread of a data worker.
local library <const> = debug.getinfo(1, "S").source:match "^(.*)util/[^/]*$" or "@"

---@return debuginfo?
---@return integer?
return function()
  local level = 2
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then return nil end
    if info.what ~= "C" and info.source:sub(1, #library) ~= library then return info, level - 1 end
    level = level + 1
  end
end
