-- TAB completion at a prompt: names of the session, of a stopped function, globals, keywords, fields and methods
-- through metatables, attributes of tensors, modules inside require "...", commands. Used by prompt.lua and server.lua.
local accel = ...
local commands = accel.host_chunk "repl/commands"
local names = accel.host_chunk "repl/names"

local M = {}

local KEYWORDS = { "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in",
  "local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while" }
local MOST = 2000

-- The value of "a.b[1].c", looked up as Lua would, without calls, or nil.
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
  local found = { ["accel"] = true }
  for name in next, names.of(accel) do
    if package.searchpath("accel." .. name, package.path) then found["accel." .. name] = true end
  end
  for name in next, package.loaded do found[name] = true end
  for name in next, package.preload do found[name] = true end
  for name in accel.pairs(found) do
    if name:sub(1, #part) == part and not seen[name] then list[#list + 1] = name end
  end
  return list
end

-- The function that the text is in a call of, or that stands at its end: "AdamW" for "AdamW(net:parameters(), " and for "AdamW ".
local function called(head)
  local name, depth = head:match "([%a_][%w_.:]*)%s*$", 0
  if name and name ~= "return" then return name end
  for i = #head, 1, -1 do
    local c = head:sub(i, i)
    depth = depth + (c == ")" and 1 or c == "(" and -1 or 0)
    if depth < 0 then return head:sub(1, i - 1):match "([%a_][%w_.:]*)%s*$" end
  end
end

-- The function in whose table of options the line ends, "optim.AdamW(params, {": its name. nil: in none, or after a
-- `=`.
local function options_of(before)
  local depth = 0
  for i = #before, 1, -1 do
    local c = before:sub(i, i)
    if c == "}" then depth = depth + 1 end
    if c == "{" then depth = depth - 1 end
    if depth < 0 then
      if not before:sub(i + 1):find "^%s*$" and not before:find ",%s*$" then return nil end
      return called(before:sub(1, i - 1))
    end
  end
end

-- Names of options in a native op's signature, "sum(x: tensor, dim: dims?, keepdim: bool = false) -> tensor".
local function op_keys(name)
  local keys = {}
  for _, op in ipairs(accel.ops()) do
    local list = op.name == name and op.signature:match "%((.*)%)" or ""
    for key, kind in list:gmatch "([%a_][%w_]*): ([^,]*)" do
      if kind:find "[=?]" then keys[#keys + 1] = key end
    end
  end
  return keys
end

-- The possible keys in a function's table of options, "optim.AdamW", "t:sum" with a tensor t.
local function option_keys(lookup, call)
  local owner, method = call:match "^(.*):([%w_]+)$"
  if owner and accel.is_tensor(value_of(lookup, owner)) then call = "Tensor:" .. method end
  local keys, texts = accel.host_chunk("help").option_keys(call)
  if #keys > 0 then return keys, texts end
  return op_keys(method or call:match "[%w_]+$"), {}
end

-- Lines of at most 80 columns on these options, "lr  number = 1e-3: learning rate".
local function help_of(keys, texts)
  local lines, longest = {}, 0
  for _, key in ipairs(keys) do longest = math.max(longest, #key) end
  for _, key in ipairs(keys) do
    if texts[key] then
      local line = ("  %-" .. longest .. "s  %s"):format(key, texts[key])
      lines[#lines + 1] = #line > 79 and line:sub(1, 76) .. "..." or line
    end
  end
  return lines
end

-- The longest beginning that all of these have.
local function common(list)
  local prefix = list[1] or ""
  for _, name in ipairs(list) do
    while name:sub(1, #prefix) ~= prefix do prefix = prefix:sub(1, -2) end
  end
  return prefix
end

--- For an editor: the words, after `say` has shown the help of options among them, which it then does not list once more.
---@param words string[]
---@param help? string[]
---@param word string
---@param say fun(lines: string[])
---@return string[]
function M.offer(words, help, word, say)
  if not help or #help == 0 then return words end
  say(help)
  local prefix = common(words)
  return #prefix > #word and { prefix } or {}
end

--- Words that could stand in place of `word`, the last of the line before the cursor, and lines of help if they are options.
---@return string[]
---@return string[]? help
function M.words(session, line, word, more_commands)
  local list, seen = {}, {}
  if line:match "^%s*:%a*$" and word:sub(1, 1) == ":" or line:match "^%s*:%a*$" then
    local prefix = word:sub(1, 1) == ":" and ":" or ""
    local part = word:sub(#prefix + 1)
    local all = { "help", "doc", "save", "quit", table.unpack(more_commands or {}) }
    table.move(commands.names, 1, #commands.names, #all + 1, all)
    table.sort(all)
    for _, name in ipairs(all) do add(list, seen, prefix, part, name) end
    return list
  end
  local module = line:match "require%s*%(?%s*[\"']([%w_.]*)$"
  if module then return modules(module) end
  if line:match "[\"'][^\"']*$" and select(2, line:gsub("[\"']", "")) % 2 == 1 then return list end -- inside a text
  local function lookup(name) return (session:lookup(name)) end
  local call = options_of(line:sub(1, #line - #word))
  local keys, texts = list, nil
  if call then keys, texts = option_keys(lookup, call) end
  for _, key in ipairs(keys) do add(list, seen, "", word, key) end
  if #list > 0 then return list, texts and help_of(list, texts) end
  local path, mark, part = word:match "^(.*)([.:])([%w_]*)$"
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
    for name, field in accel.pairs(names.of(value)) do
      if mark == "." or names.is_method(value, name, field) then
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
