--- The schema of configurations for people and editors: the page of the reference (`accel-run help fsdp_version`), and the classes of
--- lua/meta/config.lua, by which editors check and complete accel.lua and launch policies. Called when these are written.
local conditions = require "accel.config.conditions"
local scalar = require "accel.config.scalar"
local schema = require "accel.config.schema"

local M = {}

local TYPES <const> = { int = "integer", float = "number", bool = "boolean", switch = "boolean", text = "string", word = "string",
  int_or_word = "string|integer", auto_int = "integer|\"auto\"", auto_float = "number|\"auto\"", texts = "string[]", bools = "boolean[]",
  table = "table" }
local WORDS <const> = { int = "whole number", float = "number", bool = "true or false", switch = "true or false", text = "text", word = "word",
  int_or_word = "word or number", auto_int = "whole number or auto", auto_float = "number or auto", texts = "list of texts",
  bools = "list of true and false", table = "table" }

--- Keys of files: each row of the schema once, with its topic.
local function each_key()
  local i = 0
  return function()
    repeat
      i = i + 1
      local row = schema.list[i]
      if row and schema.by_key[row.key] == row then return row end
    until not row
  end
end

-- ---- the page ----

local function flag_of(row) return row.flag ~= false and "--" .. (row.flag_names and row.flag_names[1] or row.key) or nil end

local function shown(value)
  if type(value) == "table" then
    local words = {}
    for i, word in ipairs(value) do words[i] = tostring(word) end
    return "[" .. table.concat(words, ", ") .. "]"
  end
  if value == "" then return "\"\"" end
  return type(value) == "number" and scalar.python_number(value) or tostring(value)
end

local function put_row(put, row)
  put(("\n### %s\n"):format(row.key))
  put(row.help:sub(1, 1):upper() .. row.help:sub(2) .. ".\n")
  local allowed = row.allowed
  if allowed and row.type ~= "switch" then
    local words = {}
    for i, word in ipairs(allowed) do words[i] = "`" .. tostring(word) .. "`" end
    put(("- one of %s%s"):format(table.concat(words, ", "), row.any_case and ", in any case" or ""))
  else
    put("- " .. WORDS[row.type] .. (row.least and (", from %s on"):format(shown(row.least)) or ""))
  end
  local default = row.default
  if default == nil then default = schema.file_default(row) end
  if default ~= nil then put(("- default: `%s`"):format(shown(default))) end
  if row.when then put("- has an effect with " .. conditions.words[row.when]) end
  if flag_of(row) then put(("- flag: `%s`"):format(flag_of(row))) end
  local names = type(row.env) == "table" and row.env or { row.env }
  if #names > 0 then put(("- variable of the ranks: `%s`"):format(table.concat(names, "`, `"))) end
  if row.aliases then put(("- of earlier versions: `%s`"):format(table.concat(row.aliases, "`, `"))) end
end

