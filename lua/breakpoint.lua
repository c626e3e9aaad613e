-- accel.breakpoint([condition]): stops the script here with a prompt, on the ranks whose condition holds (repl/attached.lua). Loaded when
-- it is first called.
local accel = ...

return function(...)
  local n, condition = select("#", ...), ...
  if n > 0 and (condition == nil or condition == false) then return end
  accel.host_chunk("repl/attached").breakpoint(2)
end
