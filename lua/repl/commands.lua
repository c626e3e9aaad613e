-- Commands of a prompt that ask the process whose prompt it is, `:time f(x)`: each gives lines of text. On several
-- ranks every rank runs them. The prompt's own commands (:help, :ranks, :diff, :save, :quit) are elsewhere. Used by
-- prompt.lua, server.lua.
local accel = ...
local show = accel.host_chunk "repl/show"

local M = {}

local function bytes(n)
  for _, unit in ipairs { { 2 ^ 30, "GiB" }, { 2 ^ 20, "MiB" }, { 2 ^ 10, "KiB" } } do
    if n >= unit[1] then return ("%.1f %s"):format(n / unit[1], unit[2]) end
  end
  return ("%d B"):format(n)
end

local function duration(s)
  if s >= 60 then return ("%d min %.1f s"):format(s // 60, s % 60) end
  if s >= 1 then return ("%.3f s"):format(s) end
  if s >= 1e-3 then return ("%.3f ms"):format(s * 1e3) end
  return ("%.1f us"):format(s * 1e6)
end

local function resident()
  local file <close> = io.open("/proc/self/statm")
  local pages = file and file:read "a":match "^%d+ (%d+)"
  return pages and tonumber(pages) * 4096
end

local function failed(r) return { ok = false, lines = { r.message }, message = r.message } end

-- The value of an expression, which a command is about.
local function value_of(session, rest, line)
  if rest == "" then return nil, { ok = false, message = "an expression is missing" } end
  local r = session:evaluate("return " .. rest, line)
  if not r.ok then return nil, r end
  return r
end

local commands = {}

--- :type EXPR
function commands.type(session, rest, line)
  local r, why = value_of(session, rest, line)
  if not r then return failed(why) end
  local lines = {}
  for i = 1, math.max(r.n, 1) do lines[i] = show.type(r[i]) end
  return { ok = true, lines = lines }
end

--- :time INPUT
function commands.time(session, rest, line, width)
  if rest == "" then return { ok = false, lines = {}, message = "an expression or a statement is missing" } end
  local live = accel.mem_stats().live_bytes
  accel.reset_peak_memory()
  local r = session:evaluate(rest, line)
  local lines = not r.ok and { r.message } or show.is_nothing(r) and {} or show.values(r, width)
  if r.seconds then
    local more = accel.mem_stats().peak_bytes - live
    lines[#lines + 1] = duration(r.seconds) .. (more > 0 and (", tensors up to %s more"):format(bytes(more)) or "")
  end
  return { ok = r.ok, lines = lines, message = r.message, values = r.ok and r or nil }
end

local AT_LEAST <const>, RUNS <const>, ALIKE <const> = 0.1, 5, 10

--- :timeit INPUT. With several ranks each of them makes as many runs, for the input may have a collective.
function commands.timeit(session, rest, line)
  if rest == "" then return { ok = false, lines = {}, message = "an expression or a statement is missing" } end
  local core = require "accel.dist.core"
  local many = core.is_initialized() and core.get_world_size() > 1
  local loops, r = many and ALIKE or 1, session:times(rest, line, 1) -- the first warms up
  while r.ok and not many do
    r = session:times(rest, line, loops)
    if not r.ok or r.seconds >= AT_LEAST / RUNS or loops > 1e7 then break end
    loops = loops * (r.seconds < AT_LEAST / RUNS / 20 and 10 or 2)
  end
  local times = {}
  for i = 1, r.ok and RUNS or 0 do
    r = session:times(rest, line, loops)
    if not r.ok then break end
    times[i] = r.seconds / loops
  end
  if not r.ok then return failed(r) end
  table.sort(times)
  return { ok = true, lines = { ("%s the median of %d runs of %d, %s to %s"):format(duration(times[RUNS // 2 + 1]), RUNS, loops,
    duration(times[1]), duration(times[RUNS])) } }
end

--- :sh COMMAND
function commands.sh(_, rest)
  if rest == "" then return { ok = false, lines = {}, message = "a command is missing" } end
  io.stdout:flush()
  local ok, how, code = os.execute(rest)
  return { ok = ok == true, lines = {}, message = not ok and ("%s: %s %d"):format(rest, how, code) or nil }
end

--- :mem [on|off]
function commands.mem(_, rest, _, width)
  local m, lines = accel.mem_stats(), {}
  if rest ~= "" and rest ~= "on" and rest ~= "off" then
    return { ok = false, lines = {}, message = (":mem %s: it takes on, off or nothing"):format(rest) }
  end
  lines[1] = ("tensors  %s live, %s peak, %s kept for reuse%s"):format(bytes(m.live_bytes), bytes(m.peak_bytes),
    bytes(math.max(m.reserved_bytes - m.live_bytes, 0)),
    m.limit_bytes > 0 and (" (limit %s)"):format(bytes(m.limit_bytes)) or "")
  lines[2] = ("handles  %d; Lua itself %s"):format(accel.live(), bytes(collectgarbage "count" * 1024))
  local rss = resident()
  if rss then lines[3] = ("process  %s resident"):format(bytes(rss)) end
  local by_line = accel.host_chunk "repl/inspecting".memory(rest, width)
  if rest ~= "" then return { ok = true, lines = by_line } end
  return { ok = true, lines = table.move(by_line, 1, #by_line, #lines + 1, lines) }
end

local function split(text)
  local lines = {}
  for line in (text .. "\n"):gmatch "([^\n]*)\n" do lines[#lines + 1] = line end
  return lines
end

--- :bt [all]
function commands.bt(session, rest)
  local lines = {}
  if session.failure then lines = split(session.failure.trace) end
  if session.frames then
    for _, text in ipairs(session.frames:lines(rest == "all")) do lines[#lines + 1] = text end
  end
  if #lines == 0 then lines[1] = "no error so far, and no script that stands here" end
  return { ok = true, lines = lines }
end

local function one_line(value, width)
  local text = accel.inspect(value, { depth = 2, width = width, items = 8 }):gsub("%s*\n%s*", " ")
  return #text > width and text:sub(1, width - 3) .. "..." or text
end

--- :locals
function commands.locals(session, _, _, width)
  local list = session.frames and session.frames:variables() or {}
  local lines, longest = {}, 0
  for name, value in accel.pairs(session.kept) do
    if type(name) == "string" and not session.predefined[name] then
      list[#list + 1] = { name = name, value = value, kind = "session" }
    end
  end
  for _, v in ipairs(list) do longest = math.max(longest, #v.name) end
  for i, v in ipairs(list) do
    local head = ("%-" .. longest .. "s  "):format(v.name)
    local tail = v.kind ~= "local" and ("  (%s)"):format(v.kind) or ""
    lines[i] = head .. one_line(v.value, math.max(20, width - #head - #tail)) .. tail
  end
  if #lines == 0 then lines[1] = "none" end
  return { ok = true, lines = lines }
end

commands.where = commands.bt

--- :p EXPR, as the input EXPR itself
function commands.p(session, rest, line, width)
  if rest == "" then return { ok = false, lines = {}, message = "an expression is missing" } end
  local r = session:evaluate(rest, line)
  return { ok = r.ok, lines = r.ok and (show.is_nothing(r) and { "nil" } or show.values(r, width)) or {}, message = r.message,
    values = r.ok and r or nil }
end

--- :list [FIRST [LAST]]
function commands.list(session, rest, _, width)
  local at = session.frames and session.frames:selected()
  if not at then return { ok = false, lines = {}, message = "no script stands here" } end
  local first, last = rest:match "^(%d*)[%s,]*(%d*)$"
  if not first then return { ok = false, lines = {}, message = (":list %s: not numbers of lines"):format(rest) } end
  local lines, why = accel.host_chunk "repl/source".list(at, tonumber(first), tonumber(last), width)
  return { ok = lines ~= nil, lines = lines or {}, message = why }
end

-- by: "" or the number of functions. sign: 1 to the callers, -1 back.
local function move(session, by, sign, none)
  local n = by == "" and 1 or by:find "^%d+$" and math.tointeger(tonumber(by))
  if not session.frames then return { ok = false, lines = {}, message = "no script stands here" } end
  if not n then return { ok = false, lines = {}, message = ("'%s' is not a number of functions"):format(by) } end
  if not session.frames:move(sign * n) then return { ok = false, lines = {}, message = none } end
  return { ok = true, lines = { session.frames.title(session.frames:selected()) } }
end

--- :up [N], :down [N]
function commands.up(session, rest)
  return move(session, rest, 1, session.frames and ("the last caller is %s"):format(session.frames:last())
    .. "; the caller of a coroutine is not visible")
end
function commands.down(session, rest) return move(session, rest, -1, "the script has stopped here") end

-- The short names of Python's pdb.
local SHORT = { n = "next", s = "into", c = "continue", cont = "continue", r = "return", unt = "until", j = "jump", q = "quit",
  exit = "quit", w = "where", u = "up", d = "down", l = "list", b = "break", cl = "delete", clear = "delete", pp = "p" }

for _, name in ipairs { "stats", "grad", "nan", "graph" } do
  commands[name] = function(...) return accel.host_chunk "repl/inspecting"[name](...) end
end

--- The message of an input that failed: "n" is a command of pdb, which has a colon here.
---@return string
function M.with_hint(session, text, message)
  local name = text:match "^%s*(%a+)%s*%d*%s*$"
  local command = name and session.frames and (SHORT[name] or (name == "next" or name == "where" or name == "list") and name)
  return command and message:find "undeclared global" and ("%s; the command is :%s"):format(message, name) or message
end

M.names = {}
for name in next, commands do M.names[#M.names + 1] = name end
table.sort(M.names)

--- Runs one: {ok, lines, message}. nil: there is no such command.
function M.run(session, name, rest, line, width)
  local f = commands[name]
  if not f then return nil end
  return f(session, rest, line, width)
end

--- The purpose of each command of a prompt, in the order of :help. ranks: on several ranks. paused: in a script.
M.help = {
  { ":help [NAME]", "this text, or the page of an op, class, module or option" },
  { ":doc NAME", "the same page; NAME? does the same, EXPR? prints a kind" },
  { ":type EXPR", "the kind of a value" },
  { ":time INPUT", "run it and print its time" },
  { ":timeit INPUT", "run it many times and print the time of one" },
  { ":stats EXPR", "values of a tensor with a histogram, of a module by row" },
  { ":grad [MODEL]", "gradients by parameter" },
  { ":graph LOSS", "the operations and parameters that a tensor depends on" },
  { ":nan on|off", "stop at the op that makes the first NaN", paused = true },
  { ":mem [on]", "memory of the process; on: note the lines that make tensors" },
  { ":bt [all]  :where", "the stack of the last error, or of a stopped script" },
  { ":list [A [B]]", "the text around the line at which it stands", paused = true },
  { ":locals", "variables of the selected function, and of this session" },
  { ":up  :down", "select the caller of that function, and return; :up 2", paused = true },
  { "@0,2 INPUT", "run it on ranks 0 and 2 alone (so does :on 0,2 INPUT)", ranks = true },
  { ":diff [EXPR]", "compare tensors between ranks; alone: parameters, gradients", ranks = true },
  { ":ranks", "the current activity of each rank", ranks = true },
  { "!COMMAND", "run a command of the shell" },
  { ":save FILE", "write the inputs that worked to a file" },
  { ":c", "let the script continue (same as Ctrl-D)", paused = true, own = false },
  { ":quit", "end (in a script: end the script)", own = false },
}

--- "@0,2 x = 1", ":on 0,2 x = 1", ":all x = 1" -> "0,2" or "all", "x = 1". Otherwise nil, the text.
---@return string? ranks
---@return string code
function M.addressed(text)
  local list, code = text:match "^%s*@(%S*)%s*(.*)$"
  if not list then list, code = text:match "^%s*:on%s+(%S+)%s*(.*)$" end
  if not list then list, code = text:match "^%s*:(all)%s+(.*)$" end
  return list, list and code or text
end

--- The error for an unknown command: the line, the nearest one.
function M.unknown(name, line, more)
  local names = table.move(M.names, 1, #M.names, 1, {})
  for _, other in ipairs { "help", "doc", "save", "quit", table.unpack(more or {}) } do names[#names + 1] = other end
  local near = accel.nearest(name, names)
  return ("stdin:%d: no command :%s%s"):format(line, name, near and ("; did you mean :%s?"):format(near)
    or "; :help lists them")
end

--- The output of :type for a name of the session. nil: there is none. own: it was made here, or in the script.
---@return string?
---@return boolean own
function M.kind(session, name)
  local root, fields = name:match "^([%a_][%w_]*)(.*)$"
  local value, own = session:lookup(root or name)
  for field in (fields or ""):gmatch "[.:]([%a_][%w_]*)" do
    local ok, inner = pcall(function() return value[field] end)
    value = ok and inner or nil
  end
  return value ~= nil and ("%s: %s"):format(name, show.type(value)) or nil, own
end

--- The page of the library for a name, or the kind of an own name: its lines, and whether it is a page. nil, why: there is neither.
---@param kind? string the result of M.kind
---@param own? boolean
---@return string[]? lines
---@return boolean|string page
function M.explanation(name, kind, own, width)
  local lines, why = accel.host_chunk("help").lines(name, width)
  if kind and (own or not lines) then return { kind }, false end
  if lines then return lines, true end
  return nil, (why:gsub("accel%-run help", ":help"))
end

--- :help NAME, :doc NAME, NAME?: shows that. nil, why: there is neither.
---@param say fun(lines: string[])
function M.explain(name, kind, own, width, say)
  local lines, page = M.explanation(name, kind, own, width)
  if not lines then return nil, page end
  if page == true then accel.host_chunk("help").show(name, width) else say(lines) end
  return true
end

--- Lines of :help. own: those of further commands (attach/commands.lua), which replace some here.
function M.help_lines(what)
  local lines = { "Type an expression or a statement, over as many lines as it needs. _ is the",
    "last value. TAB completes, Ctrl-C stops the evaluation, a leading `local` stays." }
  for _, row in ipairs(M.help) do
    if (what.ranks or not row.ranks) and (what.paused or not row.paused) and not (what.own and row.own == false) then
      lines[#lines + 1] = ("  %-18s %s"):format(row[1], row[2])
    end
  end
  for _, row in ipairs(what.own or {}) do lines[#lines + 1] = ("  %-18s %s"):format(row[1], row[2]) end
  return lines
end

--- IPython's forms of commands in ours: "%time f(x)" -> ":time f(x)", "!ls" -> ":sh ls".
---@return string
function M.normal(text)
  return (text:gsub("^%s*%%(%a)", ":%1"):gsub("^%s*!%s*", ":sh "))
end

--- Whether a command is followed by an input, which may need more lines.
function M.takes_input(text) return text:find "^%s*:timei?t?%s" ~= nil end

--- Whether an input asks about an expression: "x.shape?".
function M.is_question(text) return text:find "^%s*[^\"':][^\"']-%?%s*$" ~= nil end

--- ":time f(x)" -> "time", "f(x)". nil: no command.
function M.split(text)
  local name = text:match "^%s*([%w_.:]+)%?%s*$"
  if name and not name:find "^:" then return "doc", name end
  if M.is_question(text) then return "type", text:match "^%s*(.-)%s*%?%s*$" end
  local command, rest = text:match "^:(%a%w*)%s*(.-)%s*$"
  return command and (SHORT[command] or command), rest
end

return M
