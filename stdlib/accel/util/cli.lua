--- Command-line options of a script, declared in one table: types, defaults, help text, and errors that name the
--- nearest option. GNU style: --name value, --name=value, --flag, --no-flag, -h, and -- before files that begin with a
--- dash. Underscores and dashes are the same.
---
---   local o, files = cli {
---     name = "train.lua", usage = "[options] [FILE ...]", summary = "Trains a thing.",
---     { "steps", "int", nil, "N", "stop after N steps" },
---     { "dtype", { "auto", "f32", "bf16" }, "auto", "WORD", "format of the matrix products" },
---     { "sample", "flag", false, nil, "only sample" },
---     { "prompt", "string", nil, "TEXT", "what samples begin with", needs = "sample" },
---   }
---
--- A row contains the name, the type, the default, the name of the value and the help text. Types are "int", "number", "string", "flag",
--- "list" (you can repeat the option, and get a list of texts), or a list of allowed words. A row may also have these fields:
---   least, most   bounds of a number
---   needs         the option must come with this other one ("a|b": with one of them), or raises an error
---   excludes      the option cannot come with this other one
---   ignored       the option has no effect: a warning with this reason
--- With others = true, unknown options stay among the words. If an option is repeated with another value, accel warns and uses the last one.
local nearest = require "accel.util.nearest"
local raise = require "accel.util.raise"
local terminal = require "accel.util.terminal"

local M = {}

local function key_of(name) return (name:gsub("%-", "_")) end

local readers = {
  int = function(text)
    local n = text:match("^[+-]?%d+$") and math.tointeger(tonumber(text))
    return n, "an integer"
  end,
  number = function(text)
    local n = text:match("^[+-]?[%d.][%d.eE+-]*$") and tonumber(text)
    return n, "a number"
  end,
  string = function(text) return text, "text" end,
  list = function(text) return text, "text" end,
}

local function shown(name) return "--" .. name:gsub("_", "-") end

local function bounds(spec)
  if not spec.most then return ("%s or more"):format(spec.least) end
  return ("%s to %s"):format(spec.least, spec.most)
end

local function read(spec, text)
  local kind = spec[2]
  if type(kind) == "table" then
    for _, word in ipairs(kind) do
      if word == text then return word end
    end
    return nil, "one of " .. table.concat(kind, ", ")
  end
  local value, wanted = readers[kind](text)
  if value and (spec.least and value < spec.least or spec.most and value > spec.most) then return nil, bounds(spec) end
  return value, wanted
end

