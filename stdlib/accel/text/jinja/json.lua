--- The filter tojson as Transformers defines it for chat templates: Python's json.dumps with ensure_ascii = False.
local limits = require "accel.text.jinja.limits"
local values = require "accel.text.jinja.values"

local problem = limits.problem
local kind = values.kind

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\b"] = "\\b", ["\f"] = "\\f" }

local function string_of(s, o)
  local _, n = s:gsub('[%z\1-\31"\\]', "")
  if o.ensure_ascii then n = n + select(2, s:gsub("[\128-\255]", "")) end
  o.budget:work(#s // 8 + 2 * n)
  o.budget:bytes(#s + 5 * n, o.line)
  s = s:gsub('[%z\1-\31"\\]', function(c) return escapes[c] or ("\\u%04x"):format(c:byte()) end)
  if o.ensure_ascii then
    s = s:gsub(utf8.charpattern, function(c)
      local code = utf8.codepoint(c)
      if code < 127 or (code == 127) then return nil end
      if code < 0x10000 then return ("\\u%04x"):format(code) end
      code = code - 0x10000
      return ("\\u%04x\\u%04x"):format(0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF))
    end)
  end
  return '"' .. s .. '"'
end

local function key_of(key, o)
  if type(key) == "string" then return string_of(key, o) end
  if type(key) == "boolean" then return key and '"true"' or '"false"' end
  return '"' .. values.text(key, o.budget) .. '"'
end

local write

local function join(parts, open, close, o, depth)
  if #parts == 0 then return open .. close end
  if not o.indent then return open .. o.budget:joined(parts, o.item) .. close end
  o.budget:bytes(#o.indent * (depth + 1), o.line)
  local line = "\n" .. o.indent:rep(depth + 1)
  return open .. line .. o.budget:joined(parts, o.item .. line) .. "\n" .. o.indent:rep(depth) .. close
end

function write(v, o, depth)
  if depth > limits.DEPTH then problem(o.line, "tojson: nested more than %d deep", limits.DEPTH) end
  local k = kind(v)
  o.budget:work((k == "list" or k == "dict") and 20 or k == "float" and 40 or 2)
  if k == "string" then return string_of(v, o) end
  if k == "none" then return "null" end
  if k == "boolean" then return v and "true" or "false" end
  if k == "integer" then return ("%d"):format(v) end
  if k == "big" then return v.text end
  if k == "float" then
    local text = values.float_text(v)
    return ({ inf = "Infinity", ["-inf"] = "-Infinity", nan = "NaN" })[text] or text
  end
  local parts = {}
  if k == "list" then
    for i = 1, v.n do parts[i] = write(v.items[i], o, depth + 1) end
    return join(parts, "[", "]", o, depth)
  elseif k == "dict" then
    local keys = v.keys
    if o.sort_keys then
      keys = table.move(keys, 1, #keys, 1, {})
      table.sort(keys, function(a, b) return values.less(a, b, o.budget, o.line) end)
    end
    for i, key in ipairs(keys) do parts[i] = key_of(key, o) .. o.colon .. write(v.map[key], o, depth + 1) end
    return join(parts, "{", "}", o, depth)
  end
  problem(o.line, "tojson: %s has no JSON", values.type_name(v))
end

--- JSON of a value. named: ensure_ascii, indent, separators, sort_keys.
---@param v any
---@param named table<string, any>
---@param budget table
---@param line integer
---@return string
return function(v, named, budget, line)
  local o = { budget = budget, line = line, ensure_ascii = named.ensure_ascii == true, sort_keys = named.sort_keys == true }
  local indent = named.indent
  if math.type(indent) == "integer" and indent >= 0 and indent <= 64 then
    o.indent = (" "):rep(indent)
  elseif type(indent) == "string" and #indent <= 64 then
    o.indent = indent
  elseif indent ~= nil and kind(indent) ~= "none" then
    problem(line, "tojson: indent must be a number of at most 64 or a string, got %s", values.type_name(indent))
  end
  o.item, o.colon = o.indent and "," or ", ", ": "
  local separators = named.separators
  if separators ~= nil and kind(separators) ~= "none" then
    local pair = kind(separators) == "list" and separators.n == 2 and separators.items or {}
    if type(pair[1]) ~= "string" or type(pair[2]) ~= "string" then
      problem(line, "tojson: separators must be two strings")
    end
    o.item, o.colon = separators.items[1], separators.items[2]
  end
  return write(v, o, 0)
end
