--- Writes host/text/unicode_data.c from the Unicode Character Database, which is all that a new version of Unicode needs:
---   lua host/text/gen/unicode.lua UCD_FOLDER > host/text/unicode_data.c
--- The folder holds UnicodeData.txt, DerivedAge.txt, Scripts.txt, CaseFolding.txt, CompositionExclusions.txt,
--- GraphemeBreakProperty.txt, PropList.txt and emoji-data.txt. What each stream of numbers means stands where they are read, in
--- unicode.c.
local dir = assert(arg[1], "usage: unicode.lua UCD_FOLDER")

local DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
local CATEGORIES = { "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi",
  "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co" }
local BREAKS = { "CR", "LF", "Control", "Extend", "ZWJ", "Regional_Indicator", "Prepend", "SpacingMark", "L", "V", "T",
  "LV", "LVT", "Extended_Pictographic" }
local SCRIPTS = { "Han", "Hiragana", "Katakana", "Hangul", "Latin", "Greek", "Cyrillic", "Arabic", "Hebrew", "Thai",
  "Devanagari", "Bopomofo" }
local LAST = 0x10FFFF

local number_of = {}
for i, name in ipairs(CATEGORIES) do number_of[name] = i - 1 end
for i, name in ipairs(BREAKS) do number_of[name] = i end

-- Calls fn(first, last, value) for each line "first..last ; value" or "first ; value", in hexadecimal.
local function ranges(file, fn)
  for line in io.lines(dir .. "/" .. file) do
    local first, last, value = line:match "^(%x+)%.%.(%x+)%s*;%s*([^%s#;]+)"
    if not first then first, value = line:match "^(%x+)%s*;%s*([^%s#;]+)" end
    if first then fn(tonumber(first, 16), tonumber(last or first, 16), value) end
  end
end

-- ---- streams ----
local function stream() return { n = 0, digits = {} } end

