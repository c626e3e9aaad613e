--- The page on embedding, embed.md: the functions of the C API that a host uses, with their declarations and comments,
--- read from the public headers. Used by reference.lua.
local markdown = require "reference.markdown"

local M = {}

--- Headers whose functions are on the page; the first one's head comment begins it.
M.files = { "host.h", "tensor.h", "lua.h" }

-- A comment without its marks: lines.
local function plain(comment)
  local lines = {}
  for line in (comment:gsub("^/%*+", ""):gsub("%s*%*/%s*$", "") .. "\n"):gmatch "([^\n]*)\n" do
    lines[#lines + 1] = line:gsub("^%s*%* ?", ""):gsub("^%s(%S)", "%1"):gsub("%s+$", "")
  end
  while lines[1] == "" do table.remove(lines, 1) end
  return lines
end

-- Functions of a header in their order: {name =, declaration =, text = lines}. A comment stands above a function or a
-- group of them, or behind the declaration.
local function functions(text)
  local list, at = {}, 1
  while true do
    local from, till, declaration, rest = text:find("\n(AC_API [^;]-%b();)([^\n]*)", at)
    if not from then return list end
    local before = text:sub(at, from)
    local comment = before:match "(/%*[^\n].-%*/)%s*$"
    while comment and comment:find("*/.*/%*") do comment = comment:match "%*/.-(/%*.*)$" end
    local e = { name = declaration:match "([%w_]+)%(", text = comment and plain(comment) or {},
      declaration = declaration:gsub("^AC_API ", ""):gsub("\n%s+", "\n    ") }
    local trailing = rest:match "/%*.*"
    if trailing and not trailing:find "%*/" then
      local stop = text:find("*/", till, true)
      trailing, till = trailing .. text:sub(till + 1, stop + 1), stop + 1
    end
    if trailing then table.move(plain(trailing), 1, 100, #e.text + 1, e.text) end
    if #e.text == 0 and #list > 0 and not before:find "%S" then e.text = list[#list].text end
    list[#list + 1] = e
    at = till
  end
end

--- The page and the number of functions on it.
---@param root string the folder of the headers
---@return string
---@return integer
function M.page(root)
  local lines, n = { "# Embedding, in C\n" }, 0
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
    for _, e in ipairs(functions(text)) do
      n = n + 1
      put(("\n### %s\n\n```c\n%s\n```\n"):format(e.name, e.declaration))
      put(markdown.text(e.text))
    end
  end
  return (table.concat(lines, "\n") .. "\n"):gsub("\n\n\n+", "\n\n"), n
end

return M
