-- accel.pdb.set_trace([header]): accel.breakpoint() by the name of Python's pdb. Loaded when it is first called.
local accel = ...

return function(header)
  if type(header) == "table" and getmetatable(header) == nil then
    for key in next, header do
      if key ~= "header" then accel.process.raise("invalid", ("set_trace: no option '%s'; there is header"):format(tostring(key))) end
    end
    header = header.header
  end
  if header ~= nil and type(header) ~= "string" then
    accel.process.raise("invalid", "set_trace: header must be a text, got " .. type(header))
  end
  accel.host_chunk("repl/attached").breakpoint(2, header)
end
