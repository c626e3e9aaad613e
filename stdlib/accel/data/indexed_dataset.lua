--- data.IndexedDataset(prefix): sequences of tokens in Megatron-LM's format, prefix.bin and prefix.idx. Each sample is one
--- sequence, and documents are runs of sequences. data.IndexedDatasetBuilder writes them.
---
--- The format (megatron-core, datasets/indexed_dataset.py), little-endian. The index: "MMIDIDX\0\0", u64 version 1, u8 code of the
--- dtype, u64 number of sequences S, u64 number of document indices D, i32 length[S] in elements, i64 pointer[S] in bytes, i64
--- document[D]: document d is sequences document[d] to document[d + 1] - 1, counted from 0. Multimodal sets add i8 mode[S]. The
--- other file holds the elements of all sequences, concatenated.
local accel = require "accel"
local Dataset = require "accel.data.dataset"
local check = require "accel.util.check"
local fingerprint = require "accel.data.fingerprint"
local open_files = require "accel.data.open_files"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local writer = require "accel.util.writer"
local open_read = require("accel.file.core").open_read

local MAGIC <const>, HEADER <const> = "MMIDIDX\0\0", 34

local DTYPES <const> = {
  [1] = { "u8", 1 }, [2] = { "i8", 1 }, [3] = { "i16", 2 }, [4] = { "i32", 4 }, [5] = { "i64", 8 }, [6] = { "f64", 8 },
  [7] = { "f32", 4 }, [8] = { "u16", 2 },
}
local CODES <const> = {}
for code, kind in next, DTYPES do CODES[kind[1]] = code end

--- Sequences of tokens as Megatron-LM keeps them, prefix.bin and prefix.idx: each sample is one sequence.
--- example: local prefix = accel.mkdtemp "/tmp/indexed-" .. "/text" local b = accel.data.IndexedDatasetBuilder(prefix)
---   b:add_item { 5, 6, 7 } b:end_document() b:finalize() return accel.data.IndexedDataset(prefix):get(1) --> { 5, 6, 7 }
---@class accel.data.IndexedDataset : accel.data.Dataset
---@field prefix string
---@field dtype string as in the file
---@field sequence_lengths accel.Tensor i64 [S], elements
---@field sequence_pointers accel.Tensor i64 [S], bytes in prefix.bin
---@field document_indices accel.Tensor i64 [D], numbers of sequences from 0
---@field sequence_modes accel.Tensor? i8 [S], of multimodal sets
local IndexedDataset = Dataset:extend("accel.data.IndexedDataset")

local function size_of(file)
  local size = file:seek "end"
  file:seek("set", 0)
  return size
end

--- The arrays of an index. On failure returns nil and the error.
local function read_index(file, multimodal)
  local size = size_of(file)
  local head = file:read(HEADER)
  if not head or #head < HEADER or head:sub(1, 9) ~= MAGIC then return nil, "not an index of Megatron-LM" end
  local version, code, sequences, documents = string.unpack("<I8BI8I8", head, 10)
  local kind = DTYPES[code]
  if version ~= 1 then return nil, ("version %d of the format, expected 1"):format(version) end
  if not kind then return nil, ("dtype code %d, expected 1 to 8"):format(code) end
  local left = size - HEADER
  if sequences < 0 or documents < 0 or sequences > left // 12 or documents > left // 8 then
    return nil, ("%u sequences and %u document indices do not fit into %d bytes"):format(sequences, documents, size)
  end
  local wanted = 12 * sequences + 8 * documents
  if left ~= wanted + (multimodal and sequences or 0) then
    local hint = not multimodal and left == wanted + sequences and "; it has modes: give multimodal = true"
      or multimodal and left == wanted and "; it has no modes: leave multimodal out" or ""
    return nil, ("has %d bytes after its header, expected %d%s"):format(left, wanted + (multimodal and sequences or 0), hint)
  end
  local function array(dtype, count, bytes)
    local text = count == 0 and "" or file:read(count * bytes)
    if not text or #text < count * bytes then return nil end
    return accel.from_bytes(text, dtype, { count }, { device = "cpu" })
  end
  local lengths, pointers = array("i32", sequences, 4), array("i64", sequences, 8)
  local document, modes = array("i64", documents, 8), multimodal and array("i8", sequences, 1) or nil
  if not (lengths and pointers and document) or multimodal and not modes then return nil, "it was cut while it was read" end
  return { kind = kind, lengths = lengths:to "i64", pointers = pointers, document = document, modes = modes }
end

