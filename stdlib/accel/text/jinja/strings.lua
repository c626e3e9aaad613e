--- Methods of strings, lists and dictionaries that templates may call, with Python's results. Those that would change their
--- object are missing, as in Transformers' sandbox.
local case = require "accel.text.jinja.case"
local limits = require "accel.text.jinja.limits"
local values = require "accel.text.jinja.values"

local problem = limits.problem
local NONE, kind = values.NONE, values.kind

local M = {}

-- Whitespace of Python's strip and split.
local spaces = {}
for _, range in ipairs { { 9, 13 }, { 28, 32 }, { 0x85, 0x85 }, { 0xA0, 0xA0 }, { 0x1680, 0x1680 }, { 0x2000, 0x200A }, { 0x2028, 0x2029 },
  { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 } } do
  for code = range[1], range[2] do spaces[utf8.char(code)] = true end
end

local function set_of(chars, budget)
  if chars == nil or kind(chars) == "none" then return spaces end
  budget:work(4 * #chars)
  local set = {}
  for _, code in utf8.codes(chars) do set[utf8.char(code)] = true end
  return set
end

--- Takes characters of a set away from the ends.
---@param s string
---@param chars any nil: whitespace
---@param left boolean
---@param right boolean
---@param budget accel.text.jinja.Budget
---@return string
function M.strip(s, chars, left, right, budget)
  local set, first, last = set_of(chars, budget), 1, #s
  budget:work(#s // 16)
  while left and first <= last do
    local stop = utf8.offset(s, 2, first) - 1
    if not set[s:sub(first, stop)] then break end
    budget:work(1)
    first = stop + 1
  end
  while right and last >= first do
    local start = utf8.offset(s, -1, last + 1)
    if not set[s:sub(start, last)] then break end
    budget:work(1)
    last = start - 1
  end
  return s:sub(first, last)
end

local function need_string(v, what, line)
  if type(v) ~= "string" then problem(line, "%s needs a string, got %s", what, values.type_name(v == nil and NONE or v)) end
  return v
end

local function need_integer(v, default, what, line)
  if v == nil or kind(v) == "none" then return default end
  if type(v) == "boolean" then return v and 1 or 0 end
  if math.type(v) ~= "integer" then problem(line, "%s needs an integer, got %s", what, values.type_name(v)) end
  return v
end

--- Pieces between runs of whitespace, at most `most` cuts.
local function split_blank(s, most, budget)
  local out, from = {}, nil
  budget:work(2 * #s)
  for p, code in utf8.codes(s) do
    if spaces[utf8.char(code)] then
      if from then out[#out + 1], from = s:sub(from, p - 1), nil end
    elseif not from then
      if most >= 0 and #out == most then
        out[#out + 1] = M.strip(s:sub(p), nil, false, true, budget)
        return out
      end
      from = p
    end
  end
  if from then out[#out + 1] = s:sub(from) end
  return out
end

local function split_at(s, sep, most, budget, line)
  if sep == "" then problem(line, "split: an empty separator") end
  local out, at = {}, 1
  budget:search(s, sep)
  budget:work(#s // 16)
  while most < 0 or #out < most do
    local a, b = s:find(sep, at, true)
    if not a then break end
    budget:work(4)
    out[#out + 1] = s:sub(at, a - 1)
    at = b + 1
  end
  out[#out + 1] = s:sub(at)
  return out
end

local function rsplit_at(s, sep, most, budget, line)
  local all = split_at(s, sep, -1, budget, line)
  if most < 0 or #all <= most + 1 then return all end
  local keep = #all - most
  local out = { table.concat(all, sep, 1, keep) }
  return table.move(all, keep + 1, #all, 2, out)
end

local function one_of(s, what, fits, line)
  if type(what) == "string" then return fits(s, what) end
  if kind(what) == "list" then
    for i = 1, what.n do
      if fits(s, need_string(what.items[i], "startswith", line)) then return true end
    end
    return false
  end
  problem(line, "startswith and endswith need a string or a tuple, got %s", values.type_name(what == nil and NONE or what))
end

local function starts(s, x) return s:sub(1, #x) == x end
local function ends(s, x) return x == "" or (#x <= #s and s:sub(-#x) == x) end

--- Every `old` as `new`, at most `most` (-1: all).
function M.replace(s, old, new, most, budget, line)
  local parts, at, n = {}, 1, 0
  if old == "" then -- between all characters
    budget:work(4 * #s)
    for _, code in utf8.codes(s) do
      parts[#parts + 1] = (most < 0 or n < most) and new .. utf8.char(code) or utf8.char(code)
      n = n + 1
    end
    if most < 0 or n < most then parts[#parts + 1] = new end
  else
    budget:search(s, old)
    while most < 0 or n < most do
      local a, b = s:find(old, at, true)
      if not a then break end
      budget:work(6)
      parts[#parts + 1], parts[#parts + 2] = s:sub(at, a - 1), new
      at, n = b + 1, n + 1
    end
    parts[#parts + 1] = s:sub(at)
  end
  return budget:joined(parts, "", line)
end

local function title(s, budget)
  budget:work(2 * #s)
  return (s:gsub("[%a\128-\255]+", case.capitalize))
end

local function all_match(pattern)
  return function(s) return s ~= "" and not s:find(pattern) end
end

--- A method that makes another string of every character.
local function each(fn)
  return function(s, _, _, budget, line)
    budget:work(#s // 2)
    budget:bytes(#s, line)
    return fn(s, budget)
  end
end

--- name -> function(s, args, named, budget, line)
M.of_string = {
  strip = function(s, a, _, budget) return M.strip(s, a[1], true, true, budget) end,
  lstrip = function(s, a, _, budget) return M.strip(s, a[1], true, false, budget) end,
  rstrip = function(s, a, _, budget) return M.strip(s, a[1], false, true, budget) end,
  upper = each(case.upper),
  lower = each(case.lower),
  title = each(title),
  capitalize = each(case.capitalize),
  startswith = function(s, a, _, _, line) return one_of(s, a[1], starts, line) end,
  endswith = function(s, a, _, _, line) return one_of(s, a[1], ends, line) end,
  removeprefix = function(s, a, _, _, line)
    return starts(s, need_string(a[1], "removeprefix", line)) and s:sub(#a[1] + 1) or s
  end,
  removesuffix = function(s, a, _, _, line)
    return a[1] ~= "" and ends(s, need_string(a[1], "removesuffix", line)) and s:sub(1, #s - #a[1]) or s
  end,
  replace = function(s, a, n, budget, line)
    return M.replace(s, need_string(a[1], "replace", line), need_string(a[2], "replace", line),
      need_integer(a[3] or n.count, -1, "replace", line), budget, line)
  end,
  split = function(s, a, n, budget, line)
    local sep, most = a[1] or n.sep, need_integer(a[2] or n.maxsplit, -1, "split", line)
    if sep == nil or kind(sep) == "none" then return values.list(split_blank(s, most, budget)) end
    return values.list(split_at(s, need_string(sep, "split", line), most, budget, line))
  end,
  rsplit = function(s, a, n, budget, line)
    local sep, most = a[1] or n.sep, need_integer(a[2] or n.maxsplit, -1, "rsplit", line)
    if sep == nil or kind(sep) == "none" then
      if most >= 0 then problem(line, "rsplit by whitespace takes no maxsplit here") end
      return values.list(split_blank(s, -1, budget))
    end
    return values.list(rsplit_at(s, need_string(sep, "rsplit", line), most, budget, line))
  end,
  splitlines = function(s, _, _, budget, line)
    budget:work(#s // 2)
    local out = split_at(s:gsub("\r\n?", "\n"), "\n", -1, budget, line)
    if out[#out] == "" then out[#out] = nil end
    return values.list(out)
  end,
  join = function(s, a, _, budget, line)
    local parts = {}
    for i, v in ipairs(values.sequence(a[1], budget, line)) do parts[i] = need_string(v, "join", line) end
    return budget:joined(parts, s, line)
  end,
  find = function(s, a, _, budget, line)
    budget:search(s, need_string(a[1], "find", line))
    local at = s:find(a[1], 1, true)
    return at and utf8.len(s, 1, at - 1) or -1
  end,
  count = function(s, a, _, budget, line)
    local x = need_string(a[1], "count", line)
    if x == "" then return utf8.len(s) + 1 end
    budget:search(s, x)
    local n, at = 0, 1
    while true do
      local _, b = s:find(x, at, true)
      if not b then return n end
      budget:work(1)
      n, at = n + 1, b + 1
    end
  end,
  isdigit = all_match "%D", isalpha = all_match "[^%a\128-\255]", isalnum = all_match "[^%w\128-\255]", isspace = all_match "%S",
  isupper = function(s) return s:find "%u" ~= nil and not s:find "%l" end,
  islower = function(s) return s:find "%l" ~= nil and not s:find "%u" end,
}

M.of_list = {
  index = function(v, a, _, budget, line)
    for i = 1, v.n do
      if values.equal(v.items[i], a[1], budget) then return i - 1 end
    end
    problem(line, "index: the value is not in the list")
  end,
  count = function(v, a, _, budget)
    local n = 0
    for i = 1, v.n do
      if values.equal(v.items[i], a[1], budget) then n = n + 1 end
    end
    return n
  end,
}

--- The pairs of a dictionary as tuples.
function M.items(d, budget)
  local out = {}
  budget:work(20 * #d.keys)
  for i, key in ipairs(d.keys) do out[i] = values.list({ key, d.map[key] }, true) end
  return values.list(out)
end

M.of_dict = {
  get = function(d, a)
    local value = values.is_key(a[1]) and d.map[a[1]]
    if value == nil or not values.is_key(a[1]) then return a[2] == nil and NONE or a[2] end
    return value
  end,
  items = function(d, _, _, budget) return M.items(d, budget) end,
  keys = function(d, _, _, budget)
    budget:work(#d.keys)
    return values.list(table.move(d.keys, 1, #d.keys, 1, {}))
  end,
  values = function(d, _, _, budget)
    local out = {}
    budget:work(#d.keys)
    for i, key in ipairs(d.keys) do out[i] = d.map[key] end
    return values.list(out)
  end,
}

return M
