-- The functions of a script stopped at a prompt: their positions, locals and upvalues, read and written. A frame is
-- known by its distance from the bottom of its thread's stack, which stays while functions above it come and go.
local _, lib_dir = ...

local Frames = {}
Frames.__index = Frames

-- Frames of the running thread, as its caller counts them: the greatest level there is.
local function own_depth()
  local low, high = 1, 2
  while debug.getinfo(high + 1, "l") do low, high = high, high * 2 end
  while high - low > 1 do
    local middle = (low + high) // 2
    if debug.getinfo(middle + 1, "l") then low = middle else high = middle end
  end
  return low
end

local function depth_of(thread)
  local n = 0
  while debug.getinfo(thread, n, "l") do n = n + 1 end
  return n
end

-- The host's own, which nobody sees.
local function is_host(source)
  return source:find("^=lua/") ~= nil
end

--- A function of a required module.
function Frames.is_library(source)
  return lib_dir ~= nil and source:sub(1, #lib_dir) == lib_dir
end

--- The frames from `level` of the caller on downwards, the first of them selected.
function Frames.capture(level)
  local thread = coroutine.running()
  local depth = own_depth() -- level 1: this function
  local self = setmetatable({ thread = thread, list = {}, at = 1 }, Frames)
  for l = level + 1, depth do
    local info = debug.getinfo(l, "Slnf")
    if info.what ~= "C" and not is_host(info.source) and info.currentline > 0 then
      self.list[#self.list + 1] = { from_bottom = depth - l, func = info.func, line = info.currentline,
        source = info.short_src, what = info.what, name = info.name, namewhat = info.namewhat,
        defined = info.linedefined, library = Frames.is_library(info.source),
        path = info.source }
      self.own = self.own or not self.list[#self.list].library
    end
  end
  return self
end

-- The level of the selected frame as seen by the function that calls this one's caller's ... See `with`.
local function locals_of(self, frame, visit)
  if coroutine.running() == self.thread then
    local level = own_depth() - frame.from_bottom
    for i = 1, 250 do
      local name, value = debug.getlocal(level, i)
      if not name then break end
      visit(i, name, value)
    end
    return function(i, value) debug.setlocal(own_depth() - frame.from_bottom, i, value) end
  end
  local level = depth_of(self.thread) - 1 - frame.from_bottom
  for i = 1, 250 do
    local name, value = debug.getlocal(self.thread, level, i)
    if not name then break end
    visit(i, name, value)
  end
  return function(i, value) debug.setlocal(self.thread, level, i, value) end
end

function Frames:selected() return self.list[self.at] end

--- How far above the bottom of the running thread the function at `level` of the caller is.
function Frames.height(level) return own_depth() - (level + 1) end

--- Selects the first frame of the script itself, if there is one: a step is deep inside the library.
function Frames:select_own()
  for i, frame in ipairs(self.list) do
    if not frame.library then
      self.at = i
      return
    end
  end
end

--- The place of the last caller that is known.
function Frames:last() return Frames.place(self.list[#self.list]) end

--- "train.lua:12"
function Frames.place(frame) return ("%s:%d"):format(frame.source, frame.line) end

function Frames.title(frame)
  if frame.what == "main" then return Frames.place(frame) .. ": in main chunk" end
  local name = frame.name and ("%s '%s'"):format(frame.namewhat ~= "" and frame.namewhat or "function", frame.name)
    or ("function <%s:%d>"):format(frame.source, frame.defined)
  return Frames.place(frame) .. ": in " .. name
end

-- The location of a name in the selected frame: "local", its number, its value, or "upvalue", ..., or nil. And how to
-- set it.
local function find(self, name)
  local frame, index, found = self:selected(), nil, nil
  local set = locals_of(self, frame, function(i, n, value)
    if n == name then index, found = i, value end -- the last one hides those before
  end)
  if index then return "local", index, found, set end
  for i = 1, 255 do
    local n, value = debug.getupvalue(frame.func, i)
    if not n then return nil end
    if n == name and n ~= "_ENV" then return "upvalue", i, value end
  end
end

--- Whether the frame has the name, and its value.
function Frames:get(name)
  if type(name) ~= "string" then return false end
  local kind, _, value = find(self, name)
  return kind ~= nil, value
end

--- Sets it. false: there is none.
function Frames:set(name, value)
  local kind, index, _, set = find(self, name)
  if kind == "local" then set(index, value) end
  if kind == "upvalue" then debug.setupvalue(self:selected().func, index, value) end
  return kind ~= nil
end

--- If another frame has a local of this name: the command to get there, ":up 2 (train.lua:12)". nil: none has.
function Frames:elsewhere(name)
  local at, found = self.at, nil
  for i = 1, #self.list do
    self.at = i
    if not found and i ~= at and find(self, name) == "local" then
      local n = math.abs(i - at)
      found = (":%s%s (%s)"):format(i > at and "up" or "down", n > 1 and " " .. n or "", Frames.place(self.list[i]))
    end
  end
  self.at = at
  return found
end

--- List of {name =, value =, kind = "local" | "upvalue"}, those that are hidden by others left out.
function Frames:variables()
  local frame, list, at = self:selected(), {}, {}
  locals_of(self, frame, function(_, name, value)
    if name:sub(1, 1) == "(" then return end
    if not at[name] then
      at[name] = #list + 1
      list[at[name]] = { name = name, kind = "local" }
    end
    list[at[name]].value = value
  end)
  for i = 1, 255 do
    local name, value = debug.getupvalue(frame.func, i)
    if not name then break end
    if name ~= "_ENV" and name ~= "" and not at[name] then
      list[#list + 1] = { name = name, value = value, kind = "upvalue" }
    end
  end
  return list
end

--- The value of `...` there.
function Frames:varargs()
  local frame, list = self:selected(), { n = 0 }
  local level = coroutine.running() == self.thread and own_depth() - frame.from_bottom
  for i = 1, 250 do
    local name, value
    if level then
      name, value = debug.getlocal(level, -i)
    else
      name, value = debug.getlocal(self.thread, depth_of(self.thread) - 1 - frame.from_bottom, -i)
    end
    if not name then break end
    list[i], list.n = value, i
  end
  return list
end

-- Functions of the library are skipped if there are others, unless the user selected one of them.
local function is_shown(self, i)
  return not self.list[i].library or not self.own or i == self.at
end

--- Selects the frame n further down (towards the main chunk), or up. false: there is none.
function Frames:move(n)
  local to, sign = self.at, n < 0 and -1 or 1
  for _ = 1, math.abs(n) do
    repeat to = to + sign until not self.list[to] or is_shown(self, to)
  end
  if not self.list[to] then return false end
  self.at = to
  return true
end

--- Lines of text, the selected frame marked. all: functions of the library as well.
---@param all? boolean
function Frames:lines(all)
  local lines = {}
  for i, frame in ipairs(self.list) do
    if all or is_shown(self, i) then lines[#lines + 1] = ("%s %s"):format(i == self.at and "*" or " ", Frames.title(frame)) end
  end
  return lines
end

return Frames
