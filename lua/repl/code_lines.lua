-- The lines of a text that hold code, at which a hook for lines can stop: read from the compiled chunk, since Lua shows them of functions
-- that exist only. Used by places.lua.
local M = {}

local HEAD <const> = 4 + 1 + 1 + 6 + 3 + 8 + 8 -- signature, version, format, data, three sizes, an integer and a number to compare
local SHORT <const>, LONG <const>, FLOAT <const>, INTEGER <const> = 4, 20, 19, 3 -- types of constants with bytes after them
local ABSOLUTE <const> = 128 -- in place of a difference of lines

-- Adds the lines of the function at `at` to the set. Returns the position after it.
local function read(dump, at, lines)
  local function int()
    local n = 0
    while true do
      local b = dump:byte(at)
      at, n = at + 1, n << 7 | b & 127
      if b & 128 ~= 0 then return n end
    end
  end
  local function text()
    local n = int()
    at = at + math.max(0, n - 1)
  end
  text()
  local defined = int()
  int()
  local vararg = dump:byte(at + 1) ~= 0
  at = at + 3
  at = at + 4 * int()
  for _ = 1, int() do
    local kind = dump:byte(at)
    at = at + 1
    if kind == SHORT or kind == LONG then text()
    elseif kind == FLOAT or kind == INTEGER then at = at + 8 end
  end
  at = at + 3 * int()
  for _ = 1, int() do at = read(dump, at, lines) end
  local n = int()
  local first, exact = at, {}
  at = at + n
  for _ = 1, int() do
    local pc = int()
    exact[pc] = int()
  end
  for _ = 1, int() do
    text()
    int()
    int()
  end
  for _ = 1, int() do text() end
  local line = defined
  for pc = 0, n - 1 do
    local by = dump:byte(first + pc)
    line = by == ABSOLUTE and exact[pc] or line + (by < 128 and by or by - 256)
    if pc > 0 or not vararg then lines[line] = true end -- the first instruction of a vararg function belongs to no line
  end
  return at
end

--- The set of the lines with code. nil: the text does not compile, or this Lua has another format.
---@param text string
---@return table<integer, true>?
function M.of(text)
  local f = load(text:gsub("^#[^\n]*", ""), "=code", "t", {})
  if not f then return nil end
  local dump, lines = string.dump(f), {}
  if dump:sub(1, 5) ~= "\27Lua\x54" then return nil end
  local ok = pcall(read, dump, HEAD + 2, lines) -- one byte: the number of upvalues
  return ok and lines or nil
end

return M
