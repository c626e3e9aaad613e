-- Inputs from a prompt or from a script on standard input: whole chunks over as many lines as they need, commands
-- (`:name`), the history. Used by prompt.lua and front.lua.
local accel = ...
local Session = accel.host_chunk "repl/session"
local commands = accel.host_chunk "repl/commands"

local Reader = {}
Reader.__index = Reader

local HISTORY_LINES, HISTORY_MOST = 1000, 3000

local function history_path()
  local state = os.getenv "XDG_STATE_HOME"
  if state and state:sub(1, 1) == "/" then return state .. "/accel/history" end
  local home = os.getenv "HOME"
  return home and home:sub(1, 1) == "/" and home .. "/.local/state/accel/history" or nil
end

local function editor_kind()
  for _, p in ipairs((accel.params())) do
    if p.name == "ACCEL_EDITOR" then return p.value end
  end
end

---@class repl.ReaderOptions
---@field complete fun(line: string, word: string): string[]
---@field prompt fun(): string
---@field channels? table of other processes, whose
---@field on_ready? fun(i: integer) is called when they send
---@field over? fun(): boolean after that: whether there is nothing more to read for
---@field seconds? fun(): number? after which
---@field on_time? fun() is called

---@param o repl.ReaderOptions
function Reader.new(o)
  local self = setmetatable({ o = o, line = 0, interactive = accel.isatty(0) }, Reader)
  self.editor = accel.console.editor(o.complete, editor_kind())
  if self.interactive then self:load_history() end
  return self
end

function Reader:close() self.editor:close() end
Reader.__close = Reader.close

function Reader:load_history()
  self.history = history_path()
  local file <close> = self.history and io.open(self.history, "rb")
  if not file then return end
  local lines = {}
  for line in file:lines() do lines[#lines + 1] = line end
  for i = math.max(1, #lines - HISTORY_LINES + 1), #lines do self.editor:add(lines[i]) end
  self.last = lines[#lines]
  if #lines > HISTORY_MOST then
    accel.write_file(self.history, table.concat(lines, "\n", #lines - HISTORY_LINES + 1) .. "\n")
  end
end

function Reader:remember(line)
  if not self.interactive or line:match "^%s*$" or line == self.last then return end
  self.last = line
  self.editor:add(line)
  if self.history then accel.console.append(self.history, line:gsub("\n", " ") .. "\n") end
end

-- An input of several lines is one line of the history, to be edited as a whole. With a comment or a long text in it, its lines stay.
function Reader:remember_all(lines)
  local text = table.concat(lines, "\n")
  if #lines > 1 and not text:find "%-%-" and not text:find "%[=*%[" then lines = { (table.concat(lines, " "):gsub("%s+$", "")) } end
  for _, line in ipairs(lines) do self:remember(line) end
end

--- The next input and the number of its first line. nil, "eof" or "break" (Ctrl-C at the prompt).
function Reader:read()
  local o, lines, typed = self.o, {}, {}
  while true do
    local prompt = o.prompt()
    if #lines > 0 then prompt = (" "):rep(math.max(0, #prompt - 3)) .. ">> " end
    local what, value = self.editor:wait(prompt, o.channels, o.seconds and o.seconds() or nil)
    if what == "line" then
      self.line = self.line + 1
      typed[#typed + 1] = value
      if #lines == 0 then value = commands.normal(value) end
      if #lines > 0 or not value:match "^%s*$" then lines[#lines + 1] = value end
      local text = table.concat(lines, "\n")
      local first = self.line - #lines + 1
      if #lines == 1 and value:match "^%s*[:?]" and not commands.takes_input(value)
        and not commands.addressed(value) or #lines == 1 and commands.is_question(value) then
        self:remember_all(typed)
        return value:match "^%s*(.-)%s*$", first
      end
      local _, code = commands.addressed(text)
      if #lines == 0 then
        typed = {}
      elseif not Session.incomplete((code:gsub("^:timei?t?%s+", ""))) then
        self:remember_all(typed)
        return text, first
      end
    elseif what == "eof" then
      if #lines > 0 and not self.interactive then return table.concat(lines, "\n"), self.line - #lines + 1 end
      return nil, "eof"
    elseif what == "break" then
      self:remember_all(typed)
      return nil, "break"
    elseif what == "ready" and o.on_ready then
      o.on_ready(value)
      if o.over and o.over() then
        self.editor:hide()
        return nil, "eof"
      end
    elseif what == "time" and o.on_time then
      o.on_time()
    end
  end
end

return Reader
