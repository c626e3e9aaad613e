-- What every source file keeps to, whoever wrote it: ASCII, no tabs or trailing blanks, a newline at the end, a head comment, no line that
-- needs scrolling, no notes to self, no file that grows into a magnet, and no two examples of one number. (The formatter aims at 100 columns;
-- this is a wall.) The top level has no entries that a test left there and somebody committed. Usage: lua sources.lua <source tree>.
-- Prints one line per finding and exits 1 if there is one.

local MAX_COLUMNS, MAX_LINES = 150, 900
local root = assert(arg[1], "usage: sources.lua <source tree>")
local findings, n_files = 0, 0

local function finding(file, line, text)
  findings = findings + 1
  io.write(("%s:%d: %s\n"):format(file, line, text))
end

local HEAD = { c = "^/%*", h = "^/%*", cu = "^/%*", cuh = "^/%*", lua = "^%-%-", sh = "^#", cmake = "^#" }

local numbered = {}

--- An example has a number of its own.
local function check_number(file)
  local number = file:match "^examples/(%d+)_"
  if not number then return end
  if numbered[number] then finding(file, 1, ("%s has this number, too"):format(numbered[number])) end
  numbered[number] = file
end

--- What the top level has, beside hidden files.
local TOP <const> = {}
for name in ([[host bindings lua stdlib examples tests CMakeLists.txt CMakePresets.json README.md LICENSE CONTRIBUTING.md CHANGELOG.md SECURITY.md
  accel-scm-1.rockspec]]):gmatch "%S+" do TOP[name] = true end

--- Entries that git knows; without git or outside a checkout there are none to look at.
local function check_top()
  local seen = {}
  local list = assert(io.popen(("git -C '%s' ls-files 2>/dev/null"):format((root:gsub("'", "'\\''")))))
  for path in list:lines() do
    local top = path:match "^[^/]+"
    if not seen[top] and not TOP[top] and top:sub(1, 1) ~= "." then finding(top, 1, "does not belong on the top level") end
    seen[top] = true
  end
  list:close()
end

--- Folders are read, made and removed by LuaFileSystem and accel.util.folders: the product starts no shell for them.
local function folder_command(file, line)
  if not (file:match "^lua/" or file:match "^stdlib/") or not (line:find "popen" or line:find "os%.execute") then return nil end
  for _, command in ipairs { "ls", "find", "rm", "rmdir", "mkdir", "cp", "mv" } do
    if line:find("[\"'%[ ;&|]" .. command .. "%s+[%-'\"%%*/%w]") then return command end
  end
end

-- Two modules or parameters in one assignment: Lua assigns from right to left, so that they are registered in the wrong order.
local function registers_several(file, line)
  if not (file:match "^stdlib/.*%.lua$" or file:match "^examples/.*%.lua$") then return false end
  local fields, values = line:match "%f[%w](self[%.%[][^=,]*, self[%.%[][^=]-) = (.*)$"
  if not fields then return false end
  local _, made = values:gsub("%f[%w]%u%w*%(", "")
  local _, norms = values:gsub("norm%(", "")
  local _, parts = values:gsub(":part%(", "")
  return made + parts + norms > 1
end

local function check(file)
  check_number(file)
  local kind = file:match("CMakeLists%.txt$") and "cmake" or file:match("%.(%w+)$")
  local f = assert(io.open(root .. "/" .. file, "rb"))
  local text = f:read("a")
  f:close()
  n_files = n_files + 1
  if not text:match(HEAD[kind]) and not (kind == "cmake" and #text < 200) then
    finding(file, 1, "no head comment says what the file is for")
  end
  if text:sub(-1) ~= "\n" then finding(file, 1, "no newline at the end") end
  local number = 0
  for line in text:gmatch("([^\n]*)\n") do
    number = number + 1
    if line:find("[^\32-\126\t]") then finding(file, number, "not ASCII") end
    if line:find("\t") then finding(file, number, "tab") end
    local command = folder_command(file, line)
    if registers_several(file, line) then
      finding(file, number, "an assignment of several modules registers the last one first; write one assignment a line")
    end
    if command then finding(file, number, ("a shell's '%s'; use lfs or accel.util.folders"):format(command)) end
    if line:find("[ \t]$") then finding(file, number, "blank at the end of the line") end
    if #line > MAX_COLUMNS then finding(file, number, ("%d columns, not %d"):format(#line, MAX_COLUMNS)) end
    if line:find("%f[%w]TO" .. "DO%f[%W]") or line:find("%f[%w]FIX" .. "ME%f[%W]") then
      finding(file, number, "a note to self")
    end
    local never = line:match "%f[%w]and (%l+) or%f[%W]"
    if kind == "lua" and (never == "false" or never == "nil") then
      finding(file, number, ("'and %s or' never gives %s"):format(never, never))
    end
    if file:match "^tests/" and line:find "[Ss][Ee][Ee][Dd]" and line:find "os%.time%(%)" and not line:find "ACCEL_TEST_SEED"
      and not file:match "^tests/gate/" then
      finding(file, number, "a seed from the clock: take ACCEL_TEST_SEED first, so that a red run can be repeated")
    end
  end
  if number > MAX_LINES then finding(file, number, ("%d lines: split it by topic"):format(number)) end
end

local find = [[cd '%s' && find host bindings lua stdlib examples tests CMakeLists.txt -type f
  -not -path 'tests/reference/*' -not -path 'lua/meta/*'
  \( -name "*.[ch]" -o -name "*.cu" -o -name "*.cuh" -o -name "*.lua" -o -name "*.sh" -o -name "*.cmake" -o -name "CMake*" \) ]]
for file in assert(io.popen(find:gsub("\n", " "):format(root) .. "| sort")):lines() do check(file) end
check_top()
assert(n_files > 0, "no sources found below " .. root)
io.write(("%d files, %d findings\n"):format(n_files, findings))
os.exit(findings == 0)
