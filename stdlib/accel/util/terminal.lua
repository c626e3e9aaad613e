--- The terminal's capabilities, for the progress bar and the plot.
local accel = require "accel"

local M = {}

--- Text from others, made safe for a terminal: control characters, invalid UTF-8 and direction changes appear as \x1b and \u202e.
--- lines: keep newlines and tabs, for messages. Names have none.
---@type fun(text: string, lines?: boolean): string
M.visible = accel.console.visible

--- A message, which may contain names: lines after its first one are indented, so that none looks like a separate
--- message.
---@param text string
---@return string
function M.message(text) return (M.visible(text, true):gsub("\n(%S)", "\n  %1")) end

--- string.format whose texts are made safe, each in one line, for output with names.
---@param fmt string
---@param ... any
---@return string
function M.format(fmt, ...)
  local args = table.pack(...)
  for i = 1, args.n do
    if type(args[i]) == "string" then args[i] = M.visible(args[i]) end
  end
  return fmt:format(table.unpack(args, 1, args.n))
end

local function env(name)
  local value = os.getenv(name)
  return value ~= "" and value or nil
end

--- Whether characters beyond ASCII may be written, by the locale of the environment.
function M.utf8()
  local locale = env "LC_ALL" or env "LC_CTYPE" or env "LANG" or ""
  return locale:lower():find("utf%-?8") ~= nil
end

--- Whether a file descriptor is a terminal that can redraw a line, or a notebook's output, which can as well. false in CI or under
--- TERM=dumb.
---@param fd integer file descriptor
function M.interactive(fd)
  if accel.console.notebook then return true end
  if env "CI" or os.getenv("TERM") == "dumb" then return false end
  return accel.isatty(fd) and true or false
end

--- Columns: $COLUMNS, else the terminal's width, else 80.
function M.width()
  local columns = math.tointeger(tonumber(env "COLUMNS"))
  if columns and columns > 0 then return columns end
  local width = accel.term_width()
  return width and width > 0 and width or 80
end

local function parameter(name)
  for _, p in ipairs(accel.params()) do
    if p.name == name then return p.value end
  end
end

--- Whether colours may be written to fd: ACCEL_COLOR=always or never decides. Otherwise FORCE_COLOR enables them,
--- NO_COLOR disables them (if set to anything), and without them a terminal gets colours.
---@param fd integer file descriptor
function M.colour(fd)
  local choice = parameter "ACCEL_COLOR"
  if choice ~= "auto" then return choice == "always" end
  if env "FORCE_COLOR" then return true end
  return not env "NO_COLOR" and not accel.console.notebook and M.interactive(fd)
end

return M
