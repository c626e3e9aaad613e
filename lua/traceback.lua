-- Message and traceback of an error, with the tensors that each function held: name, dtype, shape. The host's
-- message handler.
local accel = ...

local MAX_FRAMES, MAX_TENSORS = 24, 8

local function describe(t)
  local ok, text = pcall(function()
    local shape = {}
    for i, n in ipairs(t.shape) do shape[i] = ("%d"):format(n) end
    local device = t.device == "cpu" and "" or " on " .. t.device
    return ("%s (%s)%s"):format(t.dtype, table.concat(shape, ", "), device)
  end)
  return ok and text or "released"
end

-- "x: f32 (2, 3), y: ..." for the locals of a frame; nil when there are none.
local function tensors(thread, level)
  local seen, list = {}, {}
  local function note(name, value)
    if name:sub(1, 1) == "(" or not accel.is_tensor(value) then return end
    if seen[name] then
      list[seen[name]] = name .. ": " .. describe(value) -- an inner local hides an outer one
    else
      list[#list + 1] = name .. ": " .. describe(value)
      seen[name] = #list
    end
  end
  for i = 1, 200 do
    local name, value
    if thread then
      name, value = debug.getlocal(thread, level, i)
    else
      name, value = debug.getlocal(level + 1, i)
    end
    if not name then break end
    note(name, value)
  end
  if #list == 0 then return nil end
  if #list > MAX_TENSORS then
    local more = #list - MAX_TENSORS
    for i = #list, MAX_TENSORS + 1, -1 do list[i] = nil end
    list[#list + 1] = ("and %d more"):format(more)
  end
  return table.concat(list, ", ")
end

local function name_of(info)
  if info.what == "main" then return "main chunk" end
  if info.name then
    return ("%s '%s'"):format(info.namewhat ~= "" and info.namewhat or "function", info.name)
  end
  return ("function <%s:%d>"):format(info.short_src, info.linedefined)
end

-- level: of the first frame shown, 1 being the caller.
local function frames(level)
  local lines, shown = {}, 0
  level = level + 1
  while true do
    local info = debug.getinfo(level, "Sln")
    if not info then break end
    if shown == MAX_FRAMES then
      lines[#lines + 1] = "  ..."
      break
    end
    if info.currentline > 0 then
      shown = shown + 1
      lines[#lines + 1] = ("  %s:%d: in %s"):format(info.short_src, info.currentline, name_of(info))
      local held = tensors(nil, level)
      if held then lines[#lines + 1] = "      " .. held end
    elseif shown > 0 and info.what == "C" and info.name then
      lines[#lines + 1] = "  [C]: in " .. name_of(info)
    end
    level = level + 1
  end
  return lines
end

-- (error value [, level]) -> text. Never raises.
return function(message, level)
  local ok, text = pcall(tostring, message)
  if not ok then text = "(error object that cannot be printed)" end
  local lines = frames((level or 1) + 1)
  -- frames() counts from here: 1 is this function, 2 its caller
  if #lines == 0 then return text end
  return text .. "\nstack traceback:\n" .. table.concat(lines, "\n")
end
