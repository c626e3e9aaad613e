--- HfDeepSpeedConfig: DeepSpeed's own configuration, a table or a JSON file, and the replacement of its "auto" values. Used by
--- DeepSpeedPlugin.
local accel = require "accel"
local base64 = require "accel.util.base64"
local check = require "accel.util.check"
local class = require "accel.util.class"
local raise = require "accel.util.raise"
local read_json = require "accel.util.read_json"
local scalar = require "accel.config.scalar"

local M = {}

--- A configuration of DeepSpeed: a table, the path of a JSON file, JSON text, or that in base64.
--- example: accel.accelerator.HfDeepSpeedConfig({ zero_optimization = { stage = 3 } }):is_zero3() --> true
---@class accel.accelerator.HfDeepSpeedConfig
---@field config table
local HfDeepSpeedConfig = class "accel.accelerator.HfDeepSpeedConfig"
M.HfDeepSpeedConfig = HfDeepSpeedConfig

local function copy(value)
  if type(value) ~= "table" then return value end
  local out = setmetatable({}, getmetatable(value))
  for key, item in next, value do out[key] = copy(item) end
  return out
end

--- Decodes base 64, also in its form for addresses. nil for other text.
local function from_base64(text)
  local plain = text:gsub("%-", "+"):gsub("_", "/"):gsub("=+$", "")
  return plain ~= "" and base64.decode(plain .. ("="):rep(-#plain % 4)) or nil
end

local function decoded(text)
  local ok, value = pcall(accel.json.decode, text)
  return ok and type(value) == "table" and value or nil
end

local function from_text(text)
  local value = text:find "^%s*{" and decoded(text)
  if value then return value end
  local message, code
  value, message, code = read_json(text)
  if value then return value end
  if code ~= "not_found" then raise("DeepSpeed's configuration: %s", message) end
  local bytes = from_base64(text)
  value = bytes and decoded(bytes)
  if not value then
    local shown = #text > 80 and text:sub(1, 77) .. "..." or text
    raise("DeepSpeed's configuration: file %s does not exist (deepspeed_config_file; relative paths start at the launch folder: %s). "
      .. "It is the path of a JSON file, a table, or JSON in base64", shown, os.getenv "PWD" or ".")
  end
  return value
end

---@param given string|table
function HfDeepSpeedConfig:init(given)
  if type(given) ~= "table" and type(given) ~= "string" or class.of(given) then
    raise("DeepSpeed's configuration: expected a table, a path, JSON or base64, got %s", check.shown(given))
  end
  self.config = type(given) == "table" and copy(given) or from_text(given)
  self:set_stage_and_offload()
end

--- The stage and the devices of offloading. Read again after `auto` was replaced.
function HfDeepSpeedConfig:set_stage_and_offload()
  local stage = self:get_value("zero_optimization.stage", -1)
  self._stage = math.type(stage) == "integer" and stage or -1
  self._offload = false
  if self._stage >= 2 then
    for _, key in ipairs { "offload_optimizer", "offload_param" } do
      local device = self:get_value(("zero_optimization.%s.device"):format(key))
      if device == "cpu" or device == "nvme" then self._offload = true end
    end
  end
end

--- The table that holds the last part of a dotted key, and that part. nil if it is missing.
--- example: local c = accel.accelerator.HfDeepSpeedConfig { a = { b = 2 } } local t, k = c:find_config_node "a.b" return t[k] --> 2
---@param key string
---@return table? node
---@return string last
function HfDeepSpeedConfig:find_config_node(key)
  local node, last = self.config, key
  for part, rest in key:gmatch "([^.]+)(%.?)" do
    if rest == "" then
      last = part
      break
    end
    node = type(node) == "table" and node[part] or nil
  end
  return type(node) == "table" and node or nil, last
end

--- The value of a dotted key, or the default if it is missing.
--- example: accel.accelerator.HfDeepSpeedConfig({ a = { b = 2 } }):get_value("a.c", 7) --> 7
---@param key string
---@param default? any
function HfDeepSpeedConfig:get_value(key, default, ...)
  check.surplus("get_value", ...)
  local node, last = self:find_config_node(key)
  local value = node and node[last]
  if value == nil or value == accel.json.null then return default end
  return value
end

--- Removes a dotted key and everything below it. must_exist: raise if it is missing.
--- example: local c = accel.accelerator.HfDeepSpeedConfig { a = { b = 2 } } c:del_config_sub_tree "a.b" return c:get_value "a.b" --> nil
---@param key string
---@param must_exist? boolean
function HfDeepSpeedConfig:del_config_sub_tree(key, must_exist, ...)
  check.surplus("del_config_sub_tree", ...)
  local node, last = self:find_config_node(key)
  if node and node[last] ~= nil then
    node[last] = nil
  elseif must_exist then
    raise("DeepSpeed's configuration has no '%s'", key)
  end
end

--- Whether a dotted key holds something that counts as true, as false. A key that is not there is neither.
--- example: accel.accelerator.HfDeepSpeedConfig({ fp16 = { enabled = true } }):is_true "fp16.enabled" --> true
---@param key string
function HfDeepSpeedConfig:is_true(key)
  local value = self:get_value(key)
  return value ~= nil and value ~= false and value ~= 0
end

--- Whether a dotted key is there and holds false or 0.
--- example: accel.accelerator.HfDeepSpeedConfig({}):is_false "fp16.enabled" --> false
---@param key string
function HfDeepSpeedConfig:is_false(key)
  local value = self:get_value(key)
  return value ~= nil and (value == false or value == 0)
end

--- Whether optimizer states and gradients are sharded: stage 2.
--- example: accel.accelerator.HfDeepSpeedConfig({ zero_optimization = { stage = 2 } }):is_zero2() --> true
---@return boolean
function HfDeepSpeedConfig:is_zero2() return self._stage == 2 end

--- Whether parameters are sharded as well (stage 3).
--- example: accel.accelerator.HfDeepSpeedConfig({ zero_optimization = { stage = 2 } }):is_zero3() --> false
---@return boolean
function HfDeepSpeedConfig:is_zero3() return self._stage == 3 end

--- Whether something of stages 2 and 3 is offloaded to the CPU or to nvme.
--- example: accel.accelerator.HfDeepSpeedConfig({}):is_offload() --> false
---@return boolean
function HfDeepSpeedConfig:is_offload() return self._offload end

--- Replaces one key that is "auto" by a value by dotted key. Returns nothing, or "absent" if values lack it, or the text of a
--- mismatch with must_match.
---@param key string key path, "optimizer.params.lr"
---@param values table values for "auto", by key path
---@param must_match? boolean compare values that are set [true]
---@return string? how
---@return string? text
function HfDeepSpeedConfig:fill(key, values, must_match)
  local node, last = self:find_config_node(key)
  if not node then return nil end
  if node[last] == "auto" then
    if values[key] == nil then return "absent" end
    node[last] = values[key]
  elseif must_match ~= false and node[last] ~= nil and values[key] ~= nil and node[last] ~= values[key] then
    return "mismatch", ("- ds %s=%s vs arg %s=%s"):format(key, scalar.python_text(node[last]), key,
      scalar.python_text(values[key]))
  end
  return nil
end

--- Fills every "auto" from values by dotted key. Missing values raise one error that names all such keys. With must_match, differing
--- values do the same.
---@param values table<string, any>
---@param must_match boolean
---@param optional? table<string, true> keys that may stay "auto"
function HfDeepSpeedConfig:process(values, must_match, optional, ...)
  check.surplus("process", ...)
  local absent, mismatches = {}, {}
  local function walk(prefix, node)
    for key, value in accel.pairs(node) do
      if type(key) == "string" and type(value) == "table" then
        walk(prefix .. key .. ".", value)
      elseif type(key) == "string" then
        local how, text = self:fill(prefix .. key, values, must_match)
        if how == "absent" and not (optional and optional[prefix .. key]) then absent[#absent + 1] = "`" .. prefix .. key .. "`" end
        if how == "mismatch" then mismatches[#mismatches + 1] = text end
      end
    end
  end
  walk("", self.config)
  if #absent > 0 then
    raise("%s not found in the values given: say %s without \"auto\" in the DeepSpeed config, or give it",
      table.concat(absent, ", "), #absent > 1 and "them" or "it")
  end
  if #mismatches > 0 then
    raise("correct these values of the DeepSpeed config, which differ from those given, or set them to \"auto\":\n%s",
      table.concat(mismatches, "\n"))
  end
  self:set_stage_and_offload()
end

return M
