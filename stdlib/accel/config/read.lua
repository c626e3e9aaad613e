--- Configuration files of any version: YAML, JSON (as `accelerate config` writes them), or the table of a Lua file, into values by
--- key. Faults are not raised but kept as problems with their lines, and the caller decides which of them matter
--- (accel.config.validate reports all, a launch only its own keys').
local accel = require "accel.core"
local scalar = require "accel.config.scalar"
local schema = require "accel.config.schema"
local open_read = require("accel.file.core").open_read

local M = {}

local MOST <const> = 1024 * 1024
local BOUNDS <const> = { max_nodes = 10000 } -- no configuration comes near it
local MOST_PROBLEMS <const> = 50 -- more are not distinguished

---@class accel.config.Problem
---@field key string? the key that is wrong
---@field line integer?
---@field kind string "unknown", "type", "value", "missing", "syntax", "double"
---@field message string

---@class accel.config.File
---@field path string
---@field environment string the compute environment
---@field values table<string, any> by key, only the file's own
---@field given table<string, boolean> keys in the file, including null ones
---@field lines table<string, integer>
---@field order table<string, string[]> names inside each section, as they stand there
---@field problems accel.config.Problem[]

local function problem(file, kind, key, line, fmt, ...)
  if #file.problems >= MOST_PROBLEMS then return end
  file.problems[#file.problems + 1] = { kind = kind, key = key, line = line,
    message = select("#", ...) > 0 and fmt:format(...) or fmt }
end

--- "file:line: message", for people.
---@param file accel.config.File
---@param p accel.config.Problem
---@return string
function M.explain(file, p)
  return ("%s:%s %s"):format(file.path, p.line and p.line .. ":" or "", p.message)
end

--- A text of any length, for a message.
local function short(text) return #text > 80 and text:sub(1, 77) .. "..." or text end

local function shown(node)
  if node.kind == "scalar" then return "'" .. short(node.text) .. "'" end
  return node.kind == "list" and "a list" or "a table"
end

local function store(file, row, entry)
  local value, expected = scalar.of_node(row, entry.value)
  if file.given[row.key] then problem(file, "double", row.key, entry.line, "%s is there twice", row.key) end
  file.given[row.key], file.lines[row.key] = true, entry.line
  if value == nil and expected then
    problem(file, "type", row.key, entry.line, "%s must be %s, got %s", entry.key, expected, shown(entry.value))
    return
  end
  if value ~= nil then
    local _, allowed = scalar.allowed(row, value, file.environment)
    local range = allowed and type(value) == "number" and not row.allowed
    if range then value = nil end
    if allowed then
      problem(file, range and "type" or "value", row.key, entry.line, "%s must be %s, got %s", entry.key, allowed, shown(entry.value))
    end
  end
  file.values[row.key] = value
end

local LONGEST_KEY <const> = 64 -- of those that may be meant

local function unknown(file, entry, section)
  if #file.problems >= MOST_PROBLEMS then return end
  local near
  if #entry.key <= LONGEST_KEY then
    local names, prefix = schema.names(section, file.environment), section and schema.sections[section].prefix
    near = require "accel.util.nearest"(entry.key, names) or prefix and require "accel.util.nearest"(prefix .. entry.key, names)
  end
  local place = section and (" in " .. section) or ""
  local hint = near and ("; did you mean '%s'?"):format(near) or ""
  local _, use = require "accel.util.absent".feature(entry.key)
  if use then hint = "; " .. use end
  local home = schema.by_key[entry.key]
  if home and home.topic.section ~= section then
    hint = home.topic.section and ("; move it into %s"):format(home.topic.section) or "; move it to the top of the file"
  end
  problem(file, "unknown", entry.key, entry.line, "unknown key '%s'%s%s", short(entry.key), place, hint)
  file.problems[#file.problems].top = not section
end

local function read_section(file, topic, entry)
  local node = entry.value
  if scalar.is_null(node) then return end
  if node.kind ~= "map" then
    problem(file, "type", entry.key, entry.line, "%s must be a table, got %s", entry.key, shown(node))
    return
  end
  local order = {}
  file.order[entry.key] = order
  for _, each in ipairs(node) do
    local row = schema.in_section(topic, each.key)
    order[#order + 1] = each.key
    if row then store(file, row, each) else unknown(file, each, entry.key) end
  end
end

--- Keys of earlier versions, which stand for others.
local old = {}

function old.fp16(file, entry)
  local value = scalar.truth(entry.value.text or "")
  file.values.mixed_precision = value and "fp16" or "no"
  file.given.mixed_precision, file.lines.mixed_precision = true, entry.line
end

function old.dynamo_backend(file, entry)
  file.order.dynamo_config = {}
  if entry.value.text and entry.value.text:upper() == "NO" then return end
  file.order.dynamo_config[1] = "dynamo_backend"
  store(file, schema.by_key.dynamo_backend, entry)
end

local function belongs(row, environment)
  local topic = row.topic
  if topic.section then return false end
  return topic.environment == nil or topic.environment == environment
end

--- Values of the document. node: its root.
local function read_document(file, node)
  if not node or scalar.is_null(node) then return problem(file, "syntax", nil, nil, "the file is empty") end
  if node.kind ~= "map" then
    return problem(file, "syntax", nil, node.line, "a configuration is a table of keys and values, not %s", shown(node))
  end
  for _, entry in ipairs(node) do
    if entry.key == "compute_environment" and entry.value.text then file.environment = entry.value.text end
  end
  for _, entry in ipairs(node) do
    local topic, row = schema.sections[entry.key], schema.by_key[entry.key]
    if topic then read_section(file, topic, entry)
    elseif old[entry.key] then old[entry.key](file, entry)
    elseif row and belongs(row, file.environment) then store(file, row, entry)
    else unknown(file, entry) end
  end
  local required = file.environment == "AMAZON_SAGEMAKER" and { "ec2_instance_type", "iam_role_name" } or { "distributed_type" }
  for _, key in ipairs(required) do
    local told = false
    for _, p in ipairs(file.problems) do told = told or p.key == key end
    if file.values[key] == nil and not told then problem(file, "missing", key, nil, "%s is missing; add it", key) end
  end
end

--- Nodes of plain Lua data, as the YAML reader makes them of text.
local function node_of(value)
  if type(value) ~= "table" then
    local text = type(value) == "number" and scalar.python_number(value) or tostring(value)
    if math.type(value) == "float" and math.tointeger(value) then text = ("%.0f"):format(value) end
    if value == accel.json.null then return { kind = "scalar", text = "null", style = "plain" } end
    return { kind = "scalar", text = text, style = type(value) == "string" and "quoted" or "plain", value = value }
  end
  local node = { kind = (#value > 0 or getmetatable(value)) and "list" or "map" }
  if node.kind == "list" then
    for i, item in ipairs(value) do node[i] = node_of(item) end
  else
    for key, item in accel.pairs(value) do node[#node + 1] = { key = tostring(key), value = node_of(item) } end
  end
  return node
end

local function new_file(path)
  return { path = path, environment = "LOCAL_MACHINE", values = {}, given = {}, lines = {}, order = {}, problems = {} }
end

local function syntax_error(file, message)
  local line, text = message:match "line (%d+), column %d+: (.*)$"
  if not line then line, text = message:match "line (%d+)[^:]*: (.*)$" end
  problem(file, text and text:find "twice" and "double" or "syntax", text and text:match "the key '([^']*)'", math.tointeger(tonumber(line or "")),
    text or message)
end

--- Values of a YAML text.
---@param text string
---@param path string for messages
---@return accel.config.File
function M.yaml(text, path)
  local file = new_file(path)
  local node, message = accel.yaml.decode(text, BOUNDS)
  if message then syntax_error(file, message) else read_document(file, node) end
  return file
end

--- Values of a JSON text. Lines are known if libyaml is available, because JSON is also YAML.
---@param text string
---@param path string
---@return accel.config.File
function M.json(text, path)
  local file = new_file(path)
  local ok, value = pcall(accel.json.decode, text)
  if not ok then
    syntax_error(file, (tostring(value):gsub("^.-JSON: ", "")))
    return file
  end
  local node = accel.yaml.decode(text, BOUNDS)
  read_document(file, node or node_of(value))
  return file
end

--- Values of a plain Lua table.
---@param value any
---@param path string
---@return accel.config.File
function M.table(value, path)
  local file = new_file(path)
  if type(value) ~= "table" then
    problem(file, "syntax", nil, nil, "a configuration is a table of keys and values, not %s", type(value))
  else
    read_document(file, node_of(value))
  end
  return file
end

--- Reads a configuration file by its name: .json, .lua (in a sandbox, accel.config.sandbox), else YAML.
---@param path string
---@return accel.config.File? file
---@return string? message if the file cannot be opened
function M.file(path)
  if path:find "%.lua$" then
    local value, why = require("accel.config.sandbox").config(path)
    if value == nil then
      local f = new_file(path)
      problem(f, "syntax", nil, nil, why)
      return f
    end
    return M.table(value, path)
  end
  local handle, why = open_read(path)
  if not handle then return nil, why end
  local text, message = handle:read(MOST + 1)
  handle:close()
  if not text and message then return nil, path .. ": " .. message end
  if text and #text > MOST then return nil, path .. ": more than 1 MiB" end
  return (path:find "%.json$" and M.json or M.yaml)(text or "", path)
end

--- Every field of a configuration as the reference's object has them: defaults filled in, sections as tables.
---@param file accel.config.File
---@return table fields
function M.fields(file)
  local out = {}
  for _, row in ipairs(schema.list) do
    local topic = row.topic
    if schema.by_key[row.key] == row and not topic.section and (topic.environment or file.environment) == file.environment then
      if file.given[row.key] then out[row.key] = file.values[row.key] else out[row.key] = schema.file_default(row) end
    end
  end
  if file.environment == "AMAZON_SAGEMAKER" and out.gpu_ids == nil then out.gpu_ids = "all" end
  if out.num_processes == -1 and out.distributed_type == "NO" and not file.given.num_processes then out.num_processes = 1 end
  for name, topic in next, schema.sections do
    local section = {}
    for _, key in ipairs(file.order[name] or {}) do
      local row = schema.in_section(topic, key)
      if row then section[key] = file.values[row.key] end
    end
    out[name] = section
  end
  return out
end

return M
