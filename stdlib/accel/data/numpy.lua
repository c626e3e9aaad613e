--- accel.data.numpy: arrays in NumPy's files, by NumPy's names.
---
---   local x = accel.data.numpy.load "x.npy"                                    -- a tensor
---   local huge = accel.data.numpy.load("tokens.npy", { mmap_mode = "r" })      -- in place in the file
---   local all = accel.data.numpy.load "all.npz"                                -- { weights = tensor, labels = tensor }
---   accel.data.numpy.savez("all.npz", { weights = w, labels = y })
---
--- Headers and archives are data: nothing in them is executed. Object arrays, which are pickles, and structured arrays are refused. Text and
--- times, which no tensor holds, are returned as a table with dtype, shape and values in C order. uint64 becomes i64 if all values fit.
local accel = require "accel"
local check = require "accel.util.check"
local core = require "accel.file.core"
local header = require "accel.data.npy_header"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local writer = require "accel.util.writer"
local zip_read = require "accel.util.zip_read"
local zip_write = require "accel.util.zip_write"

local M = {}

local function fault(path, message) raise("load: %s: %s", path, message) end

--- A reader of a string, in the form of a file's read.
local function reader_of(bytes)
  local at = 1
  return function(n)
    local part = bytes:sub(at, at + n - 1)
    at = at + n
    return part
  end
end

