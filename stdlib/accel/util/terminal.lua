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

--- Whether colours may be written to fd.
function M.colour(fd)
  if env "NO_COLOR" then return false end
  return env "FORCE_COLOR" ~= nil or M.interactive(fd)
end

return M
