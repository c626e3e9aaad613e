--- Raises an error that points at the script's line: the first caller outside the training library; at none where
--- there is no such caller, as in the thread of a data worker.
local here = debug.getinfo(1, "S").source:match("^(.*)util/[^/]*$") or "@"

---@param fmt string
---@param ... any for string.format
return function(fmt, ...)
  local level = 2
  while true do
    local info = debug.getinfo(level, "S")
    if not info then
      level = 0
      break
    end
    if info.what ~= "C" and info.source:sub(1, #here) ~= here then break end
    level = level + 1
  end
  error(select("#", ...) > 0 and fmt:format(...) or fmt, level)
end
