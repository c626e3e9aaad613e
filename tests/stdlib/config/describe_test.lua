-- What is made of the schema for people and editors: the page has every key with its type, flag and variable; the stub in lua/meta is
-- that of this schema; values that the schema refuses are of no type in it.
--   accel-run tests/stdlib/config/describe_test.lua
local describe = require "accel.config.describe"
local schema = require "accel.config.schema"

local source = os.getenv "ACCEL_TEST_SRC" or arg[0]:match "^(.*)/tests/" or "."
local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local stub = describe.stub()
assert(read(source .. "/lua/meta/config.lua") == stub, "lua/meta/config.lua is out of date: cmake --build <folder> --target meta")

local page, n = describe.page()
assert(n == #schema.list, n)
for _, row in ipairs(schema.list) do
  local from = assert(page:find("\n### " .. row.key .. "\n", 1, true), row.key)
  local text = page:sub(from, (page:find("\n##", from + 5, true) or 0) - 1)
  if row.flag ~= false then assert(text:find("- flag: `--", 1, true), text) end
  for _, name in ipairs(type(row.env) == "table" and row.env or { row.env }) do assert(text:find("`" .. name .. "`", 1, true), text) end
  for _, word in ipairs(row.type ~= "switch" and row.allowed or {}) do assert(text:find("`" .. tostring(word) .. "`", 1, true), text) end
  if row.when then assert(text:find "\n%- has an effect with ", text) end
end
assert(page:find("### fsdp_version\n\n1: flat parameters, 2: each by itself.\n\n- one of `1`, `2`\n- default: `1`\n", 1, true))

-- Classes: each section one, each key with a type; every type that is named is there.
local declared = {}
for name in stub:gmatch "%-%-%-@%a+ (accel[%w_.]+)" do declared[name] = true end
for name in stub:gmatch "[?:] (accel%.config%.[%w_]+)" do assert(declared[name], name .. " is declared nowhere") end
for section in next, schema.sections do
  assert(stub:find(("---@field %s? accel.config.%s\n"):format(section, section), 1, true), section)
end
for _, row in ipairs(schema.list) do
  if not row.topic.environment then assert(stub:find(("---@field %s? "):format(row.key), 1, true), row.key) end
end
assert(stub:find('---@field mixed_precision? "no"|"fp16"|"bf16"|"fp8" # ', 1, true))
print(("%d keys and flags"):format(n))
