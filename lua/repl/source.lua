-- Lines of a script's files, for prompts: the line at which it stands, and those around it.
local accel = ...

local M = {}

local AROUND <const> = 5

-- The lines of a chunk "@train.lua". nil: it is not a file, or cannot be read.
local function lines_of(path)
  local file <close> = path:sub(1, 1) == "@" and io.open(path:sub(2), "rb") or nil
  if not file then return nil end
  local lines = {}
  for line in file:lines() do lines[#lines + 1] = accel.console.visible((line:gsub("\t", "  "))) end
  return lines
end

--- "  12  loss:backward()", the line of a frame (frames.lua), cut to a width. nil: there is none.
---@return string?
function M.line(frame, width)
  local lines = lines_of(frame.path)
  local text = lines and lines[frame.line]
  if not text then return nil end
  text = ("  %d  %s"):format(frame.line, (text:gsub("^%s+", "")))
  return #text > (width or 80) and text:sub(1, (width or 80) - 3) .. "..." or text
end

--- The lines from `first` to `last` with their numbers, "->" at the frame's. nil, why.
---@return string[]?
---@return string? why
function M.list(frame, first, last, width)
  local lines = lines_of(frame.path)
  if not lines then return nil, ("the text of %s cannot be read"):format(frame.source) end
  first = first or frame.line - AROUND
  last = last or first + 2 * AROUND
  local out = {}
  for i = math.max(1, first), math.min(#lines, last) do
    local text = ("%s %4d  %s"):format(i == frame.line and "->" or "  ", i, lines[i])
    out[#out + 1] = #text > width and text:sub(1, width - 3) .. "..." or text
  end
  if #out == 0 then return nil, ("%s has %d lines"):format(frame.source, #lines) end
  return out
end

return M