--- Checks that each sequence is within the data, and documents are within the sequences. Returns an error text, or nil.
local function find_fault(index, bytes)
  local n, width = index.lengths.shape[1], index.kind[2]
  if n > 0 then
    local lengths, pointers = index.lengths, index.pointers
    if lengths:min():item() < 0 then return "a sequence of negative length" end
    if pointers:min():item() < 0 or pointers:max():item() > bytes then return "a pointer outside of the data" end
    if (pointers + lengths * width):max():item() > bytes then return "a sequence that ends outside of the data" end
  end
  local document, d = index.document, index.document.shape[1]
  if d > 0 then
    if document:min():item() < 0 or document:max():item() > n then return "a document index outside of the sequences" end
    if d > 1 and (document:narrow(1, 2, d - 1) - document:narrow(1, 1, d - 1)):min():item() < 0 then
      return "document indices that do not ascend"
    end
  end
end

local function open_content(slot)
  local file, message = open_read(slot.path)
  if not file then raise("IndexedDataset: %s", message) end
  return file
end

---@param prefix string path of both files without ".bin" and ".idx"
---@param opts? {multimodal: boolean?} false. true: the index holds a mode for each sequence
function IndexedDataset:init(prefix, opts)
  local o = options("IndexedDataset", opts, { multimodal = false })
  if type(prefix) ~= "string" then raise("IndexedDataset: prefix must be a string, got %s", check.shown(prefix)) end
  prefix = prefix:gsub("%.bin$", ""):gsub("%.idx$", "")
  local fine, fault = writer.recover(prefix:match "^(.*)/[^/]*$" or ".")
  if not fine then raise("IndexedDataset: %s", fault) end
  local index_file, message = open_read(prefix .. ".idx")
  if not index_file then raise("IndexedDataset: %s", message) end
  local index, why
  do
    local _ <close> = index_file
    index, why = read_index(index_file, o.multimodal)
  end
  if not index then raise("IndexedDataset: %s.idx: %s", prefix, why) end
  self.content = { path = prefix .. ".bin" }
  why = find_fault(index, size_of(open_files.get(self.content, open_content)))
  if why then raise("IndexedDataset: %s.idx: %s", prefix, why) end
  self.prefix, self.multimodal, self.dtype, self._width = prefix, o.multimodal, index.kind[1], index.kind[2]
  self.sequence_lengths, self.sequence_pointers = index.lengths, index.pointers
  self.document_indices, self.sequence_modes = index.document, index.modes
end

--- Number of sequences.
function IndexedDataset:len() return self.sequence_lengths.shape[1] end

--- The files, for states of loaders: accel.data.fingerprint.
---@return string
function IndexedDataset:fingerprint() return fingerprint.files { self.prefix .. ".bin", self.prefix .. ".idx" } end

--- For workers: the same files.
function IndexedDataset:worker_spec()
  return { module = "accel.data.indexed_dataset:IndexedDataset", args = { self.prefix, { multimodal = self.multimodal } } }
end

--- Sequence i, from 1, or `length` elements of it starting `offset` (from 0) elements after its start: i64 [n] of integers,
--- otherwise in the file's dtype. Of a multimodal set also its mode.
---@param i integer
---@param opts? {offset: integer?, length: integer?}
---@return accel.Tensor, integer?
function IndexedDataset:get(i, opts, ...)
  check.surplus("IndexedDataset:get", ...)
  self:check_position(i)
  local o = options("IndexedDataset:get", opts, { offset = 0, length = options.none })
  local n, at = self.sequence_lengths:select(1, i):item(), self.sequence_pointers:select(1, i):item()
  local length = o.length or n - o.offset
  if o.offset < 0 or length < 0 or o.offset + length > n then
    raise("IndexedDataset: %d elements from %d on leave sequence %d, which has %d", length, o.offset, i, n)
  end
  local file = open_files.get(self.content, open_content)
  file:seek("set", at + o.offset * self._width)
  local bytes = length == 0 and "" or file:read(length * self._width)
  if not bytes or #bytes < length * self._width then raise("IndexedDataset: %s.bin was cut while it is read", self.prefix) end
  local x = accel.from_bytes(bytes, self.dtype, { length }, { device = "cpu" })
  if not tensors.is_floating(self.dtype) then x = x:to "i64" end
  if self.sequence_modes then return x, self.sequence_modes:select(1, i):item() end
  return x
end

-- Writing ----------------------------------------------------------------------------------------

--- Writes prefix.bin as items arrive, and prefix.idx at the end. Both appear only then, complete.
--- example: local b = accel.data.IndexedDatasetBuilder(accel.mkdtemp "/tmp/indexed-" .. "/text", { dtype = "u16" })
---   b:add_item({ 1, 2 }) b:end_document() b:finalize() return accel.data.IndexedDataset(b.prefix).dtype --> "u16"
---@class accel.data.IndexedDatasetBuilder
local Builder = require "accel.util.class"("accel.data.IndexedDatasetBuilder")

local item_arguments = require "accel.util.arguments"("add_item", { "mode" })

