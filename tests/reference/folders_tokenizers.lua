-- Tokenizers of folders without a tokenizer.json, and of single files: ids, places, texts and special tokens as Transformers, SentencePiece
-- and tiktoken give them, and the same ids after a tokenizer.json was written and read. Used by folders.lua and
-- tests/stdlib/text/folders_test.lua.
local accel = require "accel"
local Tokenizer = accel.text.Tokenizer

local M = {}

local function read_json(path)
  local f <close> = assert(io.open(path, "rb"))
  return accel.json.decode(f:read "a")
end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  if #a ~= #b then return false end
  for i = 1, #a do
    if not same(a[i], b[i]) then return false end
  end
  return true
end

local function shown(x)
  if type(x) ~= "table" then return type(x) == "string" and ("%q"):format(x) or tostring(x) end
  local parts = {}
  for i, v in ipairs(x) do parts[i] = shown(v) end
  return "{" .. table.concat(parts, " ") .. "}"
end

--- The tokenizer of a folder, as its row tells.
local function load(path, expected)
  if not expected.pattern then return Tokenizer.from_pretrained(path) end
  local names = assert(accel.listdir(path))
  return Tokenizer.from_tiktoken(path .. "/" .. names[1], { pattern = expected.pattern, special_tokens = expected.special_tokens })
end

local function texts_of(tok, ids)
  local out = {}
  for i, id in ipairs(ids) do out[i] = tok:id_to_token(id) end
  return out
end

--- Places in characters as places in bytes.
local function in_bytes(text, offsets)
  local out = {}
  for i, o in ipairs(offsets) do out[i] = { utf8.offset(text, o[1] + 1) - 1, utf8.offset(text, o[2] + 1) - 1 } end
  return out
end

local function starts_of(offsets)
  local out = {}
  for i, o in ipairs(offsets) do out[i] = o[1] end
  return out
end

--- The quantities of a case.
local function measured(tok, c, tool)
  local e = tok:encode(c.text)
  local out = { ids = e.ids, offsets = e.offsets, type_ids = e.type_ids }
  out.decoded = tok:decode(c.ids, { skip_special_tokens = tool ~= "tiktoken" }) -- which keeps them
  if c.byte_offsets then out.byte_offsets, out.pieces = in_bytes(c.text, e.offsets), e.tokens end
  if c.starts then out.starts = starts_of(e.offsets) end
  if c.ids_plain and tool == "tiktoken" then
    out.ids_plain = tok:encode(c.text, { split_special_tokens = true }).ids
  elseif c.ids_plain then
    out.ids_plain = tok:encode(c.text, { add_special_tokens = false }).ids
    out.tokens_plain = texts_of(tok, out.ids_plain)
  end
  if c.decoded_keep then out.decoded_keep = tok:decode(c.ids, { skip_special_tokens = false }) end
  return out
end

--- Compares one folder; report(quantity, distance, bar) is called for what differs.
---@param path string
---@param report fun(quantity: string, distance: any, bar: any)
---@param row table
function M.check(path, report, row)
  local expected = read_json(path:sub(1, -#row.name - 1) .. row.expected)
  local tok, message = load(path, expected)
  if not tok then return report("load", message, "loads") end
  local again = Tokenizer.from_str(tok:to_str())
  local wrong, first, order = {}, {}, {}
  local function compare(quantity, text, got, want)
    if same(got, want) then return end
    if not wrong[quantity] then order[#order + 1] = quantity end
    wrong[quantity] = (wrong[quantity] or 0) + 1
    first[quantity] = first[quantity] or ("of %s: %s, not %s"):format(shown(text), shown(got):sub(1, 300), shown(want):sub(1, 300))
  end
  for _, c in ipairs(expected.cases) do
    local got = measured(tok, c, row.tool)
    for quantity, want in next, c do
      if quantity ~= "text" then compare(quantity, c.text, got[quantity], want) end
    end
    compare("ids after writing", c.text, again:encode(c.text).ids, c.ids)
    compare("decoded after writing", c.text, again:decode(c.ids, { skip_special_tokens = row.tool ~= "tiktoken" }), c.decoded)
  end
  for _, p in ipairs(expected.pairs or {}) do
    local e = tok:encode(p.a, p.b)
    compare("ids of pairs", p.a .. "|" .. p.b, e.ids, p.ids)
    if p.type_ids then compare("type_ids of pairs", p.a .. "|" .. p.b, e.type_ids, p.type_ids) end
  end
  if expected.truncated_9 then
    local a, b = expected.cases[35].text, expected.cases[36].text
    compare("truncated_9", a .. "|" .. b, tok(a, b, { truncation = true, max_length = 9 }).input_ids, expected.truncated_9)
  end
  if expected.size then compare("size", "vocabulary", tok:get_vocab_size(), expected.size) end
  for name, token in next, expected.special or {} do
    compare(name, name, { tok[name], tok[name .. "_id"] }, token)
  end
  for _, quantity in ipairs(order) do
    report(quantity, ("%d of %d differ, first that %s"):format(wrong[quantity], #expected.cases, first[quantity]), "equal")
  end
end

return M
