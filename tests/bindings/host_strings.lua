-- Run by test_host_strings.c in two hosts, with Lua's own functions of string and table and with the host's: each line of the result is a
-- call with its results or its error. Patterns and texts are drawn from small alphabets, so that many match. the global answers(seed, n) -> text
local state
local function draw(n)
  state = (state * 6364136223846793005 + 1442695040888963407) & math.maxinteger
  return (state >> 33) % n + 1
end

local CHARS <const> = { "a", "b", "ab", "A", "1", " ", ".", "%", "-", "\0", "]", "(", "\xe4" }
local ITEMS <const> = { "a", "b", ".", "%a", "%d", "%s", "%w", "%W", "%l", "%u", "%x", "%p", "%c", "%g", "%z", "[ab]", "[^a]", "[a-c1-3]",
  "[%a_]", "[]]", "[^]]", "[a%]]", "[%w-]", "[a-]", "%.", "%%", "%-", "%1", "%2", "%b()", "%bab", "%f[%a]", "%f[^a]", "(a)", "(.-)", "()",
  "(%a+)", "((a)b)", "(b*)", "^", "$", "\0", "%]" }
local BROKEN <const> = { "%", "[a", "[^", "[", "[%", "(", ")", "%b", "%bx", "%f", "%fa", "%0", "%9", "((", "(a" }
local SUFFIXES <const> = { "", "", "", "*", "+", "-", "?" }
local REPLACEMENTS <const> = { "", "x", "<%0>", "%1", "%2", "%%", "%", "%x", 7, "[%1%1]", { a = "A", b = false, [1] = "one" },
  { ab = 3, a = {} }, function(a, b) return b or a end, function() end, function() return true end, true }

local function text()
  local t = {}
  for i = 1, draw(12) - 1 do t[i] = CHARS[draw(#CHARS)] end
  return table.concat(t)
end

local function pattern()
  local t = { draw(6) == 1 and "^" or "" }
  for _ = 1, draw(4) do t[#t + 1] = ITEMS[draw(#ITEMS)] .. SUFFIXES[draw(#SUFFIXES)] end
  if draw(12) == 1 then t[#t + 1] = BROKEN[draw(#BROKEN)] end
  if draw(6) == 1 then t[#t + 1] = "$" end
  return table.concat(t)
end

local function show(...)
  local t = table.pack(...)
  for i = 1, t.n do t[i] = type(t[i]) == "table" and "table" or ("%q"):format(t[i]) end
  return table.concat(t, " ", 1, t.n)
end

local function init() return draw(3) == 1 and draw(16) - 8 or nil end

local function all(s, p, at)
  local t = {}
  for a, b in s:gmatch(p, at) do
    t[#t + 1] = show(a, b)
    if #t > 40 then break end
  end
  return table.concat(t, "|")
end

function answers(seed, n) -- luacheck: globals answers
  state = seed
  local lines = {}
  local function note(what, ...) lines[#lines + 1] = what .. " = " .. show(pcall(...)) end
  for _ = 1, n do
    local s, p, at = text(), pattern(), init()
    local what = ("%q %q %s"):format(s, p, at)
    note("find " .. what, string.find, s, p, at)
    note("plain " .. what, string.find, s, p, at, true)
    note("match " .. what, string.match, s, p, at)
    note("gmatch " .. what, all, s, p, at)
    local which = draw(#REPLACEMENTS)
    note(("gsub %s by %d"):format(what, which), string.gsub, s, p, REPLACEMENTS[which], draw(3) == 1 and draw(5) - 2 or nil)
    local times, between = draw(6) - 2, draw(2) == 1 and "," or nil
    note(("rep %q %d"):format(s, times), string.rep, s, times, between)
    local list = {}
    for i = 1, draw(9) do list[i] = draw(20) == 1 and {} or draw(30) end
    note("concat", table.concat, list, draw(2) == 1 and s or nil, draw(3) == 1 and draw(4) or nil, draw(3) == 1 and draw(12) or nil)
    note("sort", function()
      table.sort(list)
      return table.concat(list, " ")
    end)
  end
  -- arguments, limits, and long ones
  note("find nothing", string.find)
  note("find nil", string.find, "a", nil)
  note("gsub nil", string.gsub, "a", "a")
  note("gsub both", string.gsub, "a", "a", true, "x")
  note("match number", string.match, 12345, "3(4)", "2")
  note("gmatch nothing", string.gmatch)
  note("rep large", string.rep, "abc", 1 << 40)
  note("rep huge", string.rep, "x", 1 << 31)
  note("rep none", string.rep, "", 1000, "")
  note("deep", string.find, ("a"):rep(300), ("a?"):rep(300))
  note("groups", string.find, "a", ("(a"):rep(40))
  note("captures", string.gsub, "abc", "(a)(b)(c)", "%3%2%1%0")
  note("concat nil", table.concat, { 1, 2, nil, 4 }, ",", 1, 4)
  note("concat bad", table.concat, 7)
  note("concat far", table.concat, { [math.maxinteger] = "z" }, ",", math.maxinteger, math.maxinteger)
  note("sort bad", table.sort, { 3, 1, 2 }, 7)
  note("sort mixed", table.sort, { 3, "1", 2 })
  note("sort with a metatable", function()
    local t = setmetatable({ 3, 1, 2 }, {})
    table.sort(t)
    return table.concat(t, " ")
  end)
  local long = {}
  for i = 1, 20000 do long[i] = (i * 7919) % 20011 end
  note("long concat", function() return (table.concat(long, ",")):sub(-50) end)
  note("long sort", function()
    table.sort(long)
    return table.concat(long, ","):sub(1, 80)
  end)
  note("long sort by >", function()
    table.sort(long, function(a, b) return a > b end)
    return table.concat(long, ","):sub(1, 80)
  end)
  note("invalid order", function()
    local t = {}
    for i = 1, 12000 do t[i] = i end
    table.sort(t, function() return true end)
  end)
  local count = 0
  local watched = setmetatable({}, { __index = function(_, i) return i <= 5 and ("v" .. i) or nil end, __len = function() return 5 end })
  note("concat by __index", table.concat, watched, "-")
  note("plain long", string.find, ("ab"):rep(1 << 20) .. "needle", "needle", 1, true)
  note("gsub long", function()
    local r, n2 = ("ab "):rep(10000):gsub("%a+", function(w)
      count = count + 1
      return w:upper()
    end)
    return #r, n2, count, r:sub(1, 20)
  end)
  return table.concat(lines, "\n")
end
