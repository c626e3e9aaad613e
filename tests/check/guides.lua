-- The guides (lua/help/guides/*.md) say what is so: their Lua is run as one script each and prints what stands behind its
-- arrows, blocks marked `no-run` are compiled, options and commands of accel-run in their shell lines exist, and so do the
-- files, guides and topics that they name; files, commands and guides of README.md and CONTRIBUTING.md, too.
--   accel-run tests/check/guides.lua [NAME]     ACCEL_TEST_SRC, ACCEL_TEST_BUILD as for every test
local accel = require "accel"
local source, build = os.getenv "ACCEL_TEST_SRC" or ".", os.getenv "ACCEL_TEST_BUILD" or "build/dev"
local help = accel.host_chunk "help"
local failed, n_prints = 0, 0
local print = print -- that of guides is listened to

local function fail(fmt, ...)
  failed = failed + 1
  print("FAIL " .. fmt:format(...))
end

local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end

local function output_of(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end

-- Blocks of code: { language =, mark =, line = of its first line, lines = }.
local function blocks(text)
  local list, block, n = {}, nil, 0
  for line in text:gmatch "([^\n]*)\n" do
    n = n + 1
    local language, mark = line:match "^```(%w*)%s*(.*)$"
    if block and language then
      list[#list + 1], block = block, nil
    elseif language then
      block = { language = language, mark = mark, line = n + 1, lines = {} }
    elseif block then
      block.lines[#block.lines + 1] = line
    end
  end
  assert(not block, "a block of code has no end")
  return list
end

local function bare(text) return (text:gsub("%s+", "")) end

-- The blocks that run, in one chunk whose lines are the guide's.
local function run(name, list)
  local lines, expected = {}, {}
  for _, block in ipairs(list) do
    if block.language == "lua" and block.mark == "" then
      for i, line in ipairs(block.lines) do
        lines[block.line + i - 1] = line
        expected[block.line + i - 1] = line:match "%-%->%s*(.*)$"
      end
    end
  end
  local last = 0
  for n in pairs(lines) do last = math.max(last, n) end
  for n = 1, last do lines[n] = lines[n] or "" end
  local code, why = load(table.concat(lines, "\n"), "=" .. name .. ".md")
  if not code then return fail("%s", why) end
  local real, seen = print, {}
  local function line_of() -- of the guide, where it calls what prints
    for level = 3, 20 do
      local info = debug.getinfo(level, "Sl")
      if not info or info.source == "=" .. name .. ".md" then return info and info.currentline end
    end
  end
  rawset(_G, "print", function(...)
    local line, parts = line_of(), table.pack(...)
    for i = 1, parts.n do parts[i] = tostring(parts[i]) end
    local text = table.concat(parts, " ")
    if expected[line] and not seen[line] then
      n_prints = n_prints + 1
      if bare(text) ~= bare(expected[line]) then fail("%s.md:%d prints %s", name, line, text) end
    end
    seen[line or 0] = true
  end)
  local ok, message = xpcall(code, accel.traceback)
  rawset(_G, "print", real)
  if not ok then return fail("%s", message) end
  for line, text in pairs(expected) do
    if not seen[line] then fail("%s.md:%d never prints %s", name, line, text) end
  end
end

-- ---- command lines ----
local known_options, commands = {}, {}
do
  local usage = output_of(("'%s/bin/accel-run' --help"):format(build))
  for option in usage:gmatch "%-%-([%w-]+)" do known_options[option] = true end
  for command in usage:match "commands:(.-)options:":gmatch "\n  ([%w-]+)" do commands[command] = true end
end

-- A dry run has options of its own.
local dry_usage = output_of(("'%s/bin/accel-run' --dry-run --help"):format(build))
local dry_options = {}
for option in dry_usage:gmatch "%-%-([%w-]+)" do dry_options[option] = true end

-- One line of a shell block: what stands before the script or command are options of accel-run.
local function check_command(where, line)
  local words = {}
  for word in line:gsub("^.-accel%-run", ""):gsub("%s+#.*$", ""):gmatch "%S+" do words[#words + 1] = word end
  local i, dry = 1, line:find "%-%-dry%-run" ~= nil
  local usage = output_of(("'%s/bin/accel-run' --help"):format(build)) .. (dry and dry_usage or "")
  while words[i] and words[i]:find "^%-" do
    local option = words[i]:match "^%-%-([%w_-]+)"
    local name = option and option:gsub("_", "-")
    if option and not known_options[name] and not (dry and dry_options[name]) then fail("%s: accel-run has no option --%s", where, option) end
    if words[i] == "-e" or words[i] == "-" then return end
    local takes_value = option and name ~= "dry-run" and not words[i]:find "=" and usage:find("%-%-" .. name:gsub("%-", "%%-") .. " %S")
    i = i + (takes_value and 2 or 1)
  end
  local word = words[i]
  if word and not word:find "[./]" and not word:find "^[%[A-Z|>&]" and not commands[word] then
    fail("%s: accel-run has no command %s", where, word)
  end
  if word == "help" and words[i + 1] and not words[i + 1]:find "^[A-Z]+$" then
    local ok, why = help.lines(table.concat(words, " ", i + 1))
    if not ok then fail("%s: help: %s", where, why) end
  end
  if word and word:find "^examples/" and not read(source .. "/" .. word) then fail("%s: there is no %s", where, word) end
end

-- ---- the guides ----
local names = {}
for name in output_of(("cd '%s/lua/help/guides' && ls *.md"):format(source)):gmatch "([%w-]+)%.md" do names[#names + 1] = name end
local is_guide, MOST_COLUMNS = {}, 76 -- of code, which the terminal's help sets in by 4
for _, name in ipairs(names) do is_guide[name] = true end
assert(#names > 5, "no guides")

-- What a page names: files of the tree (those with * or < are patterns), guides, topics, commands in blocks and in lines set
-- in by four. The op that CONTRIBUTING.md adds is not there.
local function check_names(page, text)
  for path in text:gmatch "`(%l+/[%w_./-]+%.%l+)`" do
    local ours = path:find "^examples/" or path:find "^tests/" or path:find "^host/" or path:find "^stdlib/" or path:find "^lua/"
    if ours and not path:find "squareplus" and not read(source .. "/" .. path) then
      fail("%s names %s, which is not there", page, path)
    end
  end
  for guide in text:gmatch "guides? `([%w-]+)`" do
    if not is_guide[guide] then fail("%s: there is no guide %s", page, guide) end
  end
  for topic in text:gmatch "`accel%-run help ([^`]+)`" do
    local ok, why = help.lines(topic)
    if not ok and not topic:find "[A-Z][A-Z]" and not topic:find "squareplus" then fail("%s: help: %s", page, why) end
  end
  local n, fence = 0, nil
  for line in text:gmatch "([^\n]*)\n" do
    n = n + 1
    if line:find "^```" then fence = not fence and line:match "^```(%w*)" or nil end
    local command = fence == "sh" and line or not fence and line:match "^    (.*)$"
    if command then
      local where = ("%s:%d"):format(page, n)
      if command:find "^%s*accel%-run" or command:find "/accel%-run " then check_command(where, command) end
      local script = command:match "^sh (%S+)"
      if script and not read(source .. "/" .. script) then fail("%s: there is no %s", where, script) end
    end
  end
end

for _, name in ipairs { "README.md", "CONTRIBUTING.md" } do check_names(name, assert(read(source .. "/" .. name))) end
for _, name in ipairs(names) do
  if not arg[1] or arg[1] == name then
    local text = read(("%s/lua/help/guides/%s.md"):format(source, name))
    local list = blocks(text)
    if not text:find "^# [^\n]+\n" then fail("%s.md does not begin with a title", name) end
    for _, block in ipairs(list) do
      local code = table.concat(block.lines, "\n")
      for i, line in ipairs(block.language == "lua" and block.lines or {}) do
        if #line > MOST_COLUMNS then fail("%s.md:%d has %d columns", name, block.line + i - 1, #line) end
      end
      if block.language == "lua" and block.mark ~= "" then
        assert(block.mark == "no-run", block.mark)
        local f, why = load(code, ("=%s.md, block at line %d"):format(name, block.line))
        if not f then fail("%s", why) end
      end
    end
    check_names(name .. ".md", text)
    run(name, list)
  end
end
print(("%d guides, %d printed values, %d failed"):format(#names, n_prints, failed))
if failed > 0 then os.exit(1, true) end
