-- How comments, messages and help in C and Lua sources read: the habits of prose_habits.lua per 1,000 words, by folder and kind. The counts
-- are a mirror and never fail. Phrases that are never right do fail, even across a line break.
--   accel-run tests/check/prose_text.lua [--lines] [PATH ...]     PATH: file or folder of the tree; --lines prints each place
-- Kinds: "comment"; "message", a string in the arguments of a function that raises, warns, logs or prints; "help", any other string of at
-- least four words. Messages may have one semicolon, between the fault and the remedy.
local source = os.getenv "ACCEL_TEST_SRC" or "."
local prose = dofile(source .. "/tests/check/prose_habits.lua")
local N_HABITS <const> = 6 -- the first six have a goal for sources
local GOALS <const> = { 2.6, 1.8, 0.2, 0.4, 1.8, 0.2 }
local SHORT <const> = { "semic", "what", "that of", "say", "where", "behind" }
local KINDS <const> = { "comment", "message", "help" }

local SPEAKS <const> = { "fail", "error", "err", "raise", "refuse", "warn", "warning", "log", "printf", "fault", "complain", "say", "print",
  "assert", "fprintf", "snprintf", "dprintf", "write", "note", "info", "failed" }
local speaks = {}
for _, word in ipairs(SPEAKS) do speaks[word] = true end

--- Whether a call to NAME prints or raises its string arguments: one of the words of the name is in the list above.
local function is_message(name)
  for word in (name:gsub("(%l)(%u)", "%1_%2"):lower()):gmatch "[^_]+" do
    if speaks[word] or word:match "printf$" then return true end
  end
  return false
end

