--- Methods that a class of the reference has and the class here lacks: a call raises and names what to use (the rows of absent.lua, which
--- are loaded then). For classes that every start loads. Others call absent.members, which needs no list.
---@param cls table
---@param name string of the class, as in the table
---@param methods string names with spaces between
return function(cls, name, methods)
  for method in methods:gmatch "%S+" do
    cls[method] = function(...) require("accel.util.absent").refuse(name .. ":", method, ...) end
  end
end
