-- Rows of load.json and yaml_scalars.json; required by configs.lua.
local accel = require "accel"

local function problems_of(config, file)
  local out = {}
  for i, p in ipairs(file.problems) do out[i] = config.read.explain(file, p) end
  return table.concat(out, "\n")
end

local function fatal(file)
  for _, p in ipairs(file.problems) do
    if p.kind ~= "value" and p.kind ~= "type" and not (p.kind == "unknown" and not p.top) or p.key == "distributed_type" then return true end
  end
  return false
end

local function load_row(T, config, row)
  local name = "load " .. row.file
  local file, why = config.read.file(T.dir .. "/yaml/" .. row.file)
  if not file then return T.fail(name, "%s", why) end
  local said = problems_of(config, file)
  if row.error then
    if file.environment == "AMAZON_SAGEMAKER" and not fatal(file) then
      return T.list(name, "a SageMaker file is refused for a key that the loader itself added")
    end
    if not fatal(file) then return T.fail(name, "no error; the reference: %s", row.message) end
    if T.CRASH[row.error] or row.error == "ParserError" or T.names_fault(row.message, said) then return T.pass() end
    return T.fail(name, "'%s' names not what '%s' names", said, row.message)
  end
  if fatal(file) then
    if said:find("duplicate key", 1, true) then
      return T.list(name, "a key that is there twice is an error; the reference takes the last one silently")
    end
    return T.fail(name, "%s", said)
  end
  local fields = config.read.fields(file)
  for key, want in accel.pairs(row.fields) do
    local got = fields[key]
    local d = T.difference(want, got, key)
    if d and want == false and (got == "NO" or got == "no") then
      return T.list(name, "an unquoted NO is the word, by the key's type; YAML 1.1 makes it false")
    end
    if d and type(want) == "string" and tostring(got) == want then
      return T.list(name, "a number in quotes is a number, by the key's type")
    end
    if d then return T.fail(name, "%s", d) end
  end
  T.pass()
end

local STYLES <const> = { bool = "boolean", int = "number", float = "number", str = "string", date = "string", datetime = "string" }

local function plain(config, node)
  if node.kind == "scalar" then
    local kind, value = config.yaml11.pyyaml(node)
    return value, kind
  end
  local out = {}
  for i, item in ipairs(node) do
    if node.kind == "map" then out[item.key] = plain(config, item.value) else out[i] = plain(config, item) end
  end
  return out, node.kind == "map" and "dict" or "list"
end

local function scalar_row(T, config, row)
  local name = "scalar " .. row.yaml:gsub("\n", "\\n")
  local root, message = accel.yaml.decode(row.yaml)
  local kind, value, digits
  if root then
    local node = root[1].value
    if node.kind == "scalar" then kind, value, digits = config.yaml11.pyyaml(node) else value, kind = plain(config, node) end
  end
  if row.error then
    if not root or kind == "error" then return T.pass() end
    if row.yaml:find("\t", 1, true) then return T.list(name, "a tab behind the colon is white space in YAML 1.2") end
    return T.fail(name, "no error; the reference: %s", row.error)
  end
  if not root then return T.fail(name, "%s", message) end
  if kind ~= row.type then return T.fail(name, "want %s, got %s", row.type, kind) end
  local text = digits or config.scalar.python_text(value)
  if kind == "datetime" then text = text:gsub("T", " "):gsub("Z$", "+00:00") end
  if type(value) ~= "table" then
    if text ~= row.str then return T.fail(name, "want %s, got %s", row.str, text) end
    if STYLES[kind] and value ~= nil and type(value) ~= STYLES[kind] then return T.fail(name, "a %s came as %s", kind, type(value)) end
    return T.pass()
  end
  local d = T.difference(row.value, value)
  if d then return T.fail(name, "%s", d) end
  T.pass()
end

return function(T, config)
  for _, row in ipairs(T.read("load.json").rows) do load_row(T, config, row) end
  for _, row in ipairs(T.read("yaml_scalars.json").rows) do scalar_row(T, config, row) end
end
