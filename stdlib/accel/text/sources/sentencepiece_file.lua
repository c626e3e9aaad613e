--- Reads SentencePiece's model files (tokenizer.model, spiece.model): pieces with their scores and kinds, the settings of the normalizer
--- and of the trainer. Used by sentencepiece.lua and sentencepiece_own.lua.
local protobuf = require "accel.text.sources.protobuf"

local M = {}

local PIECES <const> = 1 << 22 -- of a file
local LONGEST <const> = 4096 -- bytes of a piece

M.NORMAL, M.UNKNOWN, M.CONTROL, M.USER_DEFINED, M.UNUSED, M.BYTE = 1, 2, 3, 4, 5, 6

local MODELS <const> = { "unigram", "bpe", "word", "char" }

local function fault(...) error({ protobuf = true, message = string.format(...) }, 0) end

--- 32-bit integers are signed.
local function int32(v) return (v & 0xFFFFFFFF ~ 0x80000000) - 0x80000000 end

local function read_piece(s, first, last, number)
  local piece, score, kind = nil, 0.0, M.NORMAL
  for field, value, stop in protobuf.fields(s, first, last) do
    if field == 1 and stop then
      piece = s:sub(value, stop)
    elseif field == 2 and not stop then
      score = protobuf.float(value & 0xFFFFFFFF)
    elseif field == 3 and not stop then
      kind = value
    end
  end
  if piece == nil or piece == "" then fault("piece %d is empty", number) end
  if #piece > LONGEST or not utf8.len(piece) then fault("piece %d is not UTF-8 of at most %d bytes", number, LONGEST) end
  if score ~= score or score == math.huge or score == -math.huge then fault("piece %d has the score %s", number, score) end
  if kind < M.NORMAL or kind > M.BYTE then fault("piece %d has the unknown kind %d", number, kind) end
  return { text = piece, score = score, kind = kind }
end

--- Fields of a message by number: {name, kind}.
local TRAINER <const> = {
  [3] = { "model_type", "int" }, [24] = { "treat_whitespace_as_suffix", "bool" }, [35] = { "byte_fallback", "bool" },
  [40] = { "unk_id", "int" }, [41] = { "bos_id", "int" }, [42] = { "eos_id", "int" }, [43] = { "pad_id", "int" },
  [44] = { "unk_surface", "text" }, [45] = { "unk_piece", "text" }, [46] = { "bos_piece", "text" }, [47] = { "eos_piece", "text" },
  [48] = { "pad_piece", "text" },
}
local NORMALIZER <const> = {
  [1] = { "name", "text" }, [2] = { "precompiled_charsmap", "text" }, [3] = { "add_dummy_prefix", "bool" },
  [4] = { "remove_extra_whitespaces", "bool" }, [5] = { "escape_whitespaces", "bool" },
}

local function read_settings(s, first, last, names, into)
  for field, value, stop in protobuf.fields(s, first, last) do
    local name = names[field]
    if name and (name[2] == "text") ~= (stop ~= nil) then fault("%s has the wrong kind", name[1]) end
    if name and stop then
      into[name[1]] = s:sub(value, stop)
    elseif name then
      if name[2] == "bool" then into[name[1]] = value ~= 0 else into[name[1]] = int32(value) end
    end
  end
end

local function read(s)
  local out = {
    pieces = {},
    trainer = {
      model_type = 1, treat_whitespace_as_suffix = false, byte_fallback = false, unk_id = 0, bos_id = 1, eos_id = 2, pad_id = -1,
      unk_surface = " \u{2047} ", unk_piece = "<unk>", bos_piece = "<s>", eos_piece = "</s>", pad_piece = "<pad>",
    },
    normalizer = {
      name = "", precompiled_charsmap = "", add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true,
    },
  }
  local denormalizer = {}
  for field, value, stop in protobuf.fields(s, 1, #s) do
    if stop and field == 1 then
      local n = #out.pieces + 1
      if n > PIECES then fault("more than %d pieces", PIECES) end
      out.pieces[n] = read_piece(s, value, stop, n)
    elseif stop and field == 2 then
      read_settings(s, value, stop, TRAINER, out.trainer)
    elseif stop and field == 3 then
      read_settings(s, value, stop, NORMALIZER, out.normalizer)
    elseif stop and field == 5 then
      read_settings(s, value, stop, NORMALIZER, denormalizer)
    end
  end
  if #out.pieces == 0 then fault "there are no pieces" end
  local t = out.trainer
  t.model = MODELS[t.model_type] or fault("the unknown kind of model %d", t.model_type)
  -- which piece is unknown is told by its kind
  local unknown
  for i, p in ipairs(out.pieces) do
    if p.kind == M.UNKNOWN then
      if unknown then fault("pieces %d and %d are both the unknown one", unknown + 1, i) end
      unknown = i - 1
    end
  end
  if not unknown then fault "no piece is the unknown one" end
  t.unk_id, t.unk_piece = unknown, out.pieces[unknown + 1].text
  if (denormalizer.precompiled_charsmap or "") ~= "" then fault "rules for the decoded text (denormalizer_spec) are not supported" end
  return out
end

--- The content of a file's bytes. nil and the reason if they are not one.
---@param bytes string
---@return {pieces: {text: string, score: number, kind: integer}[], trainer: table, normalizer: table}?
---@return string? message
function M.parse(bytes)
  local ok, result = pcall(read, bytes)
  if ok then return result end
  if type(result) == "table" and result.protobuf then return nil, "not a SentencePiece model: " .. result.message end
  error(result, 0)
end

return M
