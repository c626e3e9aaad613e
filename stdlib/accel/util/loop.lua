--- For iterators that have to know when the `for` around them is left: by break, by an error, at its end. Used by
--- loaders, whose pass is over then.
---
--- Lua closes the fourth value of a generic `for`. But in Lua 5.4.0 to 5.4.4, a break out of a block whose locals are
--- closed or captured forgets it, and closes an unrelated value much later. There no fourth value is returned. Instead,
--- the stack is inspected on demand to see whether the loop still runs.
---
---   function Loader:__call()
---     local pass = {}
---     local function step() pass.watch = pass.watch or loop.watch(step) ... end
---     return loop.iterator(step, finish)
---   end
---   if pass.watch and loop.left(pass.watch) then finish() end    -- before the state of the pass is used
local M = {}

local function closes_on_break()
  local closed, now = false, nil
  local value = setmetatable({}, { __close = function() closed = true end })
  for i in function(_, i) return (i or 0) + 1 end, nil, nil, value do
    local function captures() return i end
    if captures() > 1 then break end
  end
  now = closed
  return now
end

--- Whether the fourth value of a `for` is closed at every break. In a coroutine, whose stack is given up.
M.closes = select(2, coroutine.resume(coroutine.create(closes_on_break))) == true

--- The values for a generic `for`: step, and, if Lua closes it, a value that calls finish(failure).
---@param step fun(): any
---@param finish fun(failure: any)
function M.iterator(step, finish)
  if not M.closes then return step end
  return step, nil, nil, setmetatable({}, { __close = function(_, failure) finish(failure) end })
end

local STATE <const>, DEPTH <const> = "(for state)", 8
local drivers = setmetatable({}, { __mode = "k" })

--- Records that `outer` is the iterator in the `for` and calls `step`: for iterators around others.
---@param step any
---@param outer any
function M.drive(step, outer) drivers[step] = outer end

--- Called by step: the loop that calls it. false if Lua reports the end, or if there is no loop: then nothing is known.
---@param step fun(): any
---@return table|false
function M.watch(step)
  if M.closes then return false end
  while drivers[step] do step = drivers[step] end
  for level = 3, DEPTH do
    local info = debug.getinfo(level, "f")
    if not info then break end
    local i = 1
    while true do
      local name, value = debug.getlocal(level, i)
      if not name then break end
      if name == STATE and value == step then
        return { step = step, local_index = i, func = info.func, thread = coroutine.running() }
      end
      i = i + 1
    end
  end
  return false
end

--- Whether the loop that was watched is over. One that waits in a coroutine is not.
---@param watch table
---@return boolean
function M.left(watch)
  local thread = watch.thread
  if coroutine.status(thread) == "dead" then return true end
  local level = thread == coroutine.running() and 2 or 0
  while true do
    local info = debug.getinfo(thread, level, "f")
    if not info then return true end
    if info.func == watch.func then
      local name, value = debug.getlocal(thread, level, watch.local_index)
      if name == STATE and value == watch.step then return false end
    end
    level = level + 1
  end
end

return M
