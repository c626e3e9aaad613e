-- Cells of a notebook as inputs of a prompt: a cell is a script, whose names stay as at the prompt, and whose last expression is shown.
-- Used by server.lua and jupyter/kernel.lua. Session evaluates each input.
local accel = ...
local Session = accel.host_chunk "repl/session"

local M = {}

local function lines_of(text)
  local lines = {}
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  return lines
end

local function join(lines, first, last) return table.concat(lines, "\n", first, last) end

local function is_chunk(text) return load(text, "=cell", "t", {}) ~= nil end
local function is_expression(text) return load("return true, " .. text .. "\n", "=cell", "t", {}) ~= nil end

-- A line that declares names which stay: no attribute, whose scope is the rest of the cell.
local function declares(line) return line:find "^%s*local%s" ~= nil end
local function has_attribute(line) return line:find "^%s*local%s[^=]*<%s*%a+%s*>" ~= nil end

-- The first line of the expression with which lines first .. last end. nil: they end with a statement. A statement such as `f(x)` counts as
-- an expression, as at a prompt, if its line begins with a name: other lines may continue the one before.
local function tail(lines, first, last)
  while last >= first and (lines[last]:find "^%s*$" or lines[last]:find "^%s*%-%-[^%[]" or lines[last]:find "^%s*%-%-$") do last = last - 1 end
  local whole = is_chunk(join(lines, first, last))
  for at = last, first, -1 do
    local text = join(lines, at, last)
    if is_expression(text) and is_chunk(join(lines, first, at - 1))
      and (not whole or text:find "^%s*[%a_]") then return at end
  end
end

-- Lines first .. last as one input, or two if they end with an expression whose value is shown.
local function add(inputs, lines, first, last, with_tail, whole)
  local at = with_tail and tail(lines, first, last)
  if not at then
    inputs[#inputs + 1] = { text = join(lines, first, last), line = first }
  elseif whole then -- a <close> variable lives until the end
    local head, rest = join(lines, first, at - 1), join(lines, at, last)
    inputs[#inputs + 1] = { text = (at > first and head .. "\n" or "") .. "return " .. rest, line = first, shows = true }
  else
    if at > first then inputs[#inputs + 1] = { text = join(lines, first, at - 1), line = first } end
    inputs[#inputs + 1] = { text = join(lines, at, last), line = at, shows = true }
  end
end

--- The inputs of a cell: {text =, line = the number of its first line, shows = whether its value is the cell's}. Each begins with at most
--- one `local`, since a prompt keeps the names of the first statement.
---@param text string
---@return {text: string, line: integer, shows: boolean?}[]
function M.inputs(text)
  local lines, inputs, first = lines_of(text), {}, 1
  for i = 2, #lines do
    local before = join(lines, first, i - 1)
    -- `local a` alone ends with its line: the statement after it would be taken for a part of the declaration
    local alone = lines[i - 1]:find "^%s*local%s+[%w_,%s]+$" and not lines[i]:find "^%s*[=,<(]" and not lines[i - 1]:find "local%s+function"
    if (declares(lines[i]) or alone and first == i - 1) and is_chunk(before) then
      if before:find "%S" then add(inputs, lines, first, i - 1) end
      first = i
    end
    if has_attribute(lines[first]) then break end
  end
  local rest = join(lines, first, #lines)
  if rest:find "%S" then add(inputs, lines, first, #lines, true, has_attribute(lines[first])) end
  return inputs
end

--- Whether a cell is "complete", "incomplete" or "invalid", for an editor that sends it with Enter. indent: of the next line.
---@param text string
---@return string status
---@return string? indent
function M.state(text)
  local inputs = M.inputs(text)
  for i, input in ipairs(inputs) do
    local f, why, more = Session.compile(Session.unlocal(input.text), 1, {})
    if not f then
      if not more or i < #inputs then return "invalid" end
      local line = text:match "([^\n]*)\n*$"
      local deeper = line:find "%f[%w_]then%s*$" or line:find "%f[%w_]do%s*$" or line:find "%f[%w_]else%s*$" or line:find "[({]%s*$"
        or line:find "function%s*[%w_.:]*%s*%b()%s*$" or line:find "%f[%w_]repeat%s*$"
      return "incomplete", line:match "^%s*" .. (deeper and "  " or ""), why
    end
  end
  return "complete"
end

return M
