--- One question of a program on the terminal: a list to go through by the arrow keys, and a line that can be typed instead. Typed text
--- selects the choice that begins with it. Called by accel.cli.config_ask.
local accel = require "accel"

local M = {}

---@class accel.cli.Menu
---@field keys any of accel.console.keys
---@field drawn integer lines on the screen of the question that is asked
local Menu = {}
Menu.__index = Menu

--- A menu, which must be closed. nil if stdin and stderr are not a terminal that supports single keys.
---@return accel.cli.Menu?
function M.open()
  local keys = accel.isatty(2) and accel.console.keys()
  return keys and setmetatable({ keys = keys, drawn = 0 }, Menu) or nil
end

function Menu:close() self.keys:close() end
Menu.__close = Menu.close

--- The first n columns of a text, by characters.
local function cut(text, n)
  local count = utf8.len(text)
  if not count or count <= n then return text end
  return text:sub(1, utf8.offset(text, n + 1) - 1)
end

--- Its last n.
local function tail(text, n)
  local count = utf8.len(text)
  if not count or count <= n then return text end
  return text:sub(utf8.offset(text, count - n + 1))
end

--- The choices that fit on the screen, the selected one among them: first and last.
local function window(n, selected, rows)
  local room = math.max(3, rows - 4)
  if n <= room then return 1, n end
  local first = math.min(math.max(1, selected - room // 2), n - room + 1)
  return first, first + room - 1
end

function Menu:draw(q)
  local columns, rows = accel.term_width()
  columns, rows = columns or 80, rows and rows > 0 and rows or 24
  local lines = {}
  if q.choices then
    local first, last = window(#q.choices, q.selected, rows)
    for i = first, last do
      local number = q.numbers and ("%2d  "):format(i - 1) or ""
      lines[#lines + 1] = cut((i == q.selected and "> " or "  ") .. number .. q.choices[i], columns - 1)
    end
  end
  local prompt = cut(("[%s] "):format(q.choices and q.choices[q.selected] or q.shown), math.max(columns // 2, 4))
  lines[#lines + 1] = prompt .. tail(q.typed, math.max(columns - 1 - #prompt, 1))
  self:clear()
  self.drawn = #lines
  io.stderr:write(table.concat(lines, "\n"))
end

--- Clears the question's lines. The cursor returns to their beginning.
function Menu:clear()
  if self.drawn > 1 then io.stderr:write(("\27[%dA"):format(self.drawn - 1)) end
  io.stderr:write "\r\27[J"
  self.drawn = 0
end

--- Goes to the choice that the typed text begins, or numbers.
local function follow(q)
  local wanted, number = q.typed:lower(), q.numbers and math.tointeger(tonumber(q.typed))
  if not q.choices or wanted == "" then return end
  for i, word in ipairs(q.choices) do
    if word:lower():sub(1, #wanted) == wanted or i - 1 == number then
      q.selected = i
      return
    end
  end
end

local on = {}

function on.up(q)
  if q.choices then q.selected, q.typed = (q.selected - 2) % #q.choices + 1, "" end
end

function on.down(q)
  if q.choices then q.selected, q.typed = q.selected % #q.choices + 1, "" end
end

function on.home(q)
  if q.choices then q.selected, q.typed = 1, "" end
end

on["end"] = function(q)
  if q.choices then q.selected, q.typed = #q.choices, "" end
end

function on.tab(q)
  if q.choices then q.typed = q.choices[q.selected] end
end

function on.backspace(q)
  q.typed = q.typed:sub(1, (utf8.offset(q.typed, -1) or 1) - 1)
  follow(q)
end

function on.kill(q) q.typed = "" end

--- Asks one question, which the caller has written. how: choices (texts), selected (of them), numbers (they can be typed), shown (the
--- default of a question without choices). Returns the text: typed text, otherwise the choice, otherwise "". Or returns nil and "back",
--- "break" (Ctrl-C) or "eof".
---@param how {choices: string[]?, selected: integer?, numbers: boolean?, shown: string?}
---@return string? text
---@return string? why
function Menu:ask(how)
  local q = { choices = how.choices, numbers = how.numbers, selected = how.selected or 1, shown = how.shown or "", typed = "" }
  while true do
    self:draw(q)
    local key = self.keys:read()
    if key == "enter" then
      local text = q.typed ~= "" and q.typed or (q.choices and q.choices[q.selected]) or ""
      self:clear()
      io.stderr:write("  ", text ~= "" and text or q.shown, "\n")
      return text
    elseif key == "break" or (key == "eof" and q.typed == "") or ((key == "left" or key == "escape") and q.typed == "") then
      self:clear()
      return nil, (key == "left" or key == "escape") and "back" or key
    elseif key == "escape" then
      q.typed = ""
    elseif key == "redraw" then
      self.drawn = 0
    elseif on[key] then
      on[key](q)
    elseif not key:find "^%l%l" and not key:find "%c" and utf8.len(key) then
      q.typed = q.typed .. key
      follow(q)
    end
  end
end

return M
