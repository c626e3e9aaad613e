--- How accel-run config asks a question: a menu on a terminal, otherwise plain lines. Gives the `ask` that
--- accel.config.questions wants.
local menu = require "accel.cli.menu"
local questions = require "accel.config.questions"

local M = {}

--- The text of a default.
---@param value any
---@return string
function M.shown(value)
  if value == nil then return "none" end
  if type(value) == "boolean" then return value and "yes" or "no" end
  if type(value) ~= "table" then return tostring(value) end
  local words = {}
  for i, word in ipairs(value) do words[i] = M.shown(word) end
  return table.concat(words, ",")
end

local function is_number(how) return how.choices and math.type(how.choices[1]) == "integer" end

local function head(question, how)
  if how.why then io.stderr:write("  ", ("that is not %s\n"):format(how.why)) end
  io.stderr:write("\n", question, "\n")
end

--- One question by lines. You answer a choice with its word or its number. "<" goes back.
local function by_line(question, how)
  head(question, how)
  if how.choices and not is_number(how) then
    for i, word in ipairs(how.choices) do
      io.stderr:write(("  %s %d  %s\n"):format(word == how.default and "*" or " ", i - 1, word))
    end
  end
  io.stderr:write(("[%s] "):format(M.shown(how.default)))
  local line = io.read "l"
  if not line then return nil end
  line = line:match "^%s*(.-)%s*$"
  if line == "<" then return questions.BACK end
  return line
end

--- The texts of a question's choices, and the place of the default.
local function texts_of(how)
  local list, at = {}, 1
  if how.kind == "bool" or how.kind == "switch" then return { "yes", "no" }, how.default and 1 or 2 end
  if not how.choices then return nil end
  for i, word in ipairs(how.choices) do
    list[i] = tostring(word)
    if word == how.default then at = i end
  end
  return list, at
end

--- ask, and the object to close at the end. Ctrl-C ends the program with the status of an interrupt.
---@return fun(question: string, how: table): any ask
---@return any closes
function M.open()
  local m = menu.open()
  if not m then
    io.stderr:write "An empty line takes the default in brackets, < goes back one question.\n"
    return by_line, setmetatable({}, { __close = function() end })
  end
  io.stderr:write "Choose with up and down, or type the answer. Enter takes it, left returns to the previous question.\n"
  return function(question, how)
    head(question, how)
    local choices, selected = texts_of(how)
    local text, why = m:ask { choices = choices, selected = selected, numbers = how.choices and not is_number(how) and how.kind ~= "bool",
      shown = M.shown(how.default) }
    if why == "back" then return questions.BACK end
    if why == "break" then
      m:close()
      io.stderr:write "\naccel-run config: stopped: nothing was written\n"
      os.exit(130, true)
    end
    return text and (text:match "^%s*(.-)%s*$" == "<" and questions.BACK or text)
  end, m
end

return M
