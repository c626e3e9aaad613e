-- Whether a breakpoint can be met: is its file loaded, is there code at its line. Asked by attached.lua for a prompt or an editor that sets one.
local accel = ...

local Frames = accel.host_chunk "repl/frames"
local code_lines = accel.host_chunk "repl/code_lines"

local M = {}

--- Whether a chunk's source, "@/home/a/train.lua", is the file that somebody calls train.lua, a/train.lua or ./train.lua.
function M.same_file(source, file)
  if source:sub(1, 1) ~= "@" then return source:sub(2) == file end
  local path = source:sub(2):gsub("^%./", "")
  file = file:gsub("^%./", "")
  if #path < #file then path, file = file, path end
  return path:sub(-#file) == file and (#path == #file or path:sub(-#file - 1, -#file - 1) == "/")
end

-- Sources of loaded code: functions of the stack, globals, modules and their content.
local function sources(frames)
  local set = {}
  local function add(f)
    if type(f) == "function" then set[debug.getinfo(f, "S").source] = true end
  end
  for _, frame in ipairs(frames and frames.list or {}) do set[frame.path] = true end
  for _, value in next, _G do add(value) end
  for name, module in next, package.loaded do
    local path = type(name) == "string" and package.searchpath(name, package.path)
    if path then set["@" .. path] = true end
    if type(module) == "table" then
      for _, value in next, module do add(value) end
    end
  end
  if type(arg) == "table" and arg[0] then set["@" .. arg[0]] = true end
  return set
end

-- The name without folders and its ending.
local function stem(file) return (file:match "[^/@]*$":gsub("%.lua$", "")) end

local function has_code(text)
  return not (text:find "^%s*$" or text:find "^%s*%-%-" or text:find "^%s*else%s*$" or text:find "^%s*do%s*$")
end

--- The status of a breakpoint {file, line}: {} if it can be reached. pending: why it may be reached later. line: the next line with
--- code. never: why it cannot be.
---@return {pending?: string, line?: integer, never?: string}
function M.look(b, frames)
  local found, names = {}, {}
  for source in next, sources(frames) do
    if source:sub(1, 1) == "@" then
      if M.same_file(source, b.file) then found[#found + 1] = source:sub(2) end
      if not Frames.is_library(source) then names[#names + 1] = stem(source) end
    elseif M.same_file(source, b.file) then
      return {} -- a chunk that is not a file
    end
  end
  if #found == 0 then
    table.sort(names)
    local near = accel.nearest(stem(b.file), names)
    return { pending = ("no file %s is loaded so far%s"):format(b.file, near and ("; did you mean %s.lua?"):format(near) or "") }
  end
  table.sort(found)
  return M.in_file(found[1], b.line, b.file)
end

--- The same for a line of a file that can be read, if it cannot it raises. name: for messages.
---@param name? string
---@return {line?: integer, never?: string}
function M.in_file(path, wanted, name)
  local file <close> = assert(io.open(path, "rb"))
  local n, line, whole = 0, nil, file:read "a"
  local set = code_lines.of(whole)
  for text in whole:gmatch "([^\n]*)\n?" do
    n = n + 1
    if n >= wanted and (set and set[n] or not set and has_code(text)) then
      line = n
      break
    end
  end
  if not line then n = select(2, whole:gsub("[^\n]*\n", "")) + (whole:find "[^\n]$" and 1 or 0) end
  if line == wanted then return {} end
  if line then return { line = line } end
  name = name or path
  return { never = n < wanted and ("%s has %d lines"):format(name, n) or ("%s has no code from line %d on"):format(name, wanted) }
end

--- The files of loaded code, "@train.lua" each.
---@return string[]
function M.files(frames)
  local list = {}
  for source in next, sources(frames) do
    if source:sub(1, 1) == "@" then list[#list + 1] = source end
  end
  table.sort(list)
  return list
end

return M
