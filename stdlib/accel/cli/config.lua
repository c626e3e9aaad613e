--- accel-run config: asks questions and writes the answers to a configuration. Actions: default, update, show,
--- validate.
local arguments = require "accel.config.arguments"
local command = require "accel.cli.command"
local layers = require "accel.config.layers"
local machine = require "accel.config.machine"
local questions = require "accel.config.questions"
local read = require "accel.config.read"
local scalar = require "accel.config.scalar"
local schema = require "accel.config.schema"
local validate = require "accel.config.validate"
local write = require "accel.config.write"
local open_read = require("accel.file.core").open_read

local NAME <const> = "accel-run config"

local function refuse(...) return command.refuse(NAME, ...) end

local function exists(path)
  local file = open_read(path)
  if file then file:close() end
  return file ~= nil
end

local function target(given)
  local path = given or layers.user_file()
  if not path then return nil, refuse("neither --config_file nor HOME gives a place for the configuration; set one") end
  return path
end

-- ---- questions ----

local function take_default() return "" end

local function interactive(...)
  local o = command.parse({ name = NAME, usage = "[options]", summary = "Asks questions about a launch and writes the answers to a file.",
    { "config_file", "string", nil, "FILE", "the file to write [the user's configuration]" },
    { "yes", "flag", false, nil, "take every default" },
  }, 0, 0, ...)
  local path, failed = target(o.config_file)
  if not path then return failed end
  local values
  if o.yes then
    values = questions.run(take_default, machine.complete())
  else
    local ask, _ <close> = require("accel.cli.config_ask").open()
    values = questions.run(ask, machine.complete())
  end
  if not values then return refuse("stopped: nothing was written") end
  local ok, why = write.file(questions.fields(values), path)
  if not ok then return refuse("%s", why) end
  command.say("configuration written to %s", path)
  return true
end

local function default(...)
  local o = command.parse({ name = NAME .. " default", usage = "[options]", summary = "Writes a small configuration for this machine.",
    { "config_file", "string", nil, "FILE", "the file to write [the user's configuration]" },
    { "mixed_precision", { "no", "fp16", "bf16", "fp8" }, "no", "WORD", "numbers of the passes" },
  }, 0, 0, ...)
  local path, failed = target(o.config_file)
  if not path then return failed end
  if exists(path) then return refuse("%s exists; remove it, or give another --config_file", path) end
  local ok, why = write.file(questions.basic(o.mixed_precision, machine.complete()), path)
  if not ok then return refuse("%s", why) end
  command.say("configuration written to %s", path)
  return true
end

local function open(path)
  local file, why = read.file(path)
  if not file then return nil, refuse("%s", why) end
  return file
end

local function update(...)
  local o = command.parse({ name = NAME .. " update", usage = "[options]",
    summary = "Writes a configuration of an earlier version in today's form.",
    { "config_file", "string", nil, "FILE", "which [the user's configuration]" } }, 0, 0, ...)
  local path, failed = target(o.config_file)
  if not path then return failed end
  local file
  file, failed = open(path)
  if not file then return failed end
  if #file.problems > 0 then return refuse("%s", table.concat(validate.lines(file), "\n")) end
  local fields, values = nil, {}
  for key, value in next, file.values do values[key] = value end
  fields = file.environment == "LOCAL_MACHINE" and questions.fields(values) or read.fields(file)
  local ok, why = write.file(fields, path)
  if not ok then return refuse("%s", why) end
  command.say("configuration updated in %s", path)
  return true
end

-- ---- show, validate ----

local function text_of(value)
  if type(value) == "table" then
    local words = {}
    for i, word in ipairs(value) do words[i] = scalar.python_text(word) end
    return "[" .. table.concat(words, ", ") .. "]"
  end
  return value == nil and "null" or write.scalar(value)
end

local function same(a, b)
  return text_of(a) == text_of(b)
end

--- A file's name for people: below the home folder by ~.
local function named(path)
  local home = os.getenv "HOME"
  if home and #home > 1 and path:sub(1, #home + 1) == home .. "/" then return "~" .. path:sub(#home + 1) end
  return path