--- Calls emit(kind, line, text) for each comment and string of a source. is_lua: its language.
local function extract(text, is_lua, emit)
  local at, line, size = 1, 1, #text
  local calls = {} -- names before the open parentheses, "" for others
  local function pass(to) -- moves on and counts lines
    for _ in text:sub(at, to):gmatch "\n" do line = line + 1 end
    at = to + 1
  end
  local function string_kind()
    if is_message(text:sub(math.max(1, at - 60), at - 1):match "([%a_][%w_]*) $" or "") then return "message" end -- error "text"
    for i = #calls, 1, -1 do
      if is_message(calls[i]) then return "message" end
    end
    return "help"
  end
  local function string_(body, to)
    local n = body:find(" ", 1, true) and prose.words(body) or 0
    local kind = n > 1 and string_kind()
    if kind == "message" or n >= 4 then emit(kind, line, (body:gsub("\\n", " "):gsub("\\(.)", "%1"))) end
    pass(to)
  end
  local token = is_lua and "[%-\"'%[%(%)]" or "[/\"'%(%)]"
  while at <= size do
    local i = text:find(token, at)
    if not i then return end
    pass(i - 1)
    local c = text:sub(i, i)
    local long = is_lua and text:match(c == "-" and "^%-%-%[(=*)%[" or "^%[(=*)%[", i)
    if c == "(" then
      calls[#calls + 1] = text:sub(math.max(1, i - 60), i - 1):match "([%a_][%w_]*)%s*$" or ""
      at = i + 1
    elseif c == ")" then
      calls[#calls], at = nil, i + 1
    elseif long then
      local first = text:find("[", i, true) + #long + 2
      local last, to = text:find("]" .. long .. "]", first, true)
      last, to = last or size + 1, to or size
      if c == "-" then
        emit("comment", line, text:sub(first, last - 1))
        pass(to)
      else
        string_(text:sub(first, last - 1), to)
      end
    elseif is_lua and text:sub(i, i + 1) == "--" then -- lines of comment that follow each other are one text
      local to = i
      local body, began = {}, line
      repeat
        local last = (text:find("\n", to, true) or size + 1) - 1
        body[#body + 1] = text:sub(to, last):gsub("^%-+%s?", ""):gsub("^@%a+%s*", "")
        pass(last)
        local next_ = text:match("^\n%s*()%-%-[^%[]", at)
        if next_ then pass(next_ - 1) end
        to = next_
      until not next_
      emit("comment", began, table.concat(body, "\n"))
    elseif not is_lua and text:sub(i, i + 1) == "//" then
      local last = (text:find("\n", i, true) or size + 1) - 1
      emit("comment", line, text:sub(i + 2, last))
      pass(last)
    elseif not is_lua and text:sub(i, i + 1) == "/*" then
      local last, to = text:find("*/", i + 2, true)
      last, to = last or size + 1, to or size
      emit("comment", line, (text:sub(i + 2, last - 1):gsub("\n%s*%*", "\n")))
      pass(to)
    elseif c == "\"" or c == "'" then
      local to = i
      repeat
        to = text:find("[\\" .. c .. "\n]", to + 1) or size
        local stop = text:sub(to, to)
        if stop == "\\" then to = to + 1 end
      until stop ~= "\\"
      if c == "\"" or is_lua then string_(text:sub(i + 1, to - 1), to) else at = to + 1 end
    else
      at = i + 1
    end
  end
end

-- ---- the extraction itself, on one source of each language ----
local function kinds_of(text, is_lua)
  local all = {}
  extract(text, is_lua, function(kind, line, body) all[#all + 1] = ("%s %d %s"):format(kind, line, body:gsub("%s+", " ")) end)
  return table.concat(all, "|")
end
local C_SAMPLE <const> = [[
/* one
 * two */
AC_FAIL(e, AC_IO,
  f("a; b", "%s lies behind the file")); // three
char c = '"', *h = "a help text here";]]
local LUA_SAMPLE <const> = [==[
--- one
---@param x integer two
error(("%s is not a file"):format(x))
local s, n = [[how to
read it well]], 1 - 2 --[[ three ]]]==]
assert(kinds_of(C_SAMPLE, false)
  == "comment 1  one two |message 4 a; b|message 4 %s lies behind the file|comment 4  three|help 5 a help text here")
assert(kinds_of(LUA_SAMPLE, true) == "comment 1 one x integer two|message 3 %s is not a file|help 4 how to read it well|comment 5  three ")
assert(prose.never "'%s' is no integer" and not prose.never "there is no field of it")

-- ---- the tree ----
local function output_of(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local show, given = false, {}
for _, word in ipairs(arg) do
  if word == "--lines" then show = true else given[#given + 1] = "'" .. word .. "'" end
end
local list = output_of(("cd '%s' && find %s -type f \\( -name '*.lua' -o -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \\) | LC_ALL=C sort"):format(
  source, #given > 0 and table.concat(given, " ") or "host bindings lua stdlib examples"))

local folders, rows, all, n_never = {}, {}, {}, 0

--- The row of counts of a folder and kind: words first, then one count for each habit.
local function row_of(folder, kind)
  local row = rows[folder]
  if not row then
    row, folders[#folders + 1] = {}, folder
    rows[folder] = row
  end
  row[kind] = row[kind] or { 0, 0, 0, 0, 0, 0, 0 }
  return row[kind]
end

--- Prints the lines of a text that have a habit.
local function print_lines(path, line, kind, habit, text)
  for part in (text .. "\n"):gmatch "([^\n]*)\n" do
    if prose.count(prose.habits[habit], part) > 0 then
      print(("%s:%d: %s, %s: %s"):format(path, line, kind, SHORT[habit], part:match "^%s*(.-)%s*$"))
    end
    line = line + 1
  end
end

for path in list:gmatch "[^\n]+" do
  local folder = path:match "^%a+/[%w_]+/" or path:match "^.*/" or path
  extract(read(source .. "/" .. path), path:match "%.lua$" ~= nil, function(kind, line, text)
    text = text:gsub("`[^`\n]*`", "X")
    local row, sum = row_of(folder, kind), row_of("all", kind)
    local n = prose.words(text)
    row[1], sum[1] = row[1] + n, sum[1] + n
    for i = 1, N_HABITS do
      n = prose.count(prose.habits[i], text)
      row[i + 1], sum[i + 1] = row[i + 1] + n, sum[i + 1] + n
      if show and n > 0 then print_lines(path, line, kind, i, text) end
    end
    if prose.never((text:gsub("%s+", " "))) then
      n_never = n_never + 1
      print(("FAIL %s:%d: never right: %s"):format(path, line, text:gsub("%s+", " ")))
    end
  end)
end

print(("%-26s%-9s%8s"):format("per 1,000 words", "", "words") .. ("%8s"):rep(N_HABITS):format(table.unpack(SHORT)))
local function print_row(folder, kind, row)
  local cells = {}
  for i = 1, N_HABITS do cells[i] = ("%8.1f"):format(1000 * row[i + 1] / math.max(row[1], 1)) end
  print(("%-26s%-9s%8d%s"):format(folder, kind, row[1], table.concat(cells)))
end
for _, folder in ipairs(folders) do
  for _, kind in ipairs(KINDS) do
    if rows[folder][kind] then print_row(folder, kind, rows[folder][kind]) end
  end
end
print(("%-43s%s"):format("goal", ("%8.1f"):rep(N_HABITS):format(table.unpack(GOALS))))
print(("%d texts with phrases that are never right"):format(n_never))
if #given == 0 then
  for _, kind in ipairs(KINDS) do assert(rows.all[kind][1] > 10000, "too few words were found") end
end
if n_never > 0 then os.exit(1, true) end
