--- The sources of values: flag, environment, --config_file, the project's accel.yaml, accel.json or accel.lua, the user's file, default.
--- Every key is decided by the first that names it. Called by accel-run launch and config.
local read = require "accel.config.read"
local scalar = require "accel.config.scalar"
local schema = require "accel.config.schema"
local open_read = require("accel.file.core").open_read

local M = {}

local PROJECT <const> = { "accel.yaml", "accel.yml", "accel.json", "accel.lua" }

local function exists(path)
  local file = open_read(path)
  if file then file:close() end
  return file ~= nil
end

--- A folder of the environment. Relative ones are invalid, by the XDG specification.
local function folder(name)
  local value = os.getenv(name)
  return value and value:sub(1, 1) == "/" and value or nil
end

--- The user's own configuration: accel's place, which is written to.
---@return string?
function M.user_file()
  local home = folder "HOME"
  local base = folder "XDG_CONFIG_HOME" or home and home .. "/.config"
  return base and base .. "/accel/config.yaml"
end

--- The folder of Accelerate's default configuration.
---@return string[] paths
function M.reference_files()
  local home = folder "HOME"
  local cache = folder "XDG_CACHE_HOME" or home and home .. "/.cache"
  local base = folder "HF_HOME" or cache and cache .. "/huggingface"
  if not base then return {} end
  return { base .. "/accelerate/default_config.yaml", base .. "/accelerate/default_config.json" }
end

--- The files of a launch, the highest first. A project may have one.
---@param config_file? string
---@return accel.config.File[]? files
---@return string? message
function M.files(config_file)
  local paths, files = {}, {}
  if config_file then paths[1] = config_file end
  local project = {}
  for _, name in ipairs(PROJECT) do
    if exists(name) then project[#project + 1] = name end
  end
  if #project > 1 then return nil, ("there are %s: keep one"):format(table.concat(project, " and ")) end
  paths[#paths + 1] = project[1]
  local user = M.user_file()
  if user and exists(user) then
    paths[#paths + 1] = user
  else
    for _, path in ipairs(M.reference_files()) do
      if exists(path) then
        paths[#paths + 1] = path
        break
      end
    end
  end
  for i, path in ipairs(paths) do
    local file, why = read.file(path)
    if not file then return nil, why end
    files[i] = file
  end
  return files
end

--- One configuration of several: each key from the first that names it, each problem of a key that counts. Lines become "file:line".
---@param files accel.config.File[]
---@return accel.config.File?
function M.merge(files)
  if #files <= 1 then return files[1] end
  local out = { path = files[1].path, environment = files[1].environment, values = {}, given = {}, lines = {}, order = {},
    problems = {}, paths = {} }
  for i, file in ipairs(files) do
    for key in next, file.given do
      if not out.given[key] then
        out.given[key], out.values[key], out.lines[key] = true, file.values[key], file.lines[key]
        out.paths[key] = file.path
      end
    end
    for section, order in next, file.order do out.order[section] = out.order[section] or order end
    for _, p in ipairs(file.problems) do
      local counts = p.key == nil or out.paths[p.key] == nil or out.paths[p.key] == file.path
      -- a key that is missing may stand in another file
      if counts and p.kind ~= "missing" then
        local copy = { message = p.message, kind = p.kind, key = p.key, line = p.line, top = p.top }
        if i > 1 then copy.message, copy.line = read.explain(file, p), nil end
        out.problems[#out.problems + 1] = copy
      end
    end
  end
  if out.values.distributed_type == nil then
    out.problems[#out.problems + 1] = { kind = "missing", key = "distributed_type",
      message = "distributed_type is missing; add it" }
  end
  return out
end

--- Variables that accel reads. The machine's own world is not among them.
local function is_ours(name) return name:find "^ACCELERATE_" or name:find "^FSDP_" or name:find "^MEGATRON_LM_"
  or name:find "^PARALLELISM_CONFIG_" end

--- Values of the environment by key, with the variable each came from. Raises { message = } for one that is none.
---@return table<string, any> values
---@return table<string, string> names
function M.from_environment()
  local values, names = {}, {}
  for _, row in ipairs(schema.list) do
    if type(row.env) == "string" and is_ours(row.env) then
      local text = os.getenv(row.env)
      if text then
        local value, expected = scalar.typed(row, text)
        local allowed
        if value ~= nil then value, allowed = scalar.allowed(row, value) end
        if value == nil then
          error({ message = ("%s=%s in the environment must be %s"):format(row.env, text, expected or allowed) }, 0)
        end
        values[row.key], names[row.key] = value, row.env
      end
    end
  end
  return values, names
end

--- All sources of a launch's values: arguments, with the environment's values below the flags, and one file.
---@param arguments accel.config.Arguments
---@return accel.config.Arguments? arguments
---@return accel.config.File|string? file, or why not
---@return table<string, string>? variables by key
function M.resolve(arguments)
  local files, why = M.files(arguments.values.config_file)
  if not files then return nil, why end
  local ok, values, names = pcall(M.from_environment)
  if not ok then return nil, type(values) == "table" and values.message or tostring(values) end
  for key, value in next, values do
    if arguments.values[key] == nil then
      arguments.values[key], arguments.given[key] = value, true
    else
      names[key] = nil
    end
  end
  return arguments, M.merge(files), names
end

return M
