-- What TAB offers at a prompt: names of the session, of a function that stands, globals, keywords; fields and
-- methods through metatables; attributes of tensors; modules inside require "..."; commands. Used by prompt.lua
-- and server.lua.
local accel = ...
local commands = accel.host_chunk "repl/commands"

local M = {}

local KEYWORDS = { "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in",
  "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while" }
local ATTRIBUTES = { "shape", "dtype", "device", "grad", "requires_grad", "is_leaf", "grad_fn", "ndim" }
local MOST = 500

-- Every name that can be asked of a value, nearest first: set[name] = its value, or true where it is not looked
-- at.
local function names_of(value, set, depth)
  if depth > 20 then return end
  if accel.is_tensor(value) then
    for _, name in ipairs(ATTRIBUTES) do set[name] = set[name] or true end
    return names_of(accel.Tensor, set, depth + 1)
  end
  local meta = debug.getmetatable(value)
  if type(value) == "table" then
    for name, field in next, value do
      if type(name) == "string" and set[name] == nil then set[name] = field end
    end
  end
  if type(meta) ~= "table" then return end
  local listed = rawget(meta, "__names")
  for name in next, type(listed) == "table" and listed or {} do
    if type(name) == "string" and set[name] == nil then set[name] = true end
  end
  local index = rawget(meta, "__index")
  if type(index) == "table" then names_of(index, set, depth + 1) end
end

-- The value of "a.b[1].c", looked up as Lua would, without calls; nil: there is none.
local function value_of(lookup, path)
  local name, rest = path:match "^([%a_][%w_]*)(.*)$"
  if not name then return nil end
  local value = lookup(name)
  while rest ~= "" do
    local key, more = rest:match "^%.([%a_][%w_]*)(.*)$"
    if not key then
      key, more = rest:match "^%[(%-?%d+)%](.*)$"
      key = math.tointeger(tonumber(key))
    end
    if key == nil or value == nil then return nil end
    local ok, field = pcall(function() return value[key] end)
    if not ok then return nil end
    value, rest = field, more
  end
  return value
end

local function add(list, seen, prefix, part, name)
  if #list >= MOST or name:sub(1, #part) ~= part or seen[name] then return end
  if not name:match "^[%a_][%w_]*$" or (name:sub(1, 1) == "_" and part == "") then return end
  seen[name] = true
  list[#list + 1] = prefix .. name
end

local function modules(part)
  local list, seen = {}, {}
  local names = { ["accel"] = true }
  local all = {}
  names_of(accel, all, 0)
  for name in next, all do
    if package.searchpath("accel." .. name, package.path) then names["accel." .. name] = true end
  end
  for name in next, package.loaded do names[name] = true end
  for name in next, package.preload do names[name] = true end
  for name in accel.pairs(names) do
    if name:sub(1, #part) == part and not seen[name] then list[#list + 1] = name end
  end
  return list
end

-- The function in whose table of options the line ends, "optim.AdamW(params, {": its name; nil: in none, or behind
-- a `=`.
local function options_of(before)
  local depth = 0
  for i = #before, 1, -1 do
    local c = before:sub(i, i)
    if c == "}" then depth = depth + 1 end
    if c == "{" then depth = depth - 1 end
    if depth < 0 then
      if not before:sub(i + 1):find "^%s*$" and not before:find ",%s*$" then return nil end
      local head = before:sub(1, i - 1)
      return head:match "([%a_][%w_.:]*)%s*%([^()]*$" or head:match "([%a_][%w_.:]*)%s*$"
    end
  end
end

--- Words that could stand in place of `word`, the last of the line before the cursor.
---@return string[]
function M.words(session, line, word, more_commands)
  local list, seen = {}, {}
  if line:match "^%s*:%a*$" and word:sub(1, 1) == ":" or line:match "^%s*:%a*$" then
    local prefix = word:sub(1, 1) == ":" and ":" or ""
    local part = word:sub(#prefix + 1)
    local names = { "help", "doc", "save", "quit", table.unpack(more_commands or {}) }
    table.move(commands.names, 1, #commands.names, #names + 1, names)
    table.sort(names)
    for _, name in ipairs(names) do add(list, seen, prefix, part, name) end
    return list
  end
  local module = line:match "require%s*%(?%s*[\"']([%w_.]*)$"
  if module then return modules(module) end
  if line:match "[\"'][^\"']*$" and select(2, line:gsub("[\"']", "")) % 2 == 1 then return list end -- inside a text
  local call = options_of(line:sub(1, #line - #word))
  local keys = call and accel.host_chunk("help").option_keys(call) or list
  for _, key in ipairs(keys) do add(list, seen, "", word, key) end
  if #list > 0 then return list end
  local path, mark, part = word:match "^(.*)([.:])([%w_]*)$"
  local function lookup(name)
    local kept = rawget(session.kept, name)
    if kept ~= nil then return kept end
    if session.frames then
      local found, value = session.frames:get(name)
      if found then return value end
    end
    return rawget(_G, name)
  end
  if path then
    -- "a[1].b" is two words for the editor
    local value
    if path == "" then
      path = line:sub(1, #line - #word):match "([%w_.%[%]]+)$" or ""
      value = value_of(lookup, path)
      path = ""
    else
      value = value_of(lookup, path)
    end
    if type(value) == "string" then value = string end
    if value == nil then return list end
    local set = {}
    names_of(value, set, 0)
    for name, field in accel.pairs(set) do
      if mark == "." or type(field) == "function" or field == true or type(field) == "userdata" then
        add(list, seen, path .. mark, part, name)
      end
    end
    return list
  end
  local all = {}
  for name in next, session.kept do all[name] = true end
  for _, v in ipairs(session.frames and session.frames:variables() or {}) do all[v.name] = true end
  for name in next, _G do all[name] = true end
  for _, name in ipairs(KEYWORDS) do all[name] = true end
  for name in accel.pairs(all) do
    if type(name) == "string" then add(list, seen, "", word, name) end
  end
  return list
end

return M
