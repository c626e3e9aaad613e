--- The page on embedding, embed.md: the functions and types of the C API, with their declarations and comments, read from
--- the public headers. Used by reference.lua.
local markdown = require "reference.markdown"

local M = {}

--- Headers in the order of the page, all of host/include/accel but accel.h, which includes them: what a host uses comes first; the first
--- one's head comment begins the page. tests/lua/site_test.lua compares the list with the folder.
M.files = { "host.h", "version.h", "tensor.h", "lua.h", "base.h", "device.h", "op.h", "autograd.h", "precision.h", "file.h", "text.h", "comm.h",
  "ckpt.h", "track.h", "store.h", "profile.h", "launch.h", "attach.h", "http.h", "rest.h", "image.h", "sound.h", "opdef.h" }

-- A comment without its marks: lines.
local function plain(comment)
  local lines = {}
  for line in (comment:gsub("^/%*+", ""):gsub("%s*%*/%s*$", "") .. "\n"):gmatch "([^\n]*)\n" do
    lines[#lines + 1] = line:gsub("^%s*%* ?", ""):gsub("^%s(%S)", "%1"):gsub("%s+$", "")
  end
  while lines[1] == "" do table.remove(lines, 1) end
  return lines
end

-- Enumerators that a list macro holds, `AC_STATUS_LIST(AC_X)` between its #define and #undef, written out.
local function expand_lists(text)
  local rows = {}
  for list, body in text:gmatch "#define ([%w_]+)%(X%)%s*\\\n(.-[^\\])\n" do
    rows[list] = {}
    for name, rest in body:gmatch "X%(([%w_]+), ([^\n]-)%)%s-\\?\n" do table.insert(rows[list], { name, rest }) end
    local name, rest = body:match "X%(([%w_]+), ([^\n]-)%)%s*$"
    if name then table.insert(rows[list], { name, rest }) end
  end
  return (text:gsub("#define AC_X%b() ([^\n]*)\n%s*([%w_]+)%(AC_X%)\n#undef AC_X", function(form, list)
    local lines = {}
    for i, row in ipairs(rows[list] or {}) do
      local value = form:find "= code" and row[2]:match "^(%d+)"
      lines[i] = ("  AC_%s%s, /* %s */"):format(row[1], value and " = " .. value or "", row[2]:match '"(.-)"' or row[2])
    end
    return table.concat(lines, "\n")
  end))
end

-- The end of the declaration that begins at `from`: its semicolon outside braces and comments.
local function ending(text, from)
  local depth, i = 0, from
  while i <= #text do
    local c = text:sub(i, i)
    if c == "/" and text:sub(i + 1, i + 1) == "*" then
      i = select(2, text:find("*/", i, true)) or #text
    elseif c == "{" then
      depth = depth + 1
    elseif c == "}" then
      depth = depth - 1
    elseif c == ";" and depth == 0 then
      return i
    end
    i = i + 1
  end
end

-- { name =, kind = } of a declaration. nil: it gets no entry.
local function declared(text)
  if text:find "^AC_API " then return text:match "([%w_]+)%(", "function" end
  if text:find "^#define" then return text:match "^#define%s+(AC_[%u%d_]+_INIT)%f[^%w_]", "type" end
  local name = text:match "^typedef [%w_ ]+%(%*([%w_]+)%)" or text:match "([%w_]+);$"
  return name, "type"
end

-- A declaration without the breaks of long lines: who shows it breaks them anew.
local function unbroken(text)
  text = text:gsub("^AC_API ", ""):gsub("%s*\\\n", "\n")
  if not text:find "{" then return (text:gsub("\n%s+", " ")) end
  return (text:gsub("/%*.-%*/", function(comment) return (comment:gsub("\n%s*%* ", " "):gsub("\n%s*", " ")) end):gsub("\n%s%s%s%s%s%s%s%s+", " "))
end

-- The declarations of a header, in order: { name =, kind = "function" or "type", declaration =, text = lines }. The
-- comment is directly above it, or after it.
local function declarations(text)
  text = expand_lists(text)
  local list, comment, i = {}, nil, 1
  while i <= #text do
    local stop = text:find("\n", i, true) or #text
    local line = text:sub(i, stop - 1)
    local till = line:find "^/%*" and select(2, text:find("*/", i, true))
      or (line:find "^AC_API " or line:find "^typedef ") and ending(text, i)
    if line:find "^#define" then -- continues after a backslash
      till = stop - 1
      while text:sub(till, till) == "\\" do till = (text:find("\n", till + 2, true) or #text) - 1 end
    end
    if line:find "^/%*" then
      local heads_section = line:find "^/%* %-%-%-%-"
      comment = not heads_section and text:sub(till + 1, till + 1) == "\n" and plain(text:sub(i, till)) or nil
      i = (text:find("\n", till, true) or #text) + 1
    elseif till then
      local name, kind = declared(text:sub(i, till))
      local e = { name = name, kind = kind, text = comment or {}, declaration = unbroken(text:sub(i, till)) }
      comment = nil
      local trailing, last = text:match("^[ \t]*(/%*.-%*/)()", till + 1)
      if trailing then
        table.move(plain(trailing), 1, 100, #e.text + 1, e.text)
        till = last - 1
      end
      if name then list[#list + 1] = e end
      i = (text:find("\n", till, true) or #text) + 1
    else
      if not line:find "%S" then comment = nil end
      i = stop + 1
    end
  end
  return list
end

--- The page, and how many functions and types are on it.
---@param root string the folder of the headers
---@return string
---@return integer functions
---@return integer types
function M.page(root)
  local lines, n = { "# Embedding, in C\n" }, { ["function"] = 0, type = 0 }
  local function put(line) lines[#lines + 1] = line end
  for i, name in ipairs(M.files) do
    local file = assert(io.open(root .. "/" .. name, "rb"))
    local text = file:read "a"
    file:close()
    local about = plain(text:match "^/%*.-%*/")
    if i == 1 then
      put((markdown.text(about):gsub("```text", "```c")))
      put "\n`#include <accel/accel.h>`; pkg-config `accel`, CMake `accel::accel`; programs to begin with: `examples/embed/`.\n"
    end
    put(("\n## accel/%s\n"):format(name))
    for _, e in ipairs(declarations(text:gsub("^/%*.-%*/", "", 1))) do
      n[e.kind] = n[e.kind] + 1
      put(("\n### %s\n\n```c\n%s\n```\n"):format(e.name, e.declaration))
      if #e.text > 0 then put(markdown.text(e.text)) end
    end
  end
  return (table.concat(lines, "\n") .. "\n"):gsub("\n\n\n+", "\n\n"), n["function"], n.type
end

return M
