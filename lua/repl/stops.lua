-- The places at which a script stops: breakpoints, watches, steps of lines. They belong to the prompt that set them: a client of accel-run
-- attach (attached.lua) or the prompt in this process (console.lua). attached.lua sets M.stand, which opens that prompt.
local accel = ...
local Frames = accel.host_chunk "repl/frames"
local places = accel.host_chunk "repl/places"
local attach = accel.console.attach

local M = { breaks = {}, watches = {} }

-- ---- values in a stopped function ----

local function place()
  local at = accel.console.place()
  if at then return at.rank, at.ranks end
  local core = require "accel.dist.core"
  if core.is_initialized() then return core.get_rank(), core.get_world_size() end
  return 0, 1
end

-- Names of conditions and watches that no variable of the script hides.
local NAMES = {
  rank = function() return (place()) end,
  world_size = function() return (select(2, place())) end,
  step = function() return accel.step_count() end,
}

local function name_in(frames, name)
  local found, value = frames:get(name)
  if found then return value end
  value = rawget(_G, name)
  if value ~= nil then return value end
  if NAMES[name] then return NAMES[name]() end
  local ok, global = pcall(function() return _G[name] end)
  if ok then return global end
  error(("'%s' is not defined here"):format(tostring(name)), 0)
end

--- The value of an expression in the selected function, without a session. nil, why.
---@return any ok
---@return any value or the error
function M.value_of(text, frames)
  local env = setmetatable({}, { __index = function(_, name) return name_in(frames, name) end })
  local f, why = load("return " .. text, "=condition", "t", env)
  if not f then return nil, why end
  local ok, value = pcall(f)
  if not ok then value = (accel.host_chunk "error_text"(value)):gsub("^condition:1: ", "") end
  return ok, value
end

-- Whether a watch triggers: true, or a number or a tensor that is not finite.
local function alarming(value)
  if value == true then return true end
  if type(value) == "number" then return value ~= value or value == math.huge or value == -math.huge end
  if accel.is_tensor(value) and value.device ~= "meta" then
    return accel.no_grad(function() return not value:detach():isfinite():all():item() end)
  end
  return false
end

-- ---- steps ----

