-- Evaluates the inputs of a prompt, in an environment: the session's own names, over the locals of the function at
-- which a script stopped, over the globals. It does not depend on terminals: results are values and text. Used by
-- prompt.lua, server.lua.
local accel = ...

local Session = {}
Session.__index = Session

--- A session. frames: of a script stopped here (frames.lua), nil: none. kept: the names of an earlier session.
---@param frames? table
---@param kept? table
function Session.new(frames, kept)
  local self = setmetatable({ kept = kept or {}, frames = frames, predefined = {}, before = {} }, Session)
  for name in next, _G do self.before[name] = true end
  self.env = frames and self:frame_env() or setmetatable(self.kept, { __index = _G, __newindex = _G })
  self.guard = accel.console.session()
  self:wrap_coroutines()
  return self
end

-- Globals may be strict: their error points at the input's line, not ours, and names a caller with a local of the name.
local function global(name, frames)
  local value = rawget(_G, name)
  if value ~= nil then return value end
  local ok, result = pcall(function() return _G[name] end)
  if ok then return result end
  local elsewhere = type(name) == "string" and frames:elsewhere(name)
  local message = tostring(result):gsub("^lua/repl/[%w_]+%.lua:%d+: ", "")
  if elsewhere then message = message:gsub(" %(did you mean.*$", "") .. ("; a local of that name is at %s"):format(elsewhere) end
  error(message, 3)
end

function Session:frame_env()
  local frames, kept = self.frames, self.kept
  return setmetatable({}, {
    __index = function(_, name)
      local value = rawget(kept, name)
      if value ~= nil then return value end
      local found, there = frames:get(name)
      if found then return there end
      local result = global(name, frames) -- no tail call: it counts levels
      return result
    end,
    __newindex = function(_, name, value)
      if rawget(kept, name) ~= nil then
        self:remember(function(old) kept[name] = old end, kept[name])
        kept[name] = value
        return
      end
      local found, old = frames:get(name)
      if found then
        self:remember(function(was) frames:set(name, was) end, old)
        frames:set(name, value)
      else
        self:remember(function(was) rawset(_G, name, was) end, rawget(_G, name));
        (accel.global or rawset)(name, accel.global and value or nil, value)
      end
    end,
  })
end

-- Reverts an assignment of the last input.
function Session:remember(restore, old)
  self.assigned = self.assigned or {}
  table.insert(self.assigned, function() restore(old) end)
end

--- Reverts the last input's assignments to locals, upvalues, globals and names of the session (not its changes to tensors and tables).
--- Returns how many assignments that were.
---@return integer
function Session:undo()
  local list = self.assigned or {}
  for i = #list, 1, -1 do list[i]() end
  self.assigned = nil
  return #list
end

--- The value of a name as inputs see it, nil if there is none, and whether it was made here or in the script.
---@return any value
---@return boolean own
function Session:lookup(name)
  local kept = rawget(self.kept, name)
  if kept ~= nil then return kept, not self.predefined[name] end
  if self.frames then
    local found, value = self.frames:get(name)
    if found then return value, true end
  end
  return rawget(_G, name), not self.before[name]
end

-- Ctrl-C has to know which coroutine runs.
function Session:wrap_coroutines()
  local guard, resume, wrap = self.guard, coroutine.resume, coroutine.wrap
  self.coroutines = { resume = resume, wrap = wrap }
  local function finish(before, ...)
    guard:running(before)
    return ...
  end
  function coroutine.resume(co, ...)
    if type(co) ~= "thread" then return resume(co, ...) end
    return finish(guard:running(co), resume(co, ...))
  end
  local function results(co, ok, ...)
    if ok then return ... end
    if coroutine.status(co) == "dead" then coroutine.close(co) end
    error((...), 0)
  end
  function coroutine.wrap(f)
    local co = coroutine.create(f)
    return function(...) return results(co, coroutine.resume(co, ...)) end
  end
end

function Session:close()
  if not self.guard then return end
  coroutine.resume, coroutine.wrap = self.coroutines.resume, self.coroutines.wrap
  self.guard:close()
  self.guard = nil
end
Session.__close = Session.close

-- ---- text to code ----

