-- The text of an error value, in one line, and whether it comes from accel.util.refuse. Never raises. Used by the host's message
-- handler (lua/traceback.lua), by hosts for their callers (bindings/embed/host_protect.c) and by ranks of accel.launch.
local accel = ...

local WIDEST = 300

local function text_of(err)
  local meta = debug.getmetatable(err)
  if type(err) == "string" or type(err) == "number" or (meta and meta.__tostring) then
    local ok, text = pcall(tostring, err)
    return ok and accel.console.visible(text, true) or "(error object that cannot be printed)"
  end
  if type(err) ~= "table" then return ("(error object is a %s value)"):format(type(err)) end
  local ok, text = pcall(accel.inspect, err, { depth = 3, items = 10, width = WIDEST })
  if not ok then return "(error object that cannot be printed)" end
  text = text:gsub("%s*\n%s*", " ")
  return "error object " .. (#text > WIDEST and text:sub(1, WIDEST - 3) .. "..." or text)
end

return function(err)
  local refuse = package.loaded["accel.util.refuse"]
  return text_of(err), refuse ~= nil and refuse.raised(err)
end
