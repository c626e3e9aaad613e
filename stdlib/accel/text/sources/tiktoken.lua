--- Tokenizers of tiktoken's files: lines of a token in base 64 and its rank. How texts are cut and which tokens are special does not stand
--- in them. Used by Tokenizer.from_tiktoken.
local accel = require "accel"
local Description = require "accel.text.sources.description"
local base64 = require "accel.util.base64"

local M = {}

local LONGEST <const> = 4096 -- bytes of a token

-- The characters that stand for bytes in ByteLevel: printing ones of Latin-1 for themselves, the others from U+0100 in order.
local visible, more = {}, 0x100
for byte = 0, 255 do
  if byte >= 0x21 and byte <= 0x7E or byte >= 0xA1 and byte <= 0xAC or byte >= 0xAE then
    visible[string.char(byte)] = utf8.char(byte)
  else
    visible[string.char(byte)] = utf8.char(more)
    more = more + 1
  end
end

local function shown(bytes) return (bytes:gsub(".", visible)) end

--- Whether a file's first line is one of these.
---@param bytes string
---@return boolean
function M.fits(bytes) return bytes:find "^[%w+/]+=?=? %d+\r?\n" ~= nil end

local function ranks_of(bytes)
  local ranks, list, n = {}, {}, 0
  if bytes:sub(-1) ~= "\n" and bytes ~= "" then bytes = bytes .. "\n" end
  for line in bytes:gmatch "([^\n]*)\n" do
    n = n + 1
    line = line:gsub("\r$", "")
    if line ~= "" then
      local text, rank = line:match "^([%w+/]+=?=?) (%d+)$"
      local token = text and base64.decode(text)
      rank = math.tointeger(tonumber(rank))
      if not token or not rank or rank >= 2 ^ 31 then return nil, ("line %d is not a token in base 64 and its rank"):format(n) end
      if #token > LONGEST then return nil, ("line %d: a token of more than %d bytes"):format(n, LONGEST) end
      if ranks[token] then return nil, ("line %d: its token stands in an earlier line"):format(n) end
      ranks[token], list[#list + 1] = rank, token
    end
  end
  if #list == 0 then return nil, "there are no tokens" end
  table.sort(list, function(a, b) return ranks[a] < ranks[b] end)
  return ranks, list
end

--- The description of a file's bytes.
---@param bytes string
---@param pattern string a regular expression that cuts texts
---@param special table<string, integer> ids by token
---@return table? description
---@return string? message
function M.read(bytes, pattern, special)
  local ranks, list = ranks_of(bytes)
  if not ranks then return nil, list end
  local vocab, merges = {}, {}
  for _, token in ipairs(list) do
    vocab[shown(token)] = ranks[token]
    for at = 1, #token - 1 do
      local left, right = token:sub(1, at), token:sub(at + 1)
      if ranks[left] and ranks[right] then merges[#merges + 1] = shown(left) .. " " .. shown(right) end
    end
  end
  local names = {}
  for token, id in next, special do
    if vocab[token] and vocab[token] ~= id then return nil, ("the special token '%s' is a token of the file"):format(token) end
    vocab[token], names[#names + 1] = id, token
  end
  table.sort(names, function(a, b) return special[a] < special[b] end)
  local d = Description(Description.object("type", "BPE", "dropout", accel.json.null, "unk_token", accel.json.null,
    "continuing_subword_prefix", accel.json.null, "end_of_word_suffix", accel.json.null, "fuse_unk", false, "byte_fallback", false,
    "ignore_merges", true, "vocab", vocab, "merges", accel.json.array(merges)))
  local function byte_level(prefix_space)
    return Description.object("type", "ByteLevel", "add_prefix_space", prefix_space, "trim_offsets", true, "use_regex", false)
  end
  d.pre_tokenizer = Description.sequence("pretokenizers", {
    Description.object("type", "Split", "pattern", { Regex = pattern }, "behavior", "Isolated", "invert", false), byte_level(false) })
  d.decoder = byte_level(true)
  for _, token in ipairs(names) do d:add { content = token, special = true } end
  return d
end

return M