-- A `local` at the start of an input would be gone with its line: its names belong to the session. `= x`, a habit of older Lua, is x.
local function unlocal(text)
  text = text:gsub("^(%s*)=%f[^=]", "%1 ")
  local head, name = text:match "^(%s*local)%s+function%s+([%a_][%w_]*)"
  if head then return (" "):rep(#head) .. text:sub(#head + 1), { name } end
  local list
  head, list = text:match "^(%s*local)%s+([%a_][%w_%s,]*)=[^=]"
  if not head then
    head, list = text:match "^(%s*local)%s+([%a_][%w_ \t,]*)$"
    if head and list:find "[%w_]%s+[%w_]" then head = nil end -- more than names
  elseif list:find "[%w_]%s+[%w_]" then
    head = nil
  end
  if not head then return text, {} end
  local names = {}
  for word in list:gmatch "[%a_][%w_]*" do names[#names + 1] = word end
  local rest = text:sub(#head + 1)
  if not rest:find "=" then rest = rest .. " = nil" end
  return (" "):rep(#head) .. rest, names
end

local function load_at(text, line, env, name)
  return load(("\n"):rep(line - 1) .. text .. "\n", "=" .. (name or "stdin"), "t", env) -- a short string ends with its line
end

--- The text without the `local` of its first statement.
---@return string
function Session.unlocal(text) return (unlocal(text)) end

--- Code of an input whose first line has this number, in errors as NAME:LINE ("stdin"). nil, the error, and whether more lines would
--- complete it.
---@return function? code an expression's gives `true` before its values
---@return string|boolean? why or whether it is an expression
---@return boolean? incomplete
function Session.compile(text, line, env, name)
  local f, expression_why = load_at("return true, " .. text, line, env, name) -- no tail call: the line is in tracebacks
  if f then return f, true end
  local why
  f, why = load_at(text, line, env, name)
  if f then return f, false end
  if expression_why:find "<eof>$" and not text:match "^%s*=" then why = expression_why end
  return nil, why, why:find "<eof>$" ~= nil
end

--- Whether more lines are needed.
function Session.incomplete(text)
  local f, _, more = Session.compile((unlocal(text)), 1, {})
  return not f and more == true
end

-- ---- running ----

-- Traceback entries above the input are the prompt's own.
local function cut(trace)
  local lines, deep = {}, 0
  for line in (trace .. "\n"):gmatch "([^\n]*)\n" do
    if line:find "^  lua/repl" or line:find "^  accel%-run:1:" then break end
    lines[#lines + 1] = line
    if line:find "^  %S" then deep = deep + 1 end
    if line:find "^  stdin:%d+: in main chunk" or line:find "^  In%[%d+%]:%d+: in main chunk" then break end
  end
  return table.concat(lines, "\n"), deep
end

local function on_error(err)
  local ok, text = pcall(tostring, err)
  local trace, deep = cut(accel.traceback(err, 2))
  local message = trace:match "^(.-)\nstack traceback:" or trace -- with the traceback's suggestions for misspelt names
  return { value = err, message = ok and message or "(an error that cannot be printed)", trace = trace,
    deep = deep > 1, text = text }
end

-- The program must end: the error that stopped the input stops the prompt as well.
local function ends(err)
  local is_interrupt = type(err) == "table" and err.code == "interrupted"
  if not is_interrupt then return false end
  return accel.interrupted() or tostring(err.message):find "interrupted by signal" ~= nil
end

--- Runs a function: {ok, n, [1..n], seconds}, or {ok = false, message, trace, deep}. interrupted: by Ctrl-C. skip:
--- number of results to drop.
function Session:run(skip, f, ...)
  local began = accel.clock()
  self.guard:begin()
  local r = table.pack(xpcall(f, on_error, ...))
  local presses = self.guard:finish()
  local seconds = accel.clock() - began
  if r[1] then
    return table.move(r, 2 + skip, r.n, 1, { ok = true, n = r.n - 1 - skip, seconds = seconds })
  end
  local failure = r[2]
  if type(failure) ~= "table" then failure = { message = tostring(failure), trace = tostring(failure) } end
  if presses == 0 and ends(failure.value) then error(failure.value, 0) end
  failure.ok, failure.seconds, failure.interrupted = false, seconds, presses > 0
  self.failure = failure
  return failure
end

--- Runs an input n times: {ok, seconds}, or as in run. The code is compiled once.
function Session:times(text, line, n)
  local f, why = Session.compile((unlocal(text)), line, self.env)
  if not f then return { ok = false, message = why, trace = why } end
  local varargs = self.frames and self.frames:varargs() or { n = 0 }
  return self:run(0, function()
    for _ = 1, n do f(table.unpack(varargs, 1, varargs.n)) end
    return true
  end)
end

--- Evaluates an input whose first line has this number. Results as in run. incomplete: its end is missing.
function Session:evaluate(text, line)
  self.assigned = nil
  local code, names = unlocal(text)
  local f, why, more = Session.compile(code, line, self.env, self.name)
  if not f then
    local failure = { ok = false, message = why, trace = why, incomplete = more }
    if not more then self.failure = failure end
    return failure
  end
  local made, skip = {}, why and 1 or 0
  for _, name in ipairs(names) do -- assignments then find them
    if rawget(self.kept, name) == nil then
      local there = rawget(_G, name)
      if self.frames then
        local found, value = self.frames:get(name)
        if found then there = value end
      end
      if there == nil then there = false end
      rawset(self.kept, name, there)
      made[#made + 1] = name
    end
  end
  local r
  if self.frames then
    local varargs = self.frames:varargs()
    r = self:run(skip, f, table.unpack(varargs, 1, varargs.n))
  else
    r = self:run(skip, f)
  end
  for _, name in ipairs(made) do
    local now = rawget(self.kept, name)
    if not r.ok and now == false then rawset(self.kept, name, nil)
    elseif now == nil and accel.global then accel.global(name, rawget(_G, name)) end -- declared, and nil
  end
  if r.ok and r.n > 0 and r[1] ~= nil then rawset(self.kept, "_", r[1]) end
  return r
end

return Session
