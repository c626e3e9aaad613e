--- A table whose entries are loaded from files on first use: how nn, optim, data ... offer one name per
--- class without reading every file at start. A name that does not exist is nil, so that scripts can ask; one that
--- documentation of PyTorch or Accelerate has and this library lacks is an error that says what to use (absent.lua).

--- home maps an entry to its file below `prefix`, or to a module by its full name ("accel.track.lines"). A file returns the
--- entry itself, or a table that holds several.
---@param prefix string "accel.nn"
---@param home table<string, string>
---@param into? table what is loaded already; a new table otherwise
---@return table
return function(prefix, home, into)
  local function index(t, key)
    local file = home[key]
    if not file then
      require("accel.util.absent").refuse(prefix .. ".", key)
      return nil
    end
    local value = require(file:find("^accel%.") and file or prefix .. "." .. file)
    if type(value) == "table" then
      local own = rawget(value, key)
      if own ~= nil then value = own end
    end
    rawset(t, key, value)
    return value
  end
  return setmetatable(into or {}, { __index = index, __names = home }) -- names: for "did you mean"
end
