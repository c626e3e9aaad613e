-- Message and traceback of an error, with the tensors that each function held: name, dtype, shape. The host's message
-- handler. Frames of the library without tensors are left out, unless the library itself is at fault. For a call of a
-- name that accel lacks, the message suggests the nearest one.
local accel, lib_dir = ...

local MAX_FRAMES, MAX_TENSORS = 24, 8
local NO_FIELD = "a tensor has no field or method '"

local function describe(t)
  local ok, text = pcall(function()
    local shape = {}
    for i, n in ipairs(t.shape) do shape[i] = ("%d"):format(n) end
    local device = t.device == "cpu" and "" or " on " .. t.device
    return ("%s (%s)%s"):format(t.dtype, table.concat(shape, ", "), device)
  end)
  return ok and text or "released"
end

-- "x: f32 (2, 3), y: ..." for the locals of a frame, or nil.
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

local function is_library(source)
  return source:sub(1, 5) == "=lua/" or (lib_dir ~= "" and source:sub(1, #lib_dir) == lib_dir)
end

-- Was it the library that failed, not the script? Whether the library failed, not the script. The library's errors name
-- the script's line, Lua's errors their own.
local function is_ours(text, level)
  while true do
    local info = debug.getinfo(level + 1, "Sl")
    if not info then return false end
    if info.currentline > 0 then
      local place = ("%s:%d:"):format(info.short_src, info.currentline)
      return is_library(info.source) and text:sub(1, #place) == place
    end
    level = level + 1
  end
end

-- Names that the function at this level can use, "nn.Linear" by "Linear": from the library's tables among its locals,
-- upvalues and globals, and up to three tables deeper. Restricted to the table `only` if that is known.
local function names_in_reach(level, only)
  local ours, full, spaces = {}, {}, {}
  for name, value in next, package.loaded do
    local library = type(name) == "string" and (name == "accel" or name:sub(1, 6) == "accel.")
    if library and type(value) == "table" then ours[value] = true end
  end
  local function note(name, value)
    if type(name) == "string" and type(value) == "table" and ours[value] then
      ours[value] = false
      spaces[#spaces + 1] = { name = name, fields = value }
    end
  end
  for i = 1, 200 do
    local name, value = debug.getlocal(level + 1, i)
    if not name then break end
    note(name, value)
  end
  local f = debug.getinfo(level + 1, "f").func
  for i = 1, 255 do
    local name, value = debug.getupvalue(f, i)
    if not name then break end
    note(name, value)
  end
  for name, value in next, _G do note(name, value) end
  local first = 1
  for _ = 1, 3 do
    local last = #spaces
    for i = first, last do
      for name, value in next, spaces[i].fields do note(spaces[i].name .. "." .. tostring(name), value) end
    end
    first = last + 1
  end
  for _, space in ipairs(spaces) do
    local known = (only == nil or only == space.name) and accel.host_chunk "repl/names".of(space.fields) or {} -- also those not loaded so far
    for name in next, known do
      if type(name) == "string" and not full[name] then full[name] = space.name .. "." .. name end
    end
  end
  return full
end

-- Methods of modules, and of the ctx of an accel.Function, whose frame is gone when its error comes here.
local function usual_methods()
  local full = {}
  for _, name in ipairs { "save_for_backward", "saved_tensors", "mark_dirty", "mark_non_differentiable",
    "set_materialize_grads" } do full[name] = ":" .. name end
  for name, value in next, accel.nn and accel.nn.Module or {} do
    if type(name) == "string" and type(value) == "function" then full[name] = ":" .. name end
  end
  return full
end

-- The line of a frame, if the script can be read.
local function line_of(info)
  local file <close> = info.source:sub(1, 1) == "@" and io.open(info.source:sub(2)) or nil
  if not file then return nil end
  local text
  for _ = 1, info.currentline do text = file:read "l" end
  return text
end

-- "nn" for a line with nn.Linaer(...), if the script can be read. mark: "." or ":".
local function qualifier(info, name, mark)
  local text = line_of(info)
  return text and text:match("([%a_][%w_.]*)%" .. mark .. "%f[%w_]" .. name .. "%f[^%w_]")
end

-- The value of a name at this level.
local function value_at(level, wanted)
  local found
  for i = 1, 200 do
    local name, value = debug.getlocal(level + 1, i)
    if not name then break end
    if name == wanted then found = value end
  end
  if found ~= nil then return found end
  local f = debug.getinfo(level + 1, "f").func
  for i = 1, 255 do
    local name, value = debug.getupvalue(f, i)
    if not name then break end
    if name == wanted then return value end
  end
  return rawget(_G, wanted)
end

-- Methods of an object by name, including inherited ones.
local function methods_of(object)
  local full, meta = {}, debug.getmetatable(object)
  for _ = 1, 16 do
    local t = type(meta) == "table" and rawget(meta, "__index")
    if type(t) == "function" then t = meta end -- a class that looks fields up: its own methods
    if type(t) ~= "table" then break end
    for name, value in next, t do
      if type(name) == "string" and type(value) == "function" and name:sub(1, 1) ~= "_" then full[name] = ":" .. name end
    end
    meta = debug.getmetatable(t)
  end
  return full
end

-- Methods that some objects have, and why others do not.
local elsewhere = {
  gradient_checkpointing_enable = "the models of accel.models have it; in your own module, forward calls "
    .. "accel.checkpoint(layer, x) in the place of layer(x)",
}

-- "; t has 3 ..." if the line reads a tensor at a number beyond its last, which is nil. If a line also indexes
-- something else, it is unclear which of them was nil, and the result is "".
local function past_the_end(level)
  local line = line_of(debug.getinfo(level + 1, "Sl"))
  local said = ""
  for name in (line or ""):gmatch "%f[%w_]([%a_][%w_]*)%s*%[" do
    local value = value_at(level + 1, name)
    if not accel.is_tensor(value) or value.ndim == 0 then return "" end
    if said == "" then said = ("; the last position of %s is %d, and %s[%d] is nil"):format(name, #value, name, #value + 1) end
  end
  return said
end

-- "; use x:sum(...), with a colon" for an op that got no tensor, if the line calls it with a dot on a tensor or on a result.
local function op_with_dot(text, level)
  local op = text:match "bad argument #1 '[%w_]+' to '([%w_]+)' %(expected tensor, got"
  local info = op and debug.getinfo(level + 1, "Sl")
  local line = info and line_of(info)
  if not line then return "" end
  local owner = qualifier(info, op, ".")
  if owner and accel.is_tensor(value_at(level + 1, owner)) or line:find("[%)%]]%." .. op .. "%f[^%w_]") then
    return ("; use %s:%s(...), with a colon"):format(owner or "x", op)
  end
  return ""
end

-- "; did you mean nn.Linear?" for "attempt to call a nil value (field 'Linaer')" or "attempt to index" one, otherwise "".
local function hint(text, level)
  local index = text:match "nil value %(field '([^']*)'%)"
  if index == "?" or index == "integer index" then return past_the_end(level + 1) end
  local verb, kind, called = text:match("attempt to (%l+) a nil value %((%l+) '([%w_]+)'%)")
  if verb ~= "call" and verb ~= "index" then kind = nil end
  local info = debug.getinfo(level + 1, "Sl")
  while info and info.what == "C" do
    level = level + 1
    info = debug.getinfo(level + 1, "Sl")
  end
  if not info then return "" end
  if kind ~= "field" and kind ~= "method" then return (op_with_dot(text, level + 1)) end -- keeps this level
  if kind == "method" and elsewhere[called] then return "; " .. elsewhere[called] end
  local use = kind == "method" and require "accel.util.absent".instead_of("Module", called)
  if use then return "; " .. use end
  local full, names = {}, {}
  if kind == "field" then
    full = names_in_reach(level + 1, qualifier(info, called, "."))
  else
    local owner = qualifier(info, called, ":")
    local object = owner and value_at(level + 1, owner)
    full = object ~= nil and methods_of(object) or full
    if next(full) == nil then full = usual_methods() end
  end
  for name in next, full do names[#names + 1] = name end
  table.sort(names)
  local near = accel.nearest(called, names)
  return near and ("; did you mean %s?"):format(full[near]) or ""
end

-- The text about one of PyTorch's tensor fields or methods: its replacement, in place of the nearest name.
local function tensor_field(text)
  local name = text:match(NO_FIELD .. "([%w_]+)'")
  local use = name and require "accel.util.absent".instead_of("Tensor", name)
  if use and text:find(use, 1, true) then return text end -- it is there already
  return use and text:gsub("; did you mean '[^']*'%?", "") .. "; " .. use or text
end

local function is_object(value)
  return type(value) == "userdata" or (type(value) == "table" and debug.getmetatable(value) ~= nil)
end

-- net.forward(x): the input stands in self. The error is about a field that the tensor lacks, or about the parameter that got nothing.
local function took_input(level, info, text)
  if text:find(NO_FIELD, 1, true) then return true end
  local second = info.nparams > 1 and debug.getlocal(level + 1, 2)
  return second and text:find(("nil value (local '%s')"):format(second), 1, true) ~= nil
end

-- Whether a running function is a method that was called with a dot and lacks its object. For the library, the parameter self is
-- not an object. For a script's own function, whose object may be a plain table, it is not a table, and the error is about it.
local function lacks_object(level, info, text)
  local first, self = debug.getlocal(level + 1, 1)
  if first ~= "self" or info.nparams < 1 or info.namewhat == "method" or info.namewhat == "local" then return false end
  if accel.is_tensor(self) and accel.Tensor[info.name] == nil then return (took_input(level + 1, info, text)) end -- keeps this level
  if is_library(info.source) then return not is_object(self) end
  return type(self) ~= "table" and type(self) ~= "userdata" and text:find("(local 'self')", 1, true) ~= nil
end

-- The name that a function is defined by: the check of arguments (accel.util.arguments) calls it last, which leaves no other.
local function defined_name(info)
  local text = line_of { source = info.source, currentline = info.linedefined }
  return text and text:match "function%s+[%w_.]*[.:]([%w_]+)%s*%("
end

-- The method and the script's line, where the check of arguments (accel.util.checked) has raised for a missing object: the method's own
-- frame is gone then.
local function named_by_check(level, text)
  local name = text:match ": ([%w_]+): use [%w_]+:%1%(" or text:match ": ([%w_]+): call it with a colon, on an object"
  level = level + 1
  local info = name and debug.getinfo(level, "Sln")
  while info and (info.currentline < 1 or is_library(info.source)) do
    level = level + 1
    info = debug.getinfo(level, "Sln")
  end
  if info and qualifier(info, name, ".") then return { name = name }, info end
end

-- "train.lua:12: train: use net:train(...), with a colon" where a method of the library, or the method of a script that
-- failed itself, lacks its object because it was called with a dot; else nil.
local function dot_call(level, text)
  local called, at
  level = level + 1
  while true do
    local info = debug.getinfo(level, "Slnu")
    if not info then break end
    if info.currentline > 0 then
      local lacks = lacks_object(level, info, text)
      if called and not lacks then
        at = info
        break
      end
      local name = lacks and (info.name or defined_name(info))
      if name then called = { name = name } end
      if not called and not is_library(info.source) then break end
    elseif called then
      break
    end
    level = level + 1
  end
  if not at then called, at = named_by_check(level, text) end
  if not at then return nil end
  local owner = qualifier(at, called.name, ".") or "object"
  local call = called.name == "forward" and ("%s(...) or "):format(owner) or ""
  return ("%s:%d: %s: use %s%s:%s(...), with a colon"):format(at.short_src, at.currentline, called.name, call, owner, called.name)
end

-- level: of the first frame shown, 1 being the caller.
local function frames(level, with_library)
  local lines, shown = {}, 0
  level = level + 1
  while true do
    local info = debug.getinfo(level, "Sln")
    if not info then break end
    if shown == MAX_FRAMES then
      lines[#lines + 1] = "  ..."
      break
    end
    local held = info.currentline > 0 and tensors(nil, level)
    if info.currentline > 0 then
      if with_library or held or not is_library(info.source) then
        shown = shown + 1
        lines[#lines + 1] = ("  %s:%d: in %s"):format(info.short_src, info.currentline, name_of(info))
        if held then lines[#lines + 1] = "      " .. held end
      end
    elseif shown > 0 and info.what == "C" and info.name then
      lines[#lines + 1] = "  [C]: in " .. name_of(info)
    end
    level = level + 1
  end
  return lines
end

-- (error value [, level [, bare]]) -> text, message. bare: only the frames. Never raises. An error that passed through
-- a callback of the core shows its frames there. message: replaces the error value's text, if given.
return function(message, level, bare)
  level = (level or 1) + 1 -- as the functions above count: 1 is this function, 2 its caller
  local text = accel.host_chunk "error_text"(message)
  local kept = not bare and type(message) == "table" and rawget(message, "_frames")
  if type(kept) == "string" and kept ~= "" then return text .. "\nstack traceback:\n" .. kept end
  local is_text = type(message) == "string"
  local better = (is_text or text:find(NO_FIELD, 1, true)) and dot_call(level, text) or nil
  local instead = is_text and better or nil
  text = better or text
  local lines = frames(level, is_ours(text, level))
  if #lines == 0 then lines = frames(level, true) end
  if bare then return table.concat(lines, "\n") end
  text = tensor_field(text) .. hint(text, level)
  if #lines == 0 then return text, instead end
  return text .. "\nstack traceback:\n" .. table.concat(lines, "\n"), instead
end
