--- What the programs of stdlib/accel/cli share: options of one action, its help, and how they end. accel-run NAME ... calls
--- require("accel.cli.name")(...), which returns false where the exit status is 1; wrong usage ends with 2.
local cli = require "accel.util.cli"

local M = {}

--- Options and words of an action; --help and wrong usage end the program here.
---@param declared table as accel.util.cli takes it
---@param least integer words behind the options
---@param most integer
---@param ... string
---@return table options, string[] words
function M.parse(declared, least, most, ...)
  declared.args = { ... }
  local o, words = cli(declared)
  if #words < least then cli.fail(declared, ("needs %s"):format(declared.usage)) end
  if #words > most then cli.fail(declared, ("'%s' is one word too many"):format(words[most + 1])) end
  return o, words
end

--- Says on stderr why it cannot be done; returns false.
---@return false
function M.refuse(name, fmt, ...)
  io.stderr:write(name, ": ", fmt:format(...), "\n")
  return false
end

--- fn(...); where Ctrl-C ends it, says so and what is left, and ends with status 130.
---@param name string
---@param left string
---@param fn function
---@param ... any
function M.until_interrupted(name, left, fn, ...)
  local ok, result = pcall(fn, ...)
  if ok then return result end
  if type(result) ~= "table" or result.code ~= "interrupted" then error(result, 0) end
  M.refuse(name, "interrupted; %s", left)
  os.exit(130, true)
end

--- pcall, but for what Ctrl-C ended: that goes on to until_interrupted.
---@param fn function
---@param ... any
---@return boolean, any ...
function M.try(fn, ...)
  local got = table.pack(pcall(fn, ...))
  if not got[1] and type(got[2]) == "table" and got[2].code == "interrupted" then error(got[2], 0) end
  return table.unpack(got, 1, got.n)
end

local function nearest_of(word, names)
  local near = require "accel.util.nearest"(word, names)
  return near and ("; did you mean '%s'?"):format(near) or ""
end

--- Runs the action that the first argument names. actions: list of { name, usage, help, function }.
---@param program string "accel-run ckpt"
---@param summary string
---@param actions table[]
---@param ... string
---@return boolean
function M.dispatch(program, summary, actions, ...)
  local word, names = ..., {}
  for i, action in ipairs(actions) do
    names[i] = action[1]
    if action[1] == word then return action[4](select(2, ...)) ~= false end
  end
  local asked = word == "-h" or word == "--help" or word == "help"
  local lines = { ("Usage: %s ACTION [options] ..."):format(program), summary, "", "Actions:" }
  local width = 0
  for _, action in ipairs(actions) do width = math.max(width, #action[1] + 1 + #action[2]) end
  for _, action in ipairs(actions) do
    local left = action[1] .. " " .. action[2]
    lines[#lines + 1] = ("  %s%s  %s"):format(left, (" "):rep(width - #left), action[3])
  end
  lines[#lines + 1] = ("\n%s ACTION --help tells the options of one."):format(program)
  if asked then
    io.stdout:write(table.concat(lines, "\n"), "\n")
    return true
  end
  if word then
    io.stderr:write(("%s: there is no action '%s'%s\nTry '%s --help'.\n"):format(program, word, nearest_of(word, names), program))
  else
    io.stderr:write(table.concat(lines, "\n"), "\n")
  end
  os.exit(2, true)
end

return M