--- The reference page, and how many keys and flags it has.
---@return string markdown
---@return integer keys
function M.page()
  local lines, n = {}, 0
  local function put(line) lines[#lines + 1] = line end
  put "# Keys of configurations\n"
  put "Files of `--config_file`, `accel.yaml`, `accel.json` and `accel.lua`, flags of `accel-run launch` and the variables that ranks get from"
  put "them; what a launch policy plans has the same names. The guide `configuration` says in which order they count."
  for _, topic in ipairs(schema.topics) do
    local where = topic.section and ("in `%s`"):format(topic.section) or "at the top of a file"
    if topic.section and topic.prefix ~= "" then where = where .. (", where `%s` may be left out"):format(topic.prefix) end
    put(("\n## %s: %s"):format(topic.title, where))
    for _, row in ipairs(topic.keys) do
      put_row(put, row)
      n = n + 1
    end
    if topic.flags then put(("\n## %s: flags alone"):format(topic.title)) end
    for _, row in ipairs(topic.flags or {}) do
      put_row(put, row)
      n = n + 1
    end
  end
  return table.concat(lines, "\n") .. "\n", n
end

-- ---- the stub ----

local MOST_WORDS <const> = 6 -- in one line

local function literal(value) return type(value) == "string" and ("%q"):format(value) or tostring(value) end

--- Writes an alias for long types. Returns the type.
local function type_of(put, row)
  if not row.allowed or row.type == "switch" then return TYPES[row.type] end
  local words = {}
  for i, word in ipairs(row.allowed) do words[i] = literal(word) end
  if #words <= MOST_WORDS then return table.concat(words, "|") end
  put(("---@alias accel.config.%s"):format(row.key))
  for _, word in ipairs(words) do put("---| " .. word) end
  put ""
  return "accel.config." .. row.key
end

local function put_class(put, name, about, rows)
  local fields = {}
  for _, row in ipairs(rows) do fields[#fields + 1] = ("---@field %s? %s # %s"):format(row.key, type_of(put, row), row.help) end
  put("---" .. about)
  put("---@class " .. name)
  for _, field in ipairs(fields) do put(field) end
end

local HEAD <const> = [[
---@meta
-- Keys of configurations and plans, for editors. Made from the schema (stdlib/accel/config/keys) by the target `meta`.
--   accel.lua:    ---@type accel.Config
--   policy.lua:   ---@type accel.LaunchPolicy
]]

local POLICY <const> = [[
---What a launch policy plans: keys of configurations and flags, besides variables and arguments of the script.
---@class accel.config.PolicyPlan: accel.config.Flags
---@field env? table<string, string|number|boolean> more variables of the ranks
---@field args? string[] more arguments of the script

---What the last attempt of a launch died of.
---@class accel.config.PolicyLast
---@field status integer exit status
---@field signal? integer
---@field reason? "out_of_memory"|"timeout"|"not_finite"|"killed"|"signal"|"error"
---@field seconds number how long it ran
---@field machine? string the machine of a hostfile that failed first
---@field plan accel.config.PolicyPlan

---What a launch policy is told.
---@class accel.config.PolicyMachine
---@field cores integer physical ones
---@field cpus integer that may be used
---@field memory integer bytes
---@field devices table<string, integer> how many of each kind
---@field gpus integer
---@field job_manager? "slurm"|"torchrun"|"mpi"|"kubernetes"
---@field attempt integer from 0
---@field last? accel.config.PolicyLast nil at the first attempt

---@alias accel.LaunchPolicy fun(machine: accel.config.PolicyMachine): accel.config.PolicyPlan?
]]

--- The text of lua/meta/config.lua.
---@return string
function M.stub()
  local lines = { HEAD }
  local function put(line) lines[#lines + 1] = line end
  local top, all, sections = {}, {}, {}
  for row in each_key() do
    local section = row.topic.section
    if section then
      if not sections[section] then
        sections[section] = {}
        sections[#sections + 1] = section
      end
      table.insert(sections[section], row)
    elseif not row.topic.environment then
      top[#top + 1] = row
    end
  end
  for _, section in ipairs(sections) do
    put_class(put, "accel.config." .. section, ("The table `%s` of a configuration."):format(section), sections[section])
    put ""
  end
  put_class(put, "accel.Config", "A configuration of launches.", top)
  for _, section in ipairs(sections) do put(("---@field %s? accel.config.%s"):format(section, section)) end
  put ""
  local have = {}
  for _, row in ipairs(schema.list) do
    if not row.topic.environment and not have[row.key] and (row.only == "flag" or row.topic.section or schema.by_key[row.key] ~= row) then
      have[row.key] = true
      all[#all + 1] = row
    end
  end
  local put_type = function() end -- aliases are there already
  put " ---Keys of every table by their names, and flags with their command-line spelling."
  put "---@class accel.config.Flags: accel.Config"
  for _, row in ipairs(all) do put(("---@field %s? %s # %s"):format(row.key, type_of(put_type, row), row.help)) end
  put ""
  put(POLICY)
  return (table.concat(lines, "\n"):gsub("\n+$", "\n"))
end

return M
