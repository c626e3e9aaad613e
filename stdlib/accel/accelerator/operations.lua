--- Functions of accelerate.utils on nested tables of tensors: lists, tables with string keys, ordered tables and
--- instances of classes. They keep their kind. Leaves other than tensors stay, or raise if a function cannot use them.
--- Available as accel.accelerator.gather and so on. Files in operations/ have the functions.
local M = {}

for _, name in ipairs { "structure", "convert", "exchange" } do
  for key, value in next, (require("accel.accelerator.operations." .. name)) do
    if key:sub(1, 1) ~= "_" then M[key] = value end
  end
end

--- For gather_for_metrics and the dispatcher alone.
M.agreed, M.gather_rows = nil, nil

return M