end

--- The effective value and its source, for each key that is set or has a default.
local function each_value(given, file, names)
  local list = {}
  for _, row in ipairs(schema.list) do
    local key = row.key
    if schema.by_key[key] == row and not row.topic.environment then
      local value, origin = given.values[key], nil
      if value ~= nil then
        origin = names[key] and ("environment: " .. names[key]) or ("flag: --" .. key)
      elseif file and file.given[key] then
        value = file.values[key]
        local path = named(file.paths and file.paths[key] or file.path)
        origin = file.lines[key] and ("%s:%d"):format(path, file.lines[key]) or path
      else
        value, origin = schema.file_default(row), "default"
      end
      local fallback = schema.file_default(row)
      if value ~= nil then list[#list + 1] = { key = key, value = value, origin = origin, differs = not same(value, fallback) } end
    end
  end
  return list
end

local WIDTH <const> = 80

local function show(...)
  local o, words = command.parse({ name = NAME .. " show", usage = "[--origin] [--diff] [launch flags]", others = true,
    summary = "Shows the configuration that a launch here would have.",
    { "origin", "flag", false, nil, "the source of each value: flag, variable, file and line, default" },
    { "diff", "flag", false, nil, "only values that differ from the defaults" } }, 0, math.maxinteger, ...)
  local given, why = arguments.read(words)
  if not given then return refuse("%s", why) end
  local file, names
  given, file, names = layers.resolve(given)
  if not given then return refuse("%s", file) end
  local wrong = file and validate.lines(file) or {}
  local width = 0
  local list = each_value(given, file, names)
  for _, v in ipairs(list) do width = math.max(width, #v.key + 2 + #text_of(v.value)) end
  width = math.min(width, WIDTH // 2)
  for _, v in ipairs(list) do
    if v.differs or not o.diff then
      local text = ("%s: %s"):format(v.key, text_of(v.value))
      if o.origin then
        local beside = ("%-" .. width .. "s  # %s"):format(text, v.origin)
        text = #beside <= WIDTH and beside or ("%s\n  # %s"):format(text, v.origin)
      end
      io.stdout:write(text, "\n")
    end
  end
  if #wrong > 0 then return refuse("%s", table.concat(wrong, "\n")) end
  return true
end

local function check(...)
  local o, words = command.parse({ name = NAME .. " validate", usage = "[options] [FILE ...]",
    summary = "Reports errors in configurations: keys, types, values, and options without effect.",
    { "config_file", "string", nil, "FILE", "which [those that a launch here would read]" } }, 0, 100, ...)
  if o.config_file then table.insert(words, 1, o.config_file) end
  local files = {}
  for i, path in ipairs(words) do
    local failed
    files[i], failed = open(path)
    if not files[i] then return failed end
  end
  if #words == 0 then
    local why
    files, why = layers.files()
    if not files then return refuse("%s", why) end
    if #files == 0 then return refuse("no configuration found; name a file, or write one with %s default", NAME) end
  end
  local good = true
  for _, file in ipairs(files) do
    local lines = validate.lines(file)
    for _, line in ipairs(lines) do command.tell("%s", line) end
    if #lines == 0 then command.say("%s: right", file.path) else good = false end
  end
  return good
end

local ACTIONS <const> = {
  { "default", "[--mixed_precision W]", "write a small configuration for this machine", default },
  { "update", "[--config_file FILE]", "write an earlier version's in today's form", update },
  { "show", "[--origin] [--diff]", "the effective configuration of a launch here, with the source of each value", show },
  { "validate", "[FILE ...]", "report errors, with file and line", check },
}

return function(...)
  local first = ...
  if first == nil or (first:sub(1, 1) == "-" and first ~= "-h" and first ~= "--help") then return interactive(...) ~= false end
  return command.dispatch(NAME, "Without an action it asks questions; --yes takes every default.", ACTIONS, ...)
end
