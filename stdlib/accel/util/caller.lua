--- The line at which the script called the library: the first function on the stack outside the library, in the form of
--- `debug.getinfo` ("Sl"), and its level relative to the caller. nil if there is none, as in the thread of a data worker.
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