---@param prefix string
---@param opts? {dtype: string?, multimodal: boolean?} "i32", false
function Builder:init(prefix, opts)
  local o = options("IndexedDatasetBuilder", opts, { dtype = "i32", multimodal = false })
  if not CODES[o.dtype] then raise("IndexedDatasetBuilder: invalid dtype '%s'; choose u8 u16 i8 i16 i32 i64 f32 f64", o.dtype) end
  if type(prefix) ~= "string" then raise("IndexedDatasetBuilder: prefix must be a string, got %s", check.shown(prefix)) end
  local folder, name = prefix:match "^(.*/)([^/]*)$"
  local message
  self.prefix, self.dtype, self.multimodal, self._name = prefix, o.dtype, o.multimodal, name or prefix
  self._lengths, self._modes, self._document = {}, {}, { 0 }
  self._set, message = writer.set(folder or ".")
  if self._set then self._file, message = self._set:create(self._name .. ".bin") end
  if not self._file then
    if self._set then self._set:close() end
    raise("IndexedDatasetBuilder: %s", message)
  end
end

local function write(self, bytes)
  local ok, message = self._file:write(bytes)
  if ok then return end
  self._set:close() -- the files of before stay
  self._file, self._set = nil, nil
  raise("IndexedDatasetBuilder: %s", message)
end

local function check_open(self)
  if not self._file then raise "IndexedDatasetBuilder: it is finished" end
end

--- One more sequence of the document that is being written.
---@param items accel.Tensor|number[] 1-d
---@param ... any mode, by position or in a table: of a multimodal set, default 0
function Builder:add_item(items, ...)
  local mode = item_arguments(...).mode
  check_open(self)
  local given = tensors.is_tensor(items) and items or accel.tensor(items, {
    dtype = tensors.is_floating(self.dtype) and "f64" or "i64", device = "cpu" })
  if #given.shape ~= 1 then raise("IndexedDatasetBuilder: a sequence has one dimension, got shape %s", tensors.shape_string(given)) end
  local t = given:to("cpu"):to(self.dtype)
  if not tensors.is_floating(self.dtype) and t:numel() > 0 and not t:to("i64"):eq(given:to("cpu"):to "i64"):all():item() then
    raise("IndexedDatasetBuilder: sequence %d holds values that %s cannot", #self._lengths + 1, self.dtype)
  end
  if mode ~= nil and not self.multimodal then raise "IndexedDatasetBuilder: modes need multimodal = true" end
  write(self, t:to_bytes())
  self._lengths[#self._lengths + 1] = t:numel()
  if self.multimodal then self._modes[#self._modes + 1] = mode or 0 end
end

--- Ends the document. A document may have no sequences.
function Builder:end_document()
  check_open(self)
  self._document[#self._document + 1] = #self._lengths
end

--- Appends all sequences and documents of another data set.
---@param prefix string
function Builder:add_index(prefix)
  check_open(self)
  local other = IndexedDataset(prefix, { multimodal = self.multimodal })
  if other.dtype ~= self.dtype then
    raise("IndexedDatasetBuilder: %s holds %s, this one %s", prefix, other.dtype, self.dtype)
  end
  local before, document = #self._lengths, other.document_indices:tolist()
  for i = 1, #other do
    local n = other.sequence_lengths:select(1, i):item()
    local file = open_files.get(other.content, open_content)
    file:seek("set", other.sequence_pointers:select(1, i):item())
    write(self, n == 0 and "" or file:read(n * other._width))
    self._lengths[before + i] = n
    if self.multimodal then self._modes[before + i] = other.sequence_modes:select(1, i):item() end
  end
  for i = 2, #document do self._document[#self._document + 1] = before + document[i] end
end

--- Ends both files, which together replace those of an earlier builder.
function Builder:finalize()
  check_open(self)
  local ok, message = self._file:commit()
  local set <close> = self._set
  self._file, self._set = nil, nil
  if not ok then raise("IndexedDatasetBuilder: %s", message) end
  local width, pointers, at = DTYPES[CODES[self.dtype]][2], {}, 0
  for i, n in ipairs(self._lengths) do pointers[i], at = at, at + n * width end
  local function bytes(list, dtype) return accel.tensor(list, { dtype = dtype, device = "cpu" }):to_bytes() end
  local parts = { MAGIC, string.pack("<I8BI8I8", 1, CODES[self.dtype], #self._lengths, #self._document) }
  if #pointers > 0 then
    parts[#parts + 1], parts[#parts + 2] = bytes(self._lengths, "i32"), bytes(pointers, "i64")
  end
  parts[#parts + 1] = bytes(self._document, "i64")
  if self.multimodal and #self._modes > 0 then parts[#parts + 1] = bytes(self._modes, "i8") end
  ok, message = set:write(self._name .. ".idx", table.concat(parts))
  if ok then ok, message = set:commit() end
  if not ok then raise("IndexedDatasetBuilder: %s", message) end
end

return { IndexedDataset = IndexedDataset, IndexedDatasetBuilder = Builder }