local function look_at_steps()
  attach.every_step(#M.watches > 0 or M.pause_step ~= nil)
end

--- Stops after so many more steps. nil: not any more.
---@param count? integer
function M.after_steps(count)
  M.pause_step = count and accel.step_count() + count
  look_at_steps()
end

local function one_line(value)
  return (accel.inspect(value, { depth = 1, width = 60, items = 4 }):gsub("%s*\n%s*", " "))
end

--- Whether the script stops after this step: the reason. pause: a client asked for it.
---@return {reason: string, text: string, id: integer?}?
function M.at_step(pause, frames)
  local now = accel.step_count()
  if pause or (M.pause_step and now >= M.pause_step) then
    M.after_steps(nil)
    return { reason = "step", text = ("step %d"):format(now) }
  end
  for _, watch in ipairs(M.watches) do
    local ok, value = M.value_of(watch.text, frames)
    if ok and alarming(value) then
      return { reason = "watch", id = watch.id, text = ("%s: %s"):format(watch.text, one_line(value)) }
    elseif not ok and watch.failed ~= value then -- once for each error, so that the script can continue
      watch.failed = value
      return { reason = "watch", id = watch.id, text = ("watch %d, %s, fails: %s"):format(watch.id, watch.text, value) }
    end
  end
end

-- ---- lines ----

-- "train {loss} at {i}" with the values of its expressions.
local function filled(text, frames)
  return (text:gsub("{([^{}]*)}", function(expression)
    local ok, value = M.value_of(expression, frames)
    return ok and (type(value) == "string" and value or one_line(value)) or ("{%s: %s}"):format(expression, tostring(value))
  end))
end

-- Whether the hits so far satisfy "10", ">= 10", "% 10". nil: no condition of that kind.
local function counted(b)
  if not b.hits then return true end
  b.count = (b.count or 0) + 1
  local sign, n = b.hits:match "^%s*([<>=%%]*)%s*(%d+)%s*$"
  n = tonumber(n)
  if sign == "%" then return b.count % n == 0 end
  if sign == ">" then return b.count > n end
  if sign == "==" or sign == "=" then return b.count == n end
  if sign == "<" then return b.count < n end
  if sign == "<=" then return b.count <= n end
  return b.count >= n
end

-- Whether one of these breakpoints stops the function at `level`: the breakpoint, and the error of its condition.
local function hit(list, is_here, level)
  for _, b in ipairs(list or {}) do
    if is_here(b) then
      local frames = (b.condition or b.log) and Frames.capture(level + 1)
      local ok, value = true, true
      if b.condition then ok, value = M.value_of(b.condition, frames) end
      if not ok then return b, ("its condition fails: %s"):format(tostring(value)) end
      if value and counted(b) then
        if not b.log then return b end
        io.stderr:write(accel.console.visible(filled(b.log, frames)), "\n")
      end
    end
  end
end

local function stop_at(b, trouble)
  local text = ("breakpoint %d"):format(b.id) .. (trouble and ": " .. trouble or "")
  M.stand({ reason = "breakpoint", id = b.id, text = text, own = false }, 3)
end

-- The values that the function at `level` is about to return, as text.
local function returned(level)
  local info, list = debug.getinfo(level + 1, "r"), {}
  for i = info.ftransfer, info.ftransfer + info.ntransfer - 1 do
    local _, value = debug.getlocal(level + 1, i)
    list[#list + 1] = one_line(value)
  end
  return #list > 0 and "returns " .. table.concat(list, ", ") or "returns nothing"
end

-- Whether a step of lines ends at this event, in the function that called the hook's function.
local function step_ends(stepping, event, line)
  if stepping.mode == "in" then return event == "line" end
  local thread = coroutine.running()
  if stepping.thread and thread ~= stepping.thread and coroutine.status(stepping.thread) == "normal" then return false end -- it is called
  local height = Frames.height(3)
  if event ~= "line" then return stepping.mode == "return" and height == stepping.height end
  if stepping.mode == "over" then return height <= stepping.height end
  if height < stepping.height then return true end -- out of the function
  return stepping.mode == "until" and height == stepping.height and line >= stepping.line
end

local function on_event(event, line)
  local stepping = M.stepping
  if event == "line" and not stepping and not (M.by_line and M.by_line[line]) then return end
  local info = debug.getinfo(2, "S")
  if info.what == "C" or info.source:find "^=lua/" then return end
  if stepping and (stepping.library or not Frames.is_library(info.source)) and step_ends(stepping, event, line) then
    local text = stepping.reason and "before its first line" or event ~= "line" and returned(2) or "after a step of lines"
    M.stand({ reason = stepping.reason or "line", text = text, own = false }, 2)
    return
  end
  if event ~= "line" then
    if not M.by_name or event == "return" then return end
    local name = debug.getinfo(2, "n").name
    local b, trouble = hit(M.by_name[name], function(b) return b.name == name end, 2)
    if b then stop_at(b, trouble) end
    return
  end
  local b, trouble = hit(M.by_line and M.by_line[line], function(b) return places.same_file(info.source, b.file) end, 2)
  if b then stop_at(b, trouble) end
end

--- Installs the hook while there is something to look for, on the thread that stands and on coroutines that are made from then on.
function M.hook()
  local lines = M.stepping ~= nil or next(M.breaks) ~= nil
  local mask = (lines and "l" or "") .. (M.stepping and M.stepping.mode == "return" and "r" or "") .. (M.by_name and "c" or "")
  if mask ~= "" then debug.sethook(on_event, mask) elseif M.hooked then debug.sethook() end
  M.mask = mask
  if (mask ~= "") == (M.hooked ~= nil) then return end
  if mask == "" then
    coroutine.create, coroutine.wrap = M.hooked.create, M.hooked.wrap
    M.hooked = nil
    return
  end
  local create, wrap = coroutine.create, coroutine.wrap
  M.hooked = { create = create, wrap = wrap }
  local function hooking(f)
    return function(...)
      if M.mask ~= "" then debug.sethook(on_event, M.mask) end
      return f(...)
    end
  end
  function coroutine.create(f) return create(hooking(f)) end
  function coroutine.wrap(f) return wrap(hooking(f)) end
end

-- ---- what a prompt sets ----

--- Replaces the breakpoints. Returns remarks on each, by id (places.lua). One at a line without code is met at the next that has some.
function M.set_breaks(list, frames)
  local notes = {}
  M.breaks, M.by_line, M.by_name = list, {}, nil
  for _, b in ipairs(list) do
    if b.name then
      M.by_name = M.by_name or {}
      M.by_name[b.name] = M.by_name[b.name] or {}
      table.insert(M.by_name[b.name], b)
      notes[b.id] = {}
    else
      local ok, note = pcall(places.look, b, frames)
      if not ok then note = {} end -- a file that cannot be read
      notes[b.id] = note
      local line = note.line or b.line
      M.by_line[line] = M.by_line[line] or {}
      table.insert(M.by_line[line], b)
    end
  end
  return notes
end

-- pcall and xpcall of the script that stop at an error before they return it.
local function stopping_calls(protected)
  local function stop(err)
    local text = accel.host_chunk "error_text"(err):match "^[^\n]*"
    if type(err) ~= "table" or err.code ~= "interrupted" then
      M.stand({ reason = "exception", text = "an error that is caught", message = text, own = true }, 2)
    end
    return err
  end
  local function of_script()
    local caller = debug.getinfo(3, "S") -- none above the body of a coroutine
    local source = caller and caller.source or "=lua/"
    return not source:find "^=lua/" and not Frames.is_library(source)
  end
  local function pcall_(f, ...)
    if not of_script() then return protected.pcall(f, ...) end
    return protected.xpcall(f, stop, ...)
  end
  local function xpcall_(f, handler, ...)
    if not of_script() then return protected.xpcall(f, handler, ...) end
    return protected.xpcall(f, function(err) return handler(stop(err)) end, ...)
  end
  return { pcall = pcall_, xpcall = xpcall_ }
end

--- Which errors stop the script: "uncaught", "all", nil.
function M.set_errors(mode)
  attach.stop_on_error(mode ~= nil)
  if (mode == "all") == (M.protected ~= nil) then return end
  if mode == "all" then
    M.protected = { pcall = pcall, xpcall = xpcall }
    M.calls = stopping_calls(M.protected)
    rawset(_G, "pcall", M.calls.pcall)
    rawset(_G, "xpcall", M.calls.xpcall)
  else
    if rawget(_G, "pcall") == M.calls.pcall then rawset(_G, "pcall", M.protected.pcall) end -- the script's own stay
    if rawget(_G, "xpcall") == M.calls.xpcall then rawset(_G, "xpcall", M.protected.xpcall) end
    M.protected, M.calls = nil, nil
  end
end

function M.set_watches(list)
  M.watches = list
  look_at_steps()
end

--- Continues until a step of lines ends. request: mode, and the line of "until". at: the selected frame.
function M.step_lines(request, at)
  M.stepping = { mode = request.mode, height = at.from_bottom, library = at.library, thread = coroutine.running(),
    line = request.line or at.line + 1, reason = request.reason }
end

--- Whether a step of lines ends at the next line of the function at `level` of the caller in any case.
function M.steps_in(level)
  local stepping = M.stepping
  return stepping ~= nil and (stepping.mode == "in" or stepping.mode == "over" and Frames.height(level + 1) <= stepping.height)
end

--- Nothing stops the script any more.
function M.forget()
  M.breaks, M.watches, M.by_line, M.by_name, M.stepping = {}, {}, nil, nil, nil
  M.after_steps(nil)
  M.set_errors(nil)
  accel.console.look.nan(false)
  M.hook()
end

return M