--- Errors in combinations of options, and options without effect: nil, or the message, and warnings.
local function together(declared, o, given)
  local warnings = {}
  local function acts(key) return given[key] and o[key] ~= false end
  for _, spec in ipairs(declared) do
    local key = key_of(spec[1])
    if acts(key) and spec.needs then
      local any, names = false, {}
      for word in spec.needs:gmatch "[^|]+" do
        any, names[#names + 1] = any or acts(key_of(word)), shown(word)
      end
      if not any then return ("%s has no effect without %s"):format(shown(spec[1]), table.concat(names, " or ")), warnings end
    end
    if acts(key) and spec.excludes and acts(key_of(spec.excludes)) then
      return ("%s has no effect with %s; give one of them"):format(shown(spec[1]), shown(spec.excludes)), warnings
    end
    if given[key] and spec.ignored then
      warnings[#warnings + 1] = ("%s has no effect: %s; leave it out"):format(shown(spec[1]), spec.ignored)
    end
  end
  return nil, warnings
end

--- A text to the right of its label, in lines of at most 79 columns. Lines after the first begin at `column`.
---@param left string
---@param text string
---@param column integer columns before the text
---@return string
function M.filled(left, text, column)
  local lines, at, empty = {}, left .. (" "):rep(column - #left), true
  for word in text:gmatch "%S+" do
    if not empty and #at + 1 + #word > 79 then
      lines[#lines + 1], at, empty = at, (" "):rep(column), true
    end
    at, empty = at .. (empty and "" or " ") .. word, false
  end
  lines[#lines + 1] = at
  return table.concat(lines, "\n")
end

--- The text that --help prints, for 80 columns.
---@param declared table
---@return string
function M.help(declared)
  local lines = { (("Usage: %s %s"):format(declared.name, declared.usage or "[options]"):gsub("%s+$", "")) }
  if declared.summary then lines[#lines + 1] = M.filled("", declared.summary, 0) end
  lines[#lines + 1] = ""
  lines[#lines + 1] = "Options:"
  for _, spec in ipairs(declared) do
    local kind, default, value, help = spec[2], spec[3], spec[4], spec[5]
    local left = "  --" .. spec[1]:gsub("_", "-") .. (kind == "flag" and "" or " " .. (value or "VALUE"))
    if type(kind) == "table" then help = help .. ": " .. table.concat(kind, ", ") end
    if default ~= nil and kind ~= "flag" then help = ("%s [%s]"):format(help, tostring(default)) end
    if #left > 24 then -- too long for its column: it gets its own line
      lines[#lines + 1], left = left, ""
    end
    lines[#lines + 1] = M.filled(left, help, 26)
  end
  lines[#lines + 1] = ("%-24s  %s"):format("  -h, --help", "this text")
  if declared.epilog then lines[#lines + 1] = "\n" .. M.filled("", declared.epilog, 0) end
  return table.concat(lines, "\n") .. "\n"
end

-- Whether accel-run has an option of this name: then it stands on the wrong side of the script.
local function is_of_accel_run(name)
  local ok, usage = pcall(function() return require "accel".host_chunk("help/topics").usage() end)
  return ok and usage.options[(name:gsub("_", "-"))] ~= nil
end

--- Reads args. Returns options and positional arguments, or nil and a message. `given` contains the options that were
--- written, `warnings` those among them without effect.
---@param declared table
---@param args string[]
---@return table? options, string[]|string rest, table? given, string[]? warnings
function M.parse(declared, args)
  local by_key, names, o, given, rest, twice = {}, {}, {}, {}, {}, {}
  for _, spec in ipairs(declared) do
    local key = key_of(spec[1])
    by_key[key], o[key], names[#names + 1] = spec, spec[3], spec[1]
  end
  local i = 1
  while args[i] ~= nil do
    local arg = args[i]
    if arg == "--" then
      table.move(args, i + 1, #args, #rest + 1, rest)
      break
    elseif arg == "-h" or arg == "--help" then
      o.help = true
    elseif arg:match("^%-%-") then
      local name, eq, text = arg:match("^%-%-([^=]*)(=?)(.*)$")
      local key = key_of(name)
      local spec, value = by_key[key]
      local negated = not spec and by_key[key:match("^no_(.*)$") or ""]
      if negated and negated[2] == "flag" and eq == "" then
        key, value = key:match("^no_(.*)$"), false
      elseif not spec and declared.others then
        rest[#rest + 1] = arg
        goto next
      elseif not spec then
        local use = require "accel.util.absent".flag("--" .. name)
        if use then return nil, ("option '--%s' is not in accel; %s"):format(name, use) end
        local near = nearest(name, names)
        return nil, ("unknown option '--%s'%s"):format(name, is_of_accel_run(name) and "; options of accel-run go before the script"
          or near and ("; did you mean '--%s'?"):format(near) or "")
      elseif spec[2] == "flag" then
        if eq ~= "" then return nil, ("option '--%s' takes no value"):format(name) end
        value = true
      else
        if eq == "" then
          i = i + 1
          text = args[i]
          if text == nil then return nil, ("option '--%s' needs a value"):format(name) end
        end
        local wanted
        value, wanted = read(spec, text)
        if value == nil then
          return nil, ("option '--%s' must be %s, got '%s'"):format(name, wanted, text)
        end
      end
      if spec and spec[2] == "list" then
        value = given[key] and table.move({ value }, 1, 1, #o[key] + 1, o[key]) or { value }
      elseif given[key] and o[key] ~= value then
        twice[#twice + 1] = ("%s is given twice, as %s and as %s; the last one counts, leave one out"):format(shown(key), tostring(o[key]),
          tostring(value))
      end
      o[key], given[key] = value, true
    elseif arg:match("^%-.") then
      return nil, ("unknown option '%s'"):format(arg)
    else
      rest[#rest + 1] = arg
    end
    ::next::
    i = i + 1
  end
  if o.help then return o, rest, given, {} end
  local wrong, warnings = together(declared, o, given)
  if wrong then return nil, wrong end
  return o, rest, given, table.move(warnings, 1, #warnings, #twice + 1, twice)
end

--- Ranks of one machine have one command line: the first of them reports its errors.
local function first_of_machine() return (tonumber(os.getenv "LOCAL_RANK") or 0) == 0 end

--- Ends the script with status 2, saying why, as wrong usage does.
---@param declared table declaration of the command line
---@param message string
function M.fail(declared, message)
  io.stderr:write(("%s: %s\nTry '%s --help'.\n"):format(declared.name, terminal.message(message), declared.name))
  os.exit(2, true)
end

--- Parses the script's own arguments. --help and wrong usage end the script here.
---@param declared table
local function call(_, declared)
  if type(declared) ~= "table" or not declared.name then raise "cli: expected a table of options with the name of the script" end
  local args = declared.args or rawget(_G, "arg") or {}
  local o, rest, given, warnings = M.parse(declared, args)
  if not o and not first_of_machine() then os.exit(2, true) end
  if not o then return M.fail(declared, rest) end
  for _, text in ipairs(first_of_machine() and warnings or {}) do io.stderr:write(("%s: warning: %s\n"):format(declared.name, text)) end
  if o.help then
    io.stdout:write(M.help(declared))
    os.exit(0, true)
  end
  return o, rest, given
end

return setmetatable(M, { __call = call })
