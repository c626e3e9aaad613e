--- Command-line options of a script, declared in one table: types, defaults, help text, and errors that
--- name the nearest option. GNU style: --name value, --name=value, --flag, --no-flag, -h, and -- before
--- files that begin with a dash; underscores and dashes are the same.
---
---   local o, files = cli {
---     name = "train.lua", usage = "[options] [FILE ...]", summary = "Trains a thing.",
---     { "steps", "int", nil, "N", "stop after N steps" },
---     { "dtype", { "auto", "f32", "bf16" }, "auto", "WORD", "format of the matrix products" },
---     { "sample", "flag", false, nil, "only sample" },
---   }
local nearest = require "accel.util.nearest"

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
}

local function read(spec, text)
  local kind = spec[2]
  if type(kind) == "table" then
    for _, word in ipairs(kind) do
      if word == text then return word end
    end
    return nil, "one of " .. table.concat(kind, ", ")
  end
  return readers[kind](text)
end

--- A text behind what stands left of it, in lines of at most 79 columns; those after the first begin at `column`.
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
    if #left > 24 then -- too long for its column: a line of its own
      lines[#lines + 1], left = left, ""
    end
    lines[#lines + 1] = M.filled(left, help, 26)
  end
  lines[#lines + 1] = ("%-24s  %s"):format("  -h, --help", "this text")
  if declared.epilog then lines[#lines + 1] = "\n" .. M.filled("", declared.epilog, 0) end
  return table.concat(lines, "\n") .. "\n"
end

--- Reads args. Returns options and positional arguments, or nil and a message. `given` tells which options
--- were written.
---@param declared table
---@param args string[]
---@return table? options, string[]|string rest, table? given
function M.parse(declared, args)
  local by_key, names, o, given, rest = {}, {}, {}, {}, {}
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
      elseif not spec then
        local near = nearest(name, names)
        return nil, ("unknown option '--%s'%s"):format(name,
          near and ("; did you mean '--%s'?"):format(near) or "")
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
      o[key], given[key] = value, true
    elseif arg:match("^%-.") then
      return nil, ("unknown option '%s'"):format(arg)
    else
      rest[#rest + 1] = arg
    end
    i = i + 1
  end
  return o, rest, given
end

--- Ends the script with status 2, saying why, as wrong usage does.
function M.fail(declared, message)
  io.stderr:write(("%s: %s\nTry '%s --help'.\n"):format(declared.name, message, declared.name))
  os.exit(2, true)
end

--- Parses the script's own arguments; --help and wrong usage end the script here.
local function call(_, declared)
  local args = declared.args or rawget(_G, "arg") or {}
  local o, rest, given = M.parse(declared, args)
  if not o then return M.fail(declared, rest) end
  if o.help then
    io.stdout:write(M.help(declared))
    os.exit(0, true)
  end
  return o, rest, given
end

return setmetatable(M, { __call = call })
