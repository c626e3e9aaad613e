--- Configurations of launches: the files that `accelerate config` writes (YAML, JSON) and Lua files with the same keys, their meaning,
--- and the environment that a launch with them gives to its ranks. One schema defines all keys. The guide `configuration` describes
--- files, their order and policies.
local accel = require "accel"
local check = require "accel.util.check"
local read = require "accel.config.read"

local M = {}

--- Every field of a configuration file, with the defaults of missing ones. nil and a message with file and line of each fault if it
--- has any.
--- example: select(3, accel.config.load "no-such-file.yaml") --> "not_found"
---@param path string
---@return table<string, any>? fields
---@return string? message
---@return string? code
function M.load(path)
  local file, why = read.file(path)
  if not file then return nil, why, "not_found" end
  local lines = {}
  for i, p in ipairs(file.problems) do lines[i] = read.explain(file, p) end
  if #lines > 0 then return nil, table.concat(lines, "\n"), "format" end
  return read.fields(file)
end

--- The same for a text instead of a file. format is "yaml" (default) or "json".
--- example: accel.config.parse("distributed_type: NO").num_processes --> 1
---@param text string
---@param format? string
---@return table<string, any>? fields
---@return string? message
---@return string? code
function M.parse(text, format, ...)
  check.surplus("config.parse", ...)
  if format ~= nil then check.word("config.parse", "format", format, { "yaml", "json" }) end
  local file = (format == "json" and read.json or read.yaml)(text, format or "yaml")
  local lines = {}
  for i, p in ipairs(file.problems) do lines[i] = read.explain(file, p) end
  if #lines > 0 then return nil, table.concat(lines, "\n"), "format" end
  return read.fields(file)
end

--- The environment that a launch gives to its ranks. argv holds flags of `accel-run launch`, --config_file among them, and the script.
--- machine describes the hardware ({ gpus = 0 } for a machine without any). nil: this one.
--- example: accel.config.environment({ "--cpu", "train.lua" }, { gpus = 0 }).ACCELERATE_USE_CPU --> "True"
---@param argv string[]
---@param machine? table
---@return table<string, string>? env
---@return string? message
function M.environment(argv, machine, ...)
  local plan, why = M.plan(argv, machine, ...)
  if not plan then return nil, why end
  return plan.env
end

--- All decisions of such a launch: launcher, env, cmd or world, values and their sources (origins).
--- example: accel.config.plan({ "--num_processes=2", "--multi_gpu", "train.lua" }, { gpus = 2 }).world.nproc_per_node --> "2"
---@param argv string[]
---@param machine? table
---@return table? plan
---@return string? message
function M.plan(argv, machine, ...)
  check.surplus("config.plan", ...)
  local arguments, why = require("accel.config.arguments").read(argv)
  if not arguments then return nil, why end
  local file
  if arguments.values.config_file then
    file, why = read.file(arguments.values.config_file)
    if not file then return nil, why end
  end
  local ok, plan = pcall(require("accel.config.plan").make, arguments, file, require("accel.config.machine").complete(machine))
  if ok then return plan end
  if type(plan) == "table" and plan.message then return nil, plan.message end
  error(plan, 0)
end

--- The keys of configurations, in order: { key =, type =, help =, section =, default =, flag = }.
--- example: accel.config.keys()[1].key --> "compute_environment"
---@return table[]
function M.keys()
  local schema, out = require "accel.config.schema", {}
  for _, row in ipairs(schema.list) do
    local flag = row.flag ~= false and "--" .. (row.flag_names and row.flag_names[1] or row.key) or nil
    out[#out + 1] = { key = row.key, type = row.type, help = row.help, section = row.topic.section, flag = flag,
      default = row.default, allowed = accel.json.array(row.allowed and { table.unpack(row.allowed) } or {}) }
  end
  return out
end

return M