local function put(s, v)
  repeat
    local more = v >= 32
    local d = v & 31 | (more and 32 or 0)
    s.digits[#s.digits + 1] = DIGITS:sub(d + 1, d + 1)
    v = v >> 5
  until not more
  s.n = s.n + 1
end

local function zigzag(v) return v >= 0 and v << 1 or (-v << 1) - 1 end

-- Runs (gap since the last run, length - 1, value) of a sparse table.
local function runs_of(table_of)
  local s, at, c = stream(), 0, 0
  while c <= LAST do
    local v = table_of[c]
    if v then
      local last = c
      while table_of[last + 1] == v do last = last + 1 end
      put(s, c - at)
      put(s, last - c)
      put(s, v)
      at, c = last + 1, last + 1
    else
      c = c + 1
    end
  end
  return s
end

-- ---- the database ----
local age = {} -- 0: up to 8.0; 1: 9.0; 2: up to 16.0; 3: later
ranges("DerivedAge.txt", function(first, last, version)
  local v = tonumber(version)
  for c = first, last do age[c] = v <= 8 and 0 or v <= 9 and 1 or v <= 16 and 2 or 3 end
end)

local category, ccc, decomposition, lower = {}, {}, {}, {}
do
  local first
  for line in io.lines(dir .. "/UnicodeData.txt") do
    local f = {}
    for field in (line .. ";"):gmatch "([^;]*);" do f[#f + 1] = field end
    local c = tonumber(f[1], 16)
    if f[2]:find ", First>" then first = c end
    for x = f[2]:find ", Last>" and first or c, c do category[x] = f[3] end
    local old = (age[c] or 3) <= 1 -- normalisation is that of 9.0
    if old and f[4] ~= "0" then ccc[c] = tonumber(f[4]) end
    if old and f[6] ~= "" then
      local to = { compat = f[6]:find "^<" ~= nil }
      for hex in f[6]:gsub("^<[^>]*>", ""):gmatch "%x+" do to[#to + 1] = tonumber(hex, 16) end
      decomposition[c] = to
    end
    if f[14] ~= "" then lower[c] = tonumber(f[14], 16) end
  end
end

local out = {}

do -- categories: (length - 1, category + 30 * age), without gaps
  local s, c = stream(), 0
  local function value(x) return category[x] and number_of[category[x]] + 30 * (age[x] or 0) or 0 end
  while c <= LAST do
    local v, last = value(c), c
    while last < LAST and value(last + 1) == v do last = last + 1 end
    put(s, last - c)
    put(s, v)
    c = last + 1
  end
  out[#out + 1] = { "category", s }
end

do -- grapheme breaks, without Hangul syllables
  local t = {}
  ranges("emoji-data.txt", function(first, last, name)
    if name == "Extended_Pictographic" then
      for c = first, last do t[c] = number_of[name] end
    end
  end)
  ranges("GraphemeBreakProperty.txt", function(first, last, name)
    for c = first, last do
      if c < 0xAC00 or c > 0xD7A3 then t[c] = assert(number_of[name], name) end
    end
  end)
  out[#out + 1] = { "grapheme", runs_of(t) }
end

out[#out + 1] = { "combining", runs_of(ccc) }

do -- decompositions: (gap, 4 * (length - 1) + 2 * compatible + not composed again, code points as differences)
  local excluded = {}
  ranges("CompositionExclusions.txt", function(first, last)
    for c = first, last do excluded[c] = true end
  end)
  for line in io.lines(dir .. "/CompositionExclusions.txt") do
    local hex = line:match "^(%x+)%s"
    if hex then excluded[tonumber(hex, 16)] = true end
  end
  local s, at, was = stream(), 0, 0
  for c = 0, LAST do
    local to = decomposition[c]
    if to then
      local alone = to.compat or #to ~= 2 or excluded[c] or ccc[c] or ccc[to[1]]
      put(s, c - at)
      put(s, 4 * (#to - 1) + (to.compat and 2 or 0) + (alone and 1 or 0))
      for _, x in ipairs(to) do
        put(s, zigzag(x - was))
        was = x
      end
      at = c + 1
    end
  end
  out[#out + 1] = { "decomposition", s }
end

do -- lower case: (gap, 2 * (count - 1) + (stride - 1), difference)
  local s, at, c = stream(), 0, 0
  while c <= LAST do
    if lower[c] then
      local delta, n, stride = lower[c] - c, 1, 1
      local function same(x) return lower[x] == x + delta end
      if not same(c + 1) and same(c + 2) and lower[c + 1] == nil then stride = 2 end
      while same(c + n * stride) and (stride == 1 or lower[c + n * stride - 1] == nil) do n = n + 1 end
      put(s, c - at)
      put(s, 2 * (n - 1) + stride - 1)
      put(s, zigzag(delta))
      at = c + (n - 1) * stride + 1
      c = at
    else
      c = c + 1
    end
  end
  out[#out + 1] = { "lower", s }
end

do -- simple case folding where it is not the lower case: (gap, folded)
  local s, at, fold = stream(), 0, {}
  for line in io.lines(dir .. "/CaseFolding.txt") do
    local hex, kind, to = line:match "^(%x+); ([CS]); (%x+);"
    if hex then fold[tonumber(hex, 16)] = kind and tonumber(to, 16) end
  end
  for c = 0, LAST do
    if fold[c] and fold[c] ~= lower[c] then
      put(s, c - at)
      put(s, fold[c])
      at = c + 1
    end
  end
  out[#out + 1] = { "fold", s }
end

do -- scripts: (gap, length - 1, script), only what 16.0 knows
  local t, wanted = {}, {}
  for i, name in ipairs(SCRIPTS) do wanted[name] = i end
  ranges("Scripts.txt", function(first, last, name)
    for c = first, last do
      if wanted[name] and age[c] and age[c] <= 2 then t[c] = wanted[name] end
    end
  end)
  out[#out + 1] = { "script", runs_of(t) }
end

do -- full case folding to two or three code points: (gap, length - 2, code points)
  local s, at, full = stream(), 0, {}
  for line in io.lines(dir .. "/CaseFolding.txt") do
    local hex, to = line:match "^(%x+); F; ([%x ]+);"
    if hex then full[tonumber(hex, 16)] = to end
  end
  for c = 0, LAST do
    if full[c] then
      local parts = {}
      for hex in full[c]:gmatch "%x+" do parts[#parts + 1] = tonumber(hex, 16) end
      put(s, c - at)
      put(s, #parts - 2)
      for _, x in ipairs(parts) do put(s, x) end
      at = c + 1
    end
  end
  out[#out + 1] = { "full", s }
end

do -- what is not a letter but counts as one, only what 16.0 knows: (gap, length - 1, 1: alphabetic, 2: lower, 4: upper case)
  local t, bits = {}, { Other_Alphabetic = 1, Other_Lowercase = 2, Other_Uppercase = 4 }
  ranges("PropList.txt", function(first, last, name)
    for c = first, last do
      if bits[name] and age[c] and age[c] <= 2 then t[c] = (t[c] or 0) | bits[name] end
    end
  end)
  out[#out + 1] = { "other", runs_of(t) }
end

-- ---- output ----
local ROW = 108
print "/* Generated by gen/unicode.lua from the Unicode Character Database 17.0.0 (unicode.org/copyright.html): numbers in"
print " * groups of five bits, the lowest first, a digit of base 64 each. Read by unicode.c. */"
print '#include "text/unicode_impl.h"'
for _, entry in ipairs(out) do
  local text = table.concat(entry[2].digits)
  local rows = (#text + ROW - 1) // ROW
  print(("\nconst size_t aci_ucd_%s_numbers = %d;"):format(entry[1], entry[2].n))
  print(("const char aci_ucd_%s[][%d] = {"):format(entry[1], ROW + 1))
  for i = 0, rows - 1 do print(('    "%s",'):format(text:sub(i * ROW + 1, (i + 1) * ROW))) end
  print "};"
end
