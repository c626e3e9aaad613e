--- Splits a template into tokens: text between tags, and the content of tags. Whitespace control is Jinja's with trim_blocks and
--- lstrip_blocks, as Transformers sets them for chat templates: a newline after {% %} or {# #} is removed, and so are blanks of
--- a line before one. `-` strips all whitespace on its side, `+` keeps it.
local limits = require "accel.text.jinja.limits"
local values = require "accel.text.jinja.values"

local problem, quoted = limits.problem, limits.quoted

local M = {}

local operators = {} -- by length, the longest first
for _, list in ipairs {
  { "**", "//", "==", "!=", ">=", "<=" },
  { "+", "-", "*", "/", "%", "~", "<", ">", "=", "|", ".", ",", ":", "(", ")", "[", "]", "{", "}", ";" },
} do
  local set = {}
  for _, op in ipairs(list) do set[op] = true end
  operators[#operators + 1] = set
end

local brackets = { ["("] = ")", ["["] = "]", ["{"] = "}" }

local escapes = {
  n = "\n", t = "\t", r = "\r", b = "\b", f = "\f", v = "\v", a = "\a", ["\\"] = "\\", ["'"] = "'", ['"'] = '"', ["\n"] = "",
}

--- The value of a string literal's inside.
local function unescape(s, line)
  local out, at = {}, 1
  while true do
    local back = s:find("\\", at, true)
    if not back then break end
    out[#out + 1] = s:sub(at, back - 1)
    local c = s:sub(back + 1, back + 1)
    local digits = c == "x" and 2 or c == "u" and 4 or c == "U" and 8
    if digits then
      local hex = s:match("^" .. ("%x"):rep(digits), back + 2)
      local code = hex and tonumber(hex, 16)
      if not code or code > 0x10FFFF or (code >= 0xD800 and code <= 0xDFFF) then
        problem(line, "\\%s needs a character's %d hexadecimal digits", c, digits)
      end
      out[#out + 1], at = utf8.char(code), back + 2 + digits
    elseif c:find "[0-7]" then
      local octal = s:match("^[0-7][0-7]?[0-7]?", back + 1)
      out[#out + 1], at = utf8.char(tonumber(octal, 8)), back + 1 + #octal
    else
      out[#out + 1], at = escapes[c] or "\\" .. c, back + 2
    end
  end
  out[#out + 1] = s:sub(at)
  return table.concat(out)
end

--- The tokens of a tag's inside, from `at` to its end mark. Returns the position after it, and the form of the mark.
local function lex_tag(src, at, close, line, tokens)
  local open = {} -- the open brackets, as their closing ones
  local function push(kind, value)
    if #tokens >= limits.TOKENS then problem(line, "more than %d words and marks in tags", limits.TOKENS) end
    tokens[#tokens + 1] = { kind = kind, value = value, line = line }
  end
  while true do
    local blank = src:match("^%s+", at)
    if blank then
      local _, n = blank:gsub("\n", "")
      line, at = line + n, at + #blank
    end
    if at > #src then problem(line, "the template ends within a tag: '%s' is missing", close) end
    local two = src:sub(at, at + 1)
    local first = src:sub(at, at)
    if #open == 0 and two == close then return at + 2, "", line end
    if #open == 0 and (first == "-" or first == "+") and src:sub(at + 1, at + 2) == close then return at + 3, first, line end
    local name = src:match("^[%a_][%w_]*", at)
    local digits = not name and src:match("^%d[%d_]*", at)
    if name then
      push("name", name)
      at = at + #name
    elseif digits then
      local whole = src:match("^%d[%d_]*%.%d[%d_]*[eE][+-]?%d+", at) or src:match("^%d[%d_]*[eE][+-]?%d+", at)
        or src:match("^%d[%d_]*%.%d[%d_]*", at)
      if whole then
        push("float", tonumber((whole:gsub("_", ""))) + 0.0)
        at = at + #whole
      else
        local clean = digits:gsub("_", "")
        local value = math.tointeger(tonumber(clean))
        if #clean > limits.NUMBER then problem(line, "the integer %s is too large", quoted(digits)) end
        if not value or #clean > 18 then value = values.big(clean) end
        push("integer", value)
        at = at + #digits
      end
    elseif first == "'" or first == '"' then
      local stop = at + 1
      while true do
        local c = src:find("[\\" .. first .. "]", stop)
        if not c then problem(line, "a string has no end") end
        if src:sub(c, c) == first then
          stop = c
          break
        end
        stop = c + 2
      end
      local inside = src:sub(at + 1, stop - 1)
      push("string", unescape(inside, line))
      local _, n = inside:gsub("\n", "")
      line, at = line + n, stop + 1
    else
      local op = operators[1][two] and two or operators[2][first] and first
      if not op then problem(line, "unexpected character %s", quoted(first)) end
      if brackets[op] then
        open[#open + 1] = brackets[op]
      elseif op == ")" or op == "]" or op == "}" then
        if open[#open] ~= op then problem(line, "unexpected '%s'%s", op, open[1] and (", expected '%s'"):format(open[#open]) or "") end
        open[#open] = nil
      end
      push("op", op)
      at = at + #op
    end
  end
end

--- Text before a tag, as its mark asks.
local function strip_end(text, sign, is_block, at_line_start)
  if sign == "-" then return text:match "^(.*%S)" or "" end
  if sign == "" and is_block then
    local head, tail = text:match "^(.*\n)([ \t\v\f]*)$"
    if head then return head end
    tail = text:match "^[ \t\v\f]*$"
    if tail and at_line_start then return "" end
  end
  return text
end

--- The tokens of a template: {kind = "data"|"variable_begin"|"variable_end"|"block_begin"|"block_end"|"name"|"string"|"integer"|
--- "float"|"op"|"eof", value =, line =}.
---@param src string
---@return table[]
function M.tokens(src)
  if #src > limits.SOURCE then problem(nil, "%d bytes, at most %d are read", #src, limits.SOURCE) end
  if not utf8.len(src) then problem(nil, "not UTF-8") end
  src = src:gsub("\r\n?", "\n"):gsub("\n$", "")
  local tokens, at, line = {}, 1, 1
  local strip, trim = false, false -- the previous mark's whitespace control for the following text
  local function data(text, sign, is_block, from)
    local start_of_line = from == 1 or src:sub(from - 1, from - 1) == "\n"
    local _, n = text:gsub("\n", "")
    local before = line
    line = line + n
    if strip then
      local rest = text:gsub("^%s+", "")
      start_of_line = start_of_line and #rest == #text
      text = rest
    elseif trim and text:sub(1, 1) == "\n" then
      text, start_of_line = text:sub(2), true
    end
    if sign then text = strip_end(text, sign, is_block, start_of_line) end
    if text ~= "" then tokens[#tokens + 1] = { kind = "data", value = text, line = before } end
    strip, trim = false, false
  end
  local function closed(sign, is_block) strip, trim = sign == "-", is_block and sign == "" end
  while true do
    local open = at
    local mark
    repeat
      open = src:find("{", open, true)
      mark = open and src:sub(open + 1, open + 1)
      if open and not (mark == "{" or mark == "%" or mark == "#") then open, mark = open + 1, nil end
    until not open or mark
    if not open then
      data(src:sub(at), nil, false, at)
      break
    end
    local sign = src:match("^[-+]", open + 2) or ""
    data(src:sub(at, open - 1), sign, mark ~= "{", at)
    local inside = open + 2 + #sign
    if mark == "#" then
      local stop = src:find("#}", inside, true)
      if not stop then problem(line, "a comment has no end: '#}' is missing") end
      local comment = src:sub(inside, stop - 1)
      local _, n = comment:gsub("\n", "")
      line, at = line + n, stop + 2
      closed(comment:match "[-+]$" or "", true)
    else
      local raw = mark == "%" and src:match("^%s*raw%s*[-+]?%%}()", inside)
      if raw then
        local begin_sign = src:sub(raw - 3, raw - 3)
        local stop, last, end_sign, close_sign = src:find("{%%([-+]?)%s*endraw%s*([-+]?)%%}", raw)
        if not stop then problem(line, "'raw' has no 'endraw'") end
        closed(begin_sign:match "[-+]" or "", false) -- a newline after it stays
        data(src:sub(raw, stop - 1), end_sign, true, raw)
        closed(close_sign, true)
        at = last + 1
      else
        local close = mark == "{" and "}}" or "%}"
        local kind = mark == "{" and "variable" or "block"
        tokens[#tokens + 1] = { kind = kind .. "_begin", line = line }
        local end_sign
        at, end_sign, line = lex_tag(src, inside, close, line, tokens)
        tokens[#tokens + 1] = { kind = kind .. "_end", line = line }
        closed(end_sign, mark == "%")
      end
    end
  end
  tokens[#tokens + 1] = { kind = "eof", line = line }
  return tokens
end

return M