--- UTF-8 of NumPy's text of 4 bytes a character, without the zeros at its end.
local function text_of(bytes, big)
  local codes = {}
  for at = 1, #bytes, 4 do codes[#codes + 1] = string.unpack(big and ">I4" or "<I4", bytes, at) end
  while codes[#codes] == 0 do codes[#codes] = nil end
  for i, code in ipairs(codes) do
    if code > 0x10FFFF then return nil, "a character is not Unicode" end
    codes[i] = utf8.char(code)
  end
  return table.concat(codes)
end

--- Positions of a Fortran array in C order.
local function c_order(shape)
  local place = {}
  for i = 1, #shape do place[i] = #shape + 1 - i end
  return place
end

local function reversed(shape)
  local out = {}
  for i, extent in ipairs(shape) do out[#shape + 1 - i] = extent end
  return out
end

--- Text, bytes and times as a plain table.
local function plain(kind, bytes)
  local out, shape = {}, kind.shape
  for i = 0, kind.count - 1 do
    local part = bytes:sub(i * kind.bytes + 1, (i + 1) * kind.bytes)
    local value, message = part:match "^(.-)%z*$", nil
    if kind.letter == "U" then value, message = text_of(part, kind.big) end
    if kind.dtype then value = string.unpack(kind.big and ">i8" or "<i8", part) end
    if value == nil then return nil, message end
    out[i + 1] = value
  end
  if kind.fortran and #shape > 1 and kind.count > 0 then
    local at = accel.arange(0, kind.count, 1, { dtype = "i64" }):view(reversed(shape))
    local moved = {}
    for i, k in ipairs(at:permute(c_order(shape)):contiguous():view { -1 }:tolist()) do moved[i] = out[k + 1] end
    out = moved
  end
  return { dtype = kind.descr, shape = shape, values = out }
end

-- dtypes that are only stored: no op puts their elements into another order, so that signed ones of the same size stand in.
local SIGNED <const> = { u16 = "i16", u32 = "i32" }

--- The dtype to read the elements as.
local function dtype_of(kind) return kind.fortran and #kind.shape > 1 and SIGNED[kind.dtype] or kind.dtype end

--- A tensor in the order and type of the header, from its elements in the order of the file.
local function arranged(t, kind)
  if kind.unsigned and t:numel() > 0 and t:min():item() < 0 then
    return nil, ("a value of %s is above 2^63 - 1, which no dtype holds"):format(kind.unsigned)
  end
  if not kind.fortran or #kind.shape < 2 then return t end
  t = t:permute(c_order(kind.shape))
  if t.dtype == kind.dtype then return t end
  return accel.from_bytes(t:contiguous():to_bytes(), kind.dtype, kind.shape, { device = "cpu" })
end

local function file_shape(kind) return kind.fortran and reversed(kind.shape) or kind.shape end

--- An array whose bytes are in memory. bytes: of the whole .npy file.
local function from_bytes(bytes)
  local kind, message = header.read(reader_of(bytes))
  if not kind then return nil, message end
  local n = kind.count * kind.bytes
  if #bytes - kind.size ~= n then
    return nil, ("its header promises %d bytes of values, there are %d"):format(n, #bytes - kind.size)
  end
  local data = bytes:sub(kind.size + 1)
  if not kind.dtype or kind.letter == "M" or kind.letter == "m" then return plain(kind, data) end
  if kind.swap > 0 then
    data = data:gsub(("."):rep(kind.swap), string.reverse)
  end
  return arranged(accel.from_bytes(data, dtype_of(kind), file_shape(kind), { device = "cpu" }), kind)
end

--- An array in a file from byte `first` on, `size` bytes with its header.
local function from_file(file, path, first, size, map)
  file:seek("set", first)
  local kind, message = header.read(function(n) return n == 0 and "" or file:read(n) end)
  if not kind then return nil, message end
  local n = kind.count * kind.bytes
  if size - kind.size ~= n then
    return nil, ("its header promises %d bytes of values, there are %d"):format(n, size - kind.size)
  end
  if not kind.dtype or kind.letter == "M" or kind.letter == "m" then return plain(kind, n > 0 and file:read(n) or "") end
  local t, why = core.read_array(path, first + kind.size, dtype_of(kind), file_shape(kind), { swap = kind.swap, map = map })
  if not t then return nil, why end
  return arranged(t, kind)
end

--- All arrays of an archive. Those that are not mapped are in memory together.
local function from_archive(file, path, map, limit)
  local entries, message = zip_read.entries(file)
  if not entries then return nil, message end
  local total = 0
  for _, e in ipairs(entries) do
    if e.method ~= 0 or not map then total = total + e.size end
    if total < 0 then total = math.maxinteger end
  end
  local fits, over = core.check_limit(path, "its content", total, { limit = limit })
  if not fits then return nil, over end
  local all = ordered()
  for _, e in ipairs(entries) do
    local name = e.name:gsub("%.npy$", "")
    local t, why
    if e.method == 0 and map then
      t, why = from_file(file, path, e.data, e.size, true) -- its checksum would read every byte
    else
      local bytes
      bytes, why = zip_read.bytes(file, e)
      if bytes then t, why = from_bytes(bytes) end
      if why and bytes then why = ("entry '%s': %s"):format(e.name, why) end
    end
    if t == nil then return nil, why end
    all[name] = t
  end
  return all
end

--- The array of an .npy file, or the arrays of an .npz file by name, in its order. Returns nil, message, code for a file that cannot be
--- opened. Raises for one that is malformed.
--- - mmap_mode: "r" or "c" leaves the values in the file and reads them when they are used. Writes to the tensor stay in memory. Values in
---   another byte order, and those that are compressed, are read
--- - limit = 0: the bytes that the arrays of an .npz file may have in memory. 0: 128 MiB and 64 times the size of the file
---@param path string
---@param opts? {mmap_mode: string?, limit: integer?}
---@return accel.Tensor|table|nil array
---@return string? message
---@return string? code
function M.load(path, opts, ...)
  local o = options("load", opts, { mmap_mode = options.none, limit = 0 }, ...)
  if o.mmap_mode ~= nil then check.word("load", "mmap_mode", o.mmap_mode, { "r", "c" }) end
  local file <close>, message, errno = core.open_read(path)
  if not file then return nil, message, errno == 2 and "not_found" or "io" end
  local map = o.mmap_mode ~= nil
  local size = file:seek "end"
  file:seek "set"
  local magic = file:read(4)
  if not magic then fault(path, "it is empty") end
  local got, why
  if magic:sub(1, 2) == "PK" then
    got, why = from_archive(file, path, map, o.limit)
  else
    got, why = from_file(file, path, 0, size, map)
  end
  if got == nil then fault(path, (why:gsub("^" .. path:gsub("%p", "%%%0") .. ": ", ""))) end
  return got
end

--- The bytes of an .npy file: its header, and the tensor that follows it.
local function prepared(who, name, t)
  if not tensors.is_tensor(t) then raise("%s: %s must be a tensor, got %s", who, name, check.shown(t)) end
  if t.dtype == "bf16" then raise("%s: %s is bf16, which NumPy lacks; convert it to f32", who, name) end
  local shape = {}
  for i, extent in ipairs(t.shape) do shape[i] = extent end
  local head = header.write(t.dtype, shape)
  if not head then raise("%s: %s is %s, which NumPy lacks", who, name, t.dtype) end
  return head, t:detach():to "cpu":contiguous()
end

--- Writes a tensor to an .npy file, which is replaced whole. Returns true, or nil, message, code.
---@param path string
---@param t accel.Tensor
---@return boolean? ok
---@return string? message
---@return string? code
function M.save(path, t)
  local head, values = prepared("save", "the array", t)
  local file <close>, message, code = writer.create(path)
  if not file then return nil, message, code end
  local ok, why, kind = file:write(head, values:to_bytes())
  if not ok then return nil, why, kind end
  return file:commit()
end

local function save_archive(who, path, arrays, compressed)
  if type(arrays) ~= "table" then raise("%s: arrays must be a table of tensors by name, got %s", who, check.shown(arrays)) end
  local file <close>, message, code = writer.create(path)
  if not file then return nil, message, code end
  local zip = zip_write(file)
  for key, t in accel.pairs(arrays) do
    local name = math.type(key) == "integer" and ("arr_%d"):format(key - 1) or key
    if type(name) ~= "string" then raise("%s: names of arrays must be strings, got %s", who, check.shown(key)) end
    local head, values = prepared(who, ("array '%s'"):format(name), t)
    local ok, why, kind = zip[compressed and "deflated" or "entry"](zip, name .. ".npy", head .. values:to_bytes())
    if not ok then return nil, why, kind end
  end
  local ok, why, kind = zip:finish()
  if not ok then return nil, why, kind end
  return file:commit()
end

--- Writes tensors to an .npz file, which is replaced whole. Arrays of a list are named arr_0, arr_1 and so on. Returns true, or nil,
--- message, code.
---@param path string
---@param arrays table<string|integer, accel.Tensor>
---@return boolean? ok
---@return string? message
---@return string? code
function M.savez(path, arrays) return save_archive("savez", path, arrays, false) end

--- savez with compressed entries. Needs zlib.
---@param path string
---@param arrays table<string|integer, accel.Tensor>
---@return boolean? ok
---@return string? message
---@return string? code
function M.savez_compressed(path, arrays) return save_archive("savez_compressed", path, arrays, true) end

return M
