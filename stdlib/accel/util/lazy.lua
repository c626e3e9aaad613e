--- A table whose entries are loaded from files on first use: how nn, optim, data ... offer one name per class without reading
--- every file at start. A missing name is nil, so that scripts can test for it. A name in PyTorch's or Accelerate's documentation
--- that this library lacks raises an error with its replacement (absent.lua). Functions get the argument check that follows from
--- their annotations (checked.lua).
---
--- The root (accel/init.lua) adds entries whose files are in higher layers, which the table's own file must not name: public names
--- (nn.parallel.FullyShardedDataParallel), and entries with an underscore that are for the layer itself (checkpoint's option offload).
local M = {}

local added -- prefix -> entries of higher layers: name -> module. The root sets it

--- Adds entries to the tables of several prefixes. Only the root calls it, before any of them is made.
---@param entries table<string, table<string, string>> prefix -> name -> module by its full name
function M.add(entries) added = entries end

--- home maps an entry to its file below `prefix`, or to a module by its full name ("accel.track.lines"). A file returns the
--- entry itself, or a table that holds several.
---@param prefix string "accel.nn"
---@param home table<string, string>
---@param into? table the entries loaded already. Default: a new table
---@return table
local function make(_, prefix, home, into)
  if not added then require "accel" end
  for name, file in next, added[prefix] or {} do home[name] = file end
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
    value = require("accel.util.checked").public(value, key)
    rawset(t, key, value)
    return value
  end
  return setmetatable(into or {}, { __index = index, __names = home }) -- names: for "did you mean"
end

return setmetatable(M, { __call = make })
