--- Common parts of the programs in stdlib/accel/cli: options of one action, its help, and exit statuses. accel-run NAME ...
--- calls require("accel.cli.name")(...), which returns false for exit status 1. Wrong usage ends with 2.
local cli = require "accel.util.cli"
local terminal = require "accel.util.terminal"

local M = {}

local describing -- by M.describe: descriptions are raised to it

--- Options and words of an action. --help and wrong usage end the program here.
---@param declared table as accel.util.cli takes it
---@param least integer words after the options
---@param most integer
---@param ... string
---@return table options, string[] words, table<string, boolean> given
function M.parse(declared, least, most, ...)
  if describing then error({ options = declared }, 0) end
  declared.args = { ... }
  local o, words, given = cli(declared)
  for _, spec in ipairs(declared) do
    local key = spec[1]:gsub("-", "_")
    if given[key] and o[key] == "" then cli.fail(declared, ("option '--%s' is empty; expected %s"):format(spec[1]:gsub("_", "-"), spec[4])) end
  end
  if #words < least then cli.fail(declared, ("needs %s"):format(declared.usage)) end
  if #words > most then cli.fail(declared, ("unexpected argument '%s'"):format(words[most + 1])) end
  return o, words, given
end

--- The options of a program of accel.cli and of its actions, as the program declares them for its help and its parser: a list of
--- { words, declared }. words are the words before the options. For completion, and for the sweep of all options.
---@param program fun(...: string): boolean
---@param name string "ckpt"
---@return { words: string[], options: table }[]
function M.describe(program, name)
  local list, seen = {}, {}
  local function look(fn, words, ...)
    describing = true
    local ok, got = pcall(fn, ...)
    describing = nil
    if ok or type(got) ~= "table" then error(ok and name .. " declares no options" or got, 0) end
    if got.options and not seen[got.options.name] then
      seen[got.options.name] = true
      list[#list + 1] = { words = words, options = got.options }
    end
    for _, action in ipairs(got.actions or {}) do look(action[4], { name, action[1] }) end
  end
  look(program, { name })
  look(program, { name }, "--help")
  return list
end

--- Prints the error on stderr. Returns false.
---@return false
function M.refuse(name, fmt, ...)
  io.stderr:write(name, ": ", terminal.message(fmt:format(...)), "\n")
  return false
end

--- Prints a line. Its texts may come from others (terminal.format).
---@param fmt string
---@param ... any
function M.say(fmt, ...) print(terminal.format(fmt, ...)) end

--- The same on standard error.
---@param fmt string
---@param ... any
function M.tell(fmt, ...) io.stderr:write(terminal.format(fmt, ...), "\n") end

--- Warns on stderr that an option has no effect, and what to do.
---@param name string
---@param option string "--bandwidth"
---@param why string
---@param ... any for string.format
function M.no_effect(name, option, why, ...)
  M.tell("%s: warning: %s has no effect %s", name, option, why:format(...))
end

--- fn(...). On Ctrl-C it prints a message and the remaining state, and ends with status 130.
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

--- pcall, except that Ctrl-C passes through to until_interrupted.
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
  if describing then error({ actions = actions }, 0) end
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
  lines[#lines + 1] = ("\n%s ACTION --help lists the options of an action."):format(program)
  if asked then
    io.stdout:write(table.concat(lines, "\n"), "\n")
    return true
  end
  if word then
    M.tell("%s: unknown action '%s'%s\nTry '%s --help'.", program, word, nearest_of(word, names), program)
  else
    io.stderr:write(table.concat(lines, "\n"), "\n")
  end
  os.exit(2, true)
end

return M
