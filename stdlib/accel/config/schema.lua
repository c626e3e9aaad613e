--- The keys of configurations, one table made of the topics in accel.config.keys. Everything else is made from it: reading of
--- files, flags of launch, the environment of ranks, help, questions, completion.
---
--- A row of a topic is { key, type, column = value, ... }:
---   type       int float bool switch (a bool whose flag takes no value) text word int_or_word auto_int auto_float texts bools table
---   default    of a launch without another setting. nil: none
---   file       default of files, if different. file_null: a file may hold null
---   only       "flag": not a key of a file. flag = false: not a flag. flag_names: other spellings of the flag
---   allowed    values. any_case: in upper or lower case. allowed_in: the values of one compute environment
---   least, most   of numbers
---   aliases    names of earlier versions
---   when       accel.config.conditions: the condition for an effect. asked_when: the condition for its question
---   launched   the same for a launch of accel-run itself, if it uses the key in fewer cases than the reference
---   plain      a value that a launch does not report although it has no effect: `accelerate config` writes it
---   env        variable of the ranks, after the topic's env_prefix unless it is whole. env_as: lower upper number (booleans)
---   help, question   for people
--- A topic: title, keys, flags (flags that are not keys), section (the table of files that holds the keys), prefix (may be left
--- out inside the section), env_prefix, when, environment (the compute environment it belongs to).
local M = {}

local TOPICS <const> = { "launch", "dynamo", "fsdp", "deepspeed", "megatron", "fp8", "parallelism", "other" }

---@class accel.config.Key
---@field key string
---@field type string
---@field topic table

--- Keys in order, by name (with aliases), and by spelling of the flag (underscores). Topics. Sections by name.
M.list, M.by_key, M.by_flag, M.topics, M.sections = {}, {}, {}, {}, {}

--- First words of variables that have no prefix of a topic.
local WHOLE <const> = { ACCELERATE = true, CUDA = true, MASTER = true, OMP = true }

local function variable(topic, name)
  return WHOLE[name:match "^%u+"] and name or (topic.env_prefix or "") .. name
end

local function add_row(topic, row, is_key)
  row.key, row.type, row.topic = row[1], row[2], topic
  row.when, row.launched = row.when or topic.when, row.launched or topic.launched
  if type(row.env) == "table" then
    for i, name in ipairs(row.env) do row.env[i] = variable(topic, name) end
  elseif row.env then
    row.env = variable(topic, row.env)
  end
  M.list[#M.list + 1] = row
  if is_key and row.only ~= "flag" then
    M.by_key[row.key] = row
    if row.aliases then
      for _, alias in ipairs(row.aliases) do M.by_key[alias] = row end
    end
  end
  if row.flag ~= false then
    if row.flag_names then
      for _, name in ipairs(row.flag_names) do M.by_flag[name] = row end
    else
      M.by_flag[row.key] = row
    end
    if row.no_flag then M.by_flag[row.no_flag] = { key = row.key, type = "switch", topic = topic, negates = true, help = row.help } end
  end
end

local function add_topic(topic)
  M.topics[#M.topics + 1] = topic
  if topic.section then M.sections[topic.section] = topic end
  for _, row in ipairs(topic.keys) do add_row(topic, row, true) end
  for _, row in ipairs(topic.flags or {}) do add_row(topic, row, false) end
end

for _, name in ipairs(TOPICS) do
  local topic = require("accel.config.keys." .. name)
  for _, each in ipairs(topic.keys and { topic } or topic) do add_topic(each) end
end

--- The meaning of a missing key in a file.
function M.file_default(row)
  if row.file ~= nil then return row.file end
  if row.file_null then return nil end
  return row.default
end

--- The key for a name inside a section. The prefix may be left out.
---@return accel.config.Key?
function M.in_section(topic, name)
  local row = M.by_key[name] or M.by_key[(topic.prefix or "") .. name]
  return row and row.topic == topic and row or nil
end

--- Names that a file of this compute environment may hold: at the top (section nil) or in a section.
---@return string[]
function M.names(section, environment)
  local out = {}
  for _, row in ipairs(M.list) do
    local topic = row.topic
    if M.by_key[row.key] == row and topic.section == section then
      if (topic.environment or environment) == environment then out[#out + 1] = row.key end
    end
  end
  if not section then
    for name in next, M.sections do out[#out + 1] = name end
  end
  table.sort(out)
  return out
end

return M
