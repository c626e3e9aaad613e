--- accel-run as pages: its commands and the examples for the site, and man pages, accel-run(1) and accel-run-COMMAND(1). All of them
--- come from what --help prints: the rows of accel-run --help, and the options that the programs of accel.cli declare. Used by
--- reference.lua.
local cli = require "accel.util.cli"
local command = require "accel.cli.command"

local M = {}

local function output_of(words)
  local pipe <close> = assert(io.popen(("'%s' %s 2>&1 </dev/null"):format(require "accel".process.program(), words)))
  return pipe:read "a"
end

local function row_of(lines) -- "  ps [JOB]    list your jobs" and its further lines
  local shown, text = lines[1]:match "^  (%S.-)%s%s+(%S.*)$"
  if not shown then shown, text = lines[1]:match "^  (.-)%s*$", "" end
  for i = 2, #lines do text = text .. " " .. lines[i]:match "^%s*(.-)%s*$" end
  return shown, text:match "^%s*(.-)%s*$"
end

--- Commands in the order of accel-run --help: { name =, shown =, about =, parts = { { words =, options = }, ... }, text = of a command
--- that declares no options }.
---@param topics table lua/help/topics.lua
---@return table[]
function M.commands(topics)
  local usage, list, names = topics.usage(), {}, {}
  for line in output_of "--help":gmatch "[^\n]+" do
    local name = line:match "^  (%l[%l%d-]*)"
    if name and usage.commands[name] and not names[name] then
      names[name], names[#names + 1] = true, name
    end
    if line == "options:" then break end
  end
  for _, name in ipairs(names) do
    local shown, about = row_of(usage.commands[name])
    local entry = { name = name, shown = shown, about = about, parts = {} }
    local module = "accel.cli." .. name:gsub("-", "_")
    local found, parts = false, nil
    if name ~= "launch" and name ~= "completion" then -- whose words are not those of accel.util.cli
      found, parts = pcall(function() return command.describe(require(module), name) end)
    end
    if found then
      for _, part in ipairs(parts) do entry.parts[#entry.parts + 1] = { words = table.concat(part.words, " "), options = part.options } end
    elseif name == "bench" or package.searchpath(module, package.path) then
      entry.text = output_of(name .. " --help")
    end
    list[#list + 1] = entry
  end
  return list
end

--- The page of the commands.
---@param commands table[]
---@return string
function M.page(commands)
  local out = { "# Commands of accel-run\n\nEach has a manual page: `man accel-run-plan`. `accel-run COMMAND --help` prints the same text.\n" }
  for _, c in ipairs(commands) do
    out[#out + 1] = ("## accel-run %s\n\n`accel-run %s`: %s\n"):format(c.name, c.shown, c.about)
    for _, part in ipairs(c.parts) do out[#out + 1] = ("```text\n%s```\n"):format(cli.help(part.options)) end
    if c.text then out[#out + 1] = ("```text\n%s```\n"):format(c.text) end
  end
  return table.concat(out, "\n")
end

--- The page of the examples: how each begins.
---@param folder string
---@param names string[]
---@return string
function M.examples(folder, names)
  local out = { "# Examples\n\nScripts of `examples/`, one feature each. `accel-run help 12` shows how one begins.\n" }
  for _, name in ipairs(names) do
    local text = {}
    for line in io.lines(folder .. "/" .. name) do
      local comment = line:match "^%-%-%-? ?(.*)$"
      if not comment and not line:find "^#!" then break end
      text[#text + 1] = comment
    end
    out[#out + 1] = ("## %s\n\n```text\n%s\n```\n"):format(name, table.concat(text, "\n"))
  end
  return table.concat(out, "\n")
end

-- ---- man pages ----
local function escaped(text)
  return (text:gsub("\\", "\\e"):gsub("%-", "\\-"):gsub("^([.'])", "\\&%1"):gsub("\n([.'])", "\n\\&%1"))
end

local function header(name, version) return ('.TH %s 1 "" "accel %s" "accel"\n'):format(name:upper(), version) end

local function verbatim(text) return ".nf\n" .. escaped((text:gsub("\n+$", ""))) .. "\n.fi\n" end

local function put_options(put, declared)
  for _, spec in ipairs(declared) do
    local kind, default, help = spec[2], spec[3], spec[5]
    if type(kind) == "table" then help = help .. ": " .. table.concat(kind, ", ") end
    if default ~= nil and kind ~= "flag" then help = ("%s [%s]"):format(help, tostring(default)) end
    put(".TP\n.B " .. escaped("--" .. spec[1]:gsub("_", "-")) .. (kind == "flag" and "" or " \\fI" .. escaped(spec[4] or "VALUE") .. "\\fR"))
    put(escaped(help))
  end
end

local function page_of_command(c, version)
  local out, name = {}, "accel-run-" .. c.name
  local function put(text) out[#out + 1] = text end
  put(header(name, version) .. ".SH NAME\n" .. escaped(name) .. " \\- " .. escaped(c.about))
  put ".SH SYNOPSIS"
  if #c.parts == 0 then put(".B accel\\-run " .. escaped(c.shown)) end
  for i, part in ipairs(c.parts) do
    if i > 1 then put ".br" end
    put((".B %s\n%s"):format(escaped(part.options.name), escaped(part.options.usage or "[options]")))
  end
  if c.text then put(".SH DESCRIPTION\n" .. verbatim(c.text)) end
  for _, part in ipairs(c.parts) do
    put((#c.parts > 1 and '.SH "' .. escaped(part.words:upper()) .. '"' or ".SH DESCRIPTION"))
    if part.options.summary then put(escaped(part.options.summary)) end
    if #c.parts == 1 then put ".SH OPTIONS" end
    put_options(put, part.options)
    if part.options.epilog then put(".PP\n" .. escaped(part.options.epilog)) end
  end
  put ".SH SEE ALSO\n.BR accel\\-run (1)"
  return table.concat(out, "\n") .. "\n"
end

-- accel-run --help, section by section; its paragraphs begin with a word and a colon.
local function page_of_program(commands, topics, params, version)
  local out, text = {}, output_of "--help"
  local function put(line) out[#out + 1] = line end
  put(header("accel-run", version) .. ".SH NAME\naccel\\-run \\- run a Lua script with tensors, gradients and training")
  put(".SH SYNOPSIS\n" .. verbatim((text:match "^Usage: (.-)\n\n":gsub("\n%s+", "\n"))))
  put(".SH DESCRIPTION\n" .. escaped((text:match "^.-\n\n(.-)\n\ncommands:":gsub("\n\n", "\n.PP\n"))):gsub("\\&%.PP", ".PP"))
  put ".SH COMMANDS"
  for _, c in ipairs(commands) do put(".TP\n.B " .. escaped(c.shown) .. "\n" .. escaped(c.about)) end
  put ".SH OPTIONS"
  local usage = topics.usage()
  for _, name in ipairs(usage.names) do
    local shown, about = row_of(usage.options[name])
    put(".TP\n.B " .. escaped(shown) .. "\n" .. escaped(about))
  end
  put ".SH ENVIRONMENT"
  for _, p in ipairs(params) do
    local about = p.help .. (p.allowed and (" (%s)"):format(p.allowed) or "") .. (p.default ~= "" and (" [%s]"):format(p.default) or "")
    put(".TP\n.B " .. escaped(p.name) .. "\n" .. escaped(about))
  end
  put(".SH EXAMPLES\n" .. verbatim(text:match "\nexamples:\n(.-)\n\n"))
  put(".SH EXIT STATUS\n" .. escaped((text:match "\nexit status: (.*)$":gsub("\n", " "))))
  put ".SH SEE ALSO"
  for i, c in ipairs(commands) do put((".BR %s (1)%s"):format(escaped("accel-run-" .. c.name), i < #commands and "," or "")) end
  return table.concat(out, "\n") .. "\n"
end

--- Man pages by their file's name: accel-run.1, accel-run-plan.1, ...
---@param commands table[]
---@param topics table lua/help/topics.lua
---@param params table[] accel.params()
---@param version string
---@return table<string, string>
function M.man(commands, topics, params, version)
  local files = { ["accel-run.1"] = page_of_program(commands, topics, params, version) }
  for _, c in ipairs(commands) do files[("accel-run-%s.1"):format(c.name)] = page_of_command(c, version) end
  return files
end

return M
