--- What the comments above a function declare: the names and types of its parameters and options. Read from the source file when a
--- name is first used, so that an annotation is the only description. Used by the checks of arguments (util/checked.lua).
local read_file = require "accel.util.read_file"

local M = {}

-- ---- comments in files ----
local recent = setmetatable({}, { __mode = "v" }) -- the file that was read last, until a collection: its names are often asked for in a row

local function text_of(path)
  local file = recent[1]
  if not file or file.path ~= path then
    file = { path = path, text = "\n" .. (read_file(path, 1 << 24) or "") }
    recent[1] = file
  end
  return file.text
end

-- The position of the newline before line n.
local function line_at(text, n)
  local at = 1
  for _ = 2, n do at = text:find("\n", at + 1, true) or #text end
  return at
end

-- The comment lines that end at the newline `at`: back to the first line that does not begin with "-", at any depth.
local function above(text, at)
  local window = 1000
  repeat
    local part = text:sub(math.max(1, at - window), at - 1):reverse()
    local code, blank = part:find "[^-%s][ \t]*\n", part:find "\n[ \t]*\n"
    if blank and (not code or blank < code) then code = blank end
    window = window * 4
    if code or at <= window then return (part:sub(1, code and code + 1):reverse()) end
  until false
end

-- Adds the parameters of a comment: name -> {optional =, rest = the text after the name}.
local function read(found, block)
  if not block:find("@param", 1, true) then return end
  local current
  for line in block:gmatch "[^\n]+" do
    line = line:match "^%s*(.*)"
    local name, mark, rest = line:match "^%-%-%-@param%s+([%a_][%w_]*)(%??)%s+(.*)$"
    if name then
      current = { optional = mark == "?", rest = rest }
      found[name] = found[name] or current
    elseif current and line:find "^%-%-%-  " then
      current.rest = current.rest .. "\n" .. line:sub(5)
    else
      current = nil
    end
  end
end

--- The parameters in the comment above a Lua function: name -> {optional =, rest =}. For a constructor also its class's. `M.kind`
--- and `M.option` tell more.
---@param f function
---@param class? string the name of the class whose init it is
---@return table<string, table>
function M.of(f, class)
  local info, found = debug.getinfo(f, "S"), {}
  if info.source:sub(1, 1) ~= "@" then return found end
  local text = text_of(info.source:sub(2))
  local at = class and text:find("\nfunction " .. class:match "[^.]*$" .. ":init(", 1, true) or line_at(text, info.linedefined)
  read(found, above(text, at))
  at = class and text:find("\n---@class " .. class, 1, true)
  if at and text:find("^[^%w_.]", at + #class + 11) then
    local last = text:find("\n[^-]", at + 1) or #text
    read(found, above(text, at) .. text:sub(at, last))
  end
  return found
end

-- The end of a type: the first blank outside brackets that does not follow ":", "," or "|".
local function type_of(text)
  local simple = text:match "^[%w_.%[%]|?]+"
  if not text:find "^[^%s]*[%(%[{<\"]" then return simple or text:match "^%S*" end
  local depth, i = 0, 1
  while i <= #text do
    local c = text:sub(i, i)
    if c == '"' then
      i = text:find('"', i + 1, true) or #text
    elseif c:find "[%(%[{<]" then
      depth = depth + 1
    elseif c:find "[%)%]}>]" then
      depth = depth - 1
    elseif depth == 0 and c:find "%s" and not text:sub(1, i - 1):find "[:,|]%s*$" then
      break
    end
    i = i + 1
  end
  return text:sub(1, i - 1)
end

--- The declared type of a parameter.
---@param param table one of M.of
---@return string kind
function M.kind(param)
  param.kind = param.kind or type_of(param.rest:match "^[^\n]*")
  return param.kind
end

--- Whether a parameter has declared options.
---@param param table one of M.of
function M.has_options(param) return param.rest:find "^[%w|]*{" ~= nil or param.rest:find("\n ", 1, true) ~= nil end

--- The type of one of its options, and its default as text, or nil. Options stand one a line, "name type = default: meaning", or in the
--- type, "{name: type?, ...}".
---@param param table one of M.of
---@param name string
---@return string? kind
---@return string? default
function M.option(param, name)
  local rest = param.rest
  local line = rest:match("\n " .. name .. " ([^\n]*)")
  if line then
    local kind, default = line:match "^(%S+) = (.-): "
    kind = kind or line:match "^(%S+): "
    return kind, default
  end
  if rest:find "^[%w|]*{" then
    local from = select(2, rest:find("[{%s,]" .. name .. "%??:%s*"))
    return from and type_of((rest:sub(from + 1):gsub("[,}].*$", ""))):gsub("%?$", "") or nil
  end
end

return M
