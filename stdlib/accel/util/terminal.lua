--- What the terminal can show: asked by the progress bar and the plot.
local accel = require "accel"

local M = {}

local function env(name)
  local value = os.getenv(name)
  return value ~= "" and value or nil
end

--- Whether characters beyond ASCII may be written, by the locale of the environment.
function M.utf8()
  local locale = env "LC_ALL" or env "LC_CTYPE" or env "LANG" or ""
  return locale:lower():find("utf%-?8") ~= nil
end

--- Whether a file descriptor is a terminal that can redraw a line; not in CI or under TERM=dumb.
function M.interactive(fd)
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

--- Whether colours may be written to fd: ACCEL_COLOR=always or never decides; else FORCE_COLOR says yes,
--- NO_COLOR no (where set to anything), and without them a terminal gets colours.
function M.colour(fd)
  local choice = parameter "ACCEL_COLOR"
  if choice ~= "auto" then return choice == "always" end
  if env "FORCE_COLOR" then return true end
  return not env "NO_COLOR" and M.interactive(fd)
end

return M
