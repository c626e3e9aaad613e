-- Help topics besides the reference pages: examples, options of accel-run, parameters, Lua's own names. Used by
-- help.lua.
local accel = ...
local layout = accel.host_chunk "help/layout"
local pages = accel.host_chunk "help/pages"

local M = {}

local function quoted(path) return "'" .. path:gsub("'", "'\\''") .. "'" end

local function output_of(command)
  local pipe <close> = io.popen(command)
  return pipe and pipe:read "a" or ""
end

-- ---- examples ----
local function examples_folder()
  local root = pages.folder("01_tensors.lua", { "accel/../../examples", "../../doc/accel/examples" })
  if not root then return nil end
  local real = output_of(("cd -P %s 2>/dev/null && pwd -P"):format(quoted(root))):gsub("\n$", "")
  return real ~= "" and real or root
end

local function example_names(root)
  local names = pages.files(root, ".lua")
  for i, name in ipairs(names) do names[i] = name .. ".lua" end
  return names
end

-- The comment that an example begins with.
local function comment(path)
  local lines = {}
  for line in (pages.read(path) or ""):gmatch "([^\n]*)\n" do
    local text = line:match "^%-%-%-? ?(.*)$"
    if not text and not line:find "^#!" then break end
    lines[#lines + 1] = text
  end
  return lines
end

-- The first sentence, without a command that follows it.
local function title(path)
  local words = {}
  for _, line in ipairs(comment(path)) do
    local text, command = line:match "^(.-)%s%s+accel%-run"
    if line == "" and #words > 0 then break end
    words[#words + 1] = text or line
    if text or command then break end
  end
  local text = table.concat(words, " ")
  return (text:match "^(.-%.)%s" or text):gsub("[.:]$", "")
end

--- All examples, with their purposes.
---@param width integer
---@return string[]
function M.examples(width)
  local root = examples_folder()
  if not root then return { "the examples are not installed" } end
  local lines, names, longest = { "Examples, in " .. root .. ":", "" }, example_names(root), 0
  for _, name in ipairs(names) do longest = math.max(longest, #name) end
  for _, name in ipairs(names) do
    local head, text = ("  %-" .. longest .. "s  "):format(name), title(root .. "/" .. name)
    if #head > width // 2 then
      lines[#lines + 1] = "  " .. name
      for _, line in ipairs(layout.wrap(text, width - 6)) do lines[#lines + 1] = "      " .. line end
    else
      for i, line in ipairs(layout.wrap(text, width - #head)) do
        lines[#lines + 1] = (i == 1 and head or (" "):rep(#head)) .. line
      end
    end
  end
  lines[#lines + 1] = ""
  lines[#lines + 1] = "help NAME, or its number, shows how one begins. Programs in C: help embed."
  return lines
end

--- How an example begins: by its name, its path or its number.
---@return string[]?
function M.example(topic, width)
  local root = examples_folder()
  local wanted = topic:gsub("^.*/", ""):gsub("%.lua$", "")
  if not root or not wanted:find "^[%w_-]+$" then return nil end
  for _, name in ipairs(example_names(root)) do
    local stem = name:match "^(.*)%.lua$"
    if stem == wanted or stem:match "^%d+" == wanted or stem:match "^%d+_(.*)$" == wanted then
      local lines = { root .. "/" .. name, "" }
      local code, text = {}, {}
      for _, line in ipairs(comment(root .. "/" .. name)) do -- commands keep their lines
        if line:find "^%s%s+" then
          if #code == 0 then text[#text + 1] = "```text" end
          code[#code + 1] = line
        elseif #code > 0 then
          text[#text + 1], code = "```", {}
        end
        text[#text + 1] = #code > 0 and line:match "^%s*(.*)$" or line
      end
      if #code > 0 then text[#text + 1] = "```" end
      return table.move(layout.plain(text, width), 1, 10000, 3, lines)
    end
  end
end

-- ---- accel-run ----
--- Rows of accel-run --help: { options = { [name] = lines }, commands = { [name] = lines }, names = of the options }, and
--- options by their letter, "-e". For the topics here, for completion, and for the sweep of all options.
---@return { options: table<string, string[]>, commands: table<string, string[]>, names: string[] }
function M.usage()
  local all, row, section = { options = {}, commands = {}, names = {} }, nil, nil
  local program = accel.process.program()
  for line in program and output_of(quoted(program) .. " --help"):gmatch "[^\n]+" or function() end do
    local letter, name = line:match "^  (%-?%w?),?%s*%-%-([%w-]+)"
    local command = section == "commands" and line:match "^  (%l[%l%d-]*)"
    if name or command then
      row = { line }
      all[name and "options" or "commands"][name or command] = row
      all.names[#all.names + 1] = name
      if name and #letter == 2 then all.options[letter] = row end
    elseif row and line:find "^%s%s%s%s+" then
      row[#row + 1] = line
    else
      row, section = nil, line:match "^(%l+):$"
    end
  end
  return all
end

--- Rows of accel-run --help about an option. nil, the nearest option.
---@return string[]?
---@return string?
function M.option(topic)
  local want, rows = topic:gsub("^%-+", ""):gsub("_", "-"), M.usage()
  return rows.options[topic:match "^%-%w$" or want], accel.nearest(want, rows.names)
end

--- The purpose of an accel-run command: "env".
---@return string[]?
function M.command(topic, width)
  local row = topic:find "^%l[%l%d-]*$" and M.usage().commands[topic]
  if not row then return nil end
  local call, text = row[1]:match "^  (%S.-)%s%s+(%S.*)$"
  return layout.wrap(("accel-run %s: %s %s"):format(call, text, table.concat(row, " ", 2)), width, "  ")
end

--- A parameter, ACCEL_*. nil, the nearest one with the same beginning.
---@return string[]?
---@return string?
function M.parameter(topic, width)
  local names = {}
  for _, p in ipairs((accel.params())) do
    names[#names + 1] = p.name
    if p.name == topic or p.name == "ACCEL_" .. topic then
      return layout.wrap(("%s: %s%s [%s]"):format(p.name, p.help, p.allowed and (" (%s)"):format(p.allowed) or "",
        p.default ~= "" and p.default or "none"), width, "  ")
    end
  end
  return nil, topic:find "^ACCEL_" and accel.nearest(topic, names) or nil
end

-- ---- Lua ----
local libraries = { string = string, table = table, math = math, coroutine = coroutine, io = io, os = os, utf8 = utf8,
  debug = debug, package = package }
local base = {}
for name in ([[assert collectgarbage dofile error getmetatable ipairs load loadfile next pairs pcall print rawequal rawget
rawlen rawset require select setmetatable tonumber tostring type warn xpcall _G _VERSION]]):gmatch "%S+" do
  base[name] = true
end

local remarks = {
  pairs = "Under accel-run it visits keys in sorted order, the same in every process.",
  print = "Tensors are shown by their values, of large ones the corners.",
  require = 'require "accel" and require "accel.nn" return the same as `accel.nn`.',
}

--- A name of Lua itself.
---@return string[]?
function M.lua(topic, width)
  local library, member = topic:match "^(%l+%d?)%.([%w_]+)$"
  local known = base[topic] or libraries[topic] or library and libraries[library] and libraries[library][member] ~= nil
  if not known then return nil end
  local anchor = libraries[topic] and "#6" or "#pdf-" .. topic
  local text = ("%s is %s of Lua itself: https://www.lua.org/manual/5.4/manual.html%s"):format(topic,
    libraries[topic] and "a library" or "a name", anchor)
  local lines = layout.wrap(text, width)
  if remarks[topic] then table.move(layout.plain({ remarks[topic] }, width), 1, 10, #lines + 1, lines) end
  return lines
end

return M
