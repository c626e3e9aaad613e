--- data.IDX(images, labels, {scale = 255, dtype = "f32", channel = true}): images and labels from files in the IDX
--- format (MNIST and its kin). Sample i is {image [1, rows, columns] of values / scale, label}. Batches are gathered in
--- the file's dtype, then converted. Tensors from files are on the CPU. Given tensors stay on their device, and the
--- labels go to the images' device.
---
---   local train = data.IDX("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
---   local pixels = data.IDX.read("train-images-idx3-ubyte")         -- u8 [60000, 28, 28]
---
--- The format (Y. LeCun's MNIST page): two zero bytes, a type byte, the number of dimensions, each dimension as
--- a big-endian u32, the values, big-endian.
local accel = require "accel"
local check = require "accel.util.check"
local Dataset = require "accel.data.dataset"
local fingerprint = require "accel.data.fingerprint"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local core = require "accel.file.core"

local types = {
  [0x08] = { "u8", 1 }, [0x09] = { "i8", 1 }, [0x0B] = { "i16", 2 }, [0x0C] = { "i32", 4 },
  [0x0D] = { "f32", 4 }, [0x0E] = { "f64", 8 },
}
local MAX_DIMS = 8

---@class accel.data.IDX : accel.data.Dataset
---@field images accel.Tensor [n, rows, columns] as in the file
---@field labels accel.Tensor i64 [n]
--- example: accel.data.IDX.read("no such file") == nil --> true
local IDX = Dataset:extend("accel.data.IDX")

--- Header of an open file: type entry and shape. On failure returns nil and the error.
local function read_header(file, size)
  local head = file:read(4)
  if not head or #head < 4 then return nil, "not an IDX file: shorter than its header" end
  local zero, code, ndim = string.unpack(">I2BB", head)
  local kind = types[code]
  if zero ~= 0 or not kind then
    return nil, ("not an IDX file: it begins with %02x %02x %02x %02x"):format(head:byte(1, 4))
  end
  if ndim < 1 or ndim > MAX_DIMS then return nil, ("%d dimensions, expected 1 to %d"):format(ndim, MAX_DIMS) end
  local dims = file:read(4 * ndim)
  if not dims or #dims < 4 * ndim then return nil, "cut off inside its header" end
  local shape, n = { string.unpack((">" .. ("I4"):rep(ndim)), dims) }, 1
  shape[ndim + 1] = nil -- the position after unpack
  local bytes = size - 4 - 4 * ndim
  for _, extent in ipairs(shape) do
    -- stays small whatever the header claims
    if extent > 0 and n > bytes // extent then n = bytes + 1 else n = n * extent end
  end
  local places = 1.0 -- even of a tensor without elements: its strides must be countable
  for _, extent in ipairs(shape) do places = places * math.max(extent, 1) end
  if n == 0 and places * kind[2] >= 2.0 ^ 62 then
    return nil, ("the header's shape %s is too large"):format(table.concat(shape, " x "))
  end
  if n * kind[2] ~= bytes then
    return nil, ("the header promises %s of %s, the file holds %d bytes of data"):format(
      table.concat(shape, " x "), kind[1], bytes)
  end
  return kind, shape
end

local function compressed(path)
  local content <close> = core.open_stream(path)
  return content ~= nil and content:codec() ~= nil
end

--- The tensor of the unpacked content, whose header has been read.
local function from_content(file, kind, shape)
  local bytes = file:read "a"
  if kind[2] == 1 then return accel.from_bytes(bytes, kind[1], shape, { device = "cpu" }) end
  -- big-endian: backwards it is little-endian, the last value first
  return accel.from_bytes(bytes:reverse(), kind[1], { #bytes // kind[2] }, { device = "cpu" }):flip(1):view(shape)
end

--- The tensor of an IDX file, on the CPU, in the file's dtype and shape. nil, message, code if it cannot be read or is
--- malformed. limit: the bytes that a compressed file may have when unpacked (0: 128 MiB and 64 times the size of the file).
---@param path string
---@param opts? {limit: integer?}
---@return accel.Tensor? t
---@return string? message
---@return string? code
function IDX.read(path, opts, ...)
  local o = options("IDX.read", opts, { limit = 0 }, ...)
  if type(path) ~= "string" then raise("IDX: path must be a string, got %s", check.shown(path)) end
  local file <close>, message, code = core.open_unpacked(path, o)
  if not file then return nil, message, code end
  local size = file:seek "end"
  if not size or not file:seek "set" then return nil, path .. ": not a regular file", "io" end
  local kind, shape = read_header(file, size)
  if not kind then return nil, ("%s: %s"):format(path, shape), "format" end
  if compressed(path) then return from_content(file, kind, shape) end
  local t, why
  t, why, code = core.read_array(path, 4 + 4 * #shape, kind[1], shape, { swap = kind[2] }) -- big-endian
  if not t then return nil, why, code end
  return t
end

--- The mismatch between these images and labels, with their names. nil if none.
local function mismatch(x, y, images, labels)
  if #y.shape ~= 1 then
    return ("%s: labels have one dimension, not shape %s"):format(labels, tensors.shape_string(y))
  elseif #x.shape < 2 or x.shape[1] ~= y.shape[1] then
    return ("%s holds shape %s, %s %d labels"):format(images, tensors.shape_string(x), labels, y.shape[1])
  end
end

--- The data set. Returns nil, message, code for a file that makes IDX(...) raise.
---@param images string path of the pictures
---@param labels string path of the labels
---@param opts? {scale: number?, dtype: string?, channel: boolean?, limit: integer?}
---@return accel.data.IDX? set
---@return string? message
---@return string? code
function IDX.open(images, labels, opts)
  local parts = {}
  for i, path in ipairs { images, labels } do
    local t, message, code = IDX.read(path, { limit = opts and opts.limit })
    if not t then return nil, message, code end
    parts[i] = t
  end
  local wrong = mismatch(parts[1], parts[2], images, labels)
  if wrong then return nil, wrong, "format" end
  return IDX(parts[1], parts[2], opts)
end

---@param images string|accel.Tensor
---@param labels string|accel.Tensor
---@param opts? {scale: number?, dtype: string?, channel: boolean?, limit: integer?} channel: a dimension of 1 before the rows. limit: as in
---  IDX.read
function IDX:init(images, labels, opts)
  local o = options("IDX", opts, { scale = 255.0, dtype = "f32", channel = true, limit = 0 })
  if type(images) == "string" then
    local set, message = IDX.open(images, labels, opts)
    if not set then raise("IDX: %s", message) end
    images, labels = set.images, set.labels
  elseif not tensors.is_tensor(images) or not tensors.is_tensor(labels) then
    raise("IDX: expected two paths or two tensors, got %s and %s", check.shown(images), check.shown(labels))
  else
    local wrong = mismatch(images, labels, "the first tensor", "the second")
    if wrong then raise("IDX: %s", wrong) end
  end
  if o.scale == 0 then raise "IDX: scale must not be 0" end
  self.images, self.n = images, labels.shape[1]
  self.labels = labels:to { dtype = "i64", device = images.device }
  self.scale, self.dtype, self.channel = o.scale, o.dtype, o.channel
end

function IDX:len() return self.n end

--- Shapes, and some pictures and labels, for states of loaders: accel.data.fingerprint.
---@return string
function IDX:fingerprint() return fingerprint.tensors { self.images, self.labels } end

--- For workers: the same tensors.
function IDX:worker_spec()
  return { module = "accel.data.idx",
    args = { self.images, self.labels, { scale = self.scale, dtype = self.dtype, channel = self.channel } } }
end

---@param positions integer[]
function IDX:get_batch(positions)
  local ids = {}
  for k, i in ipairs(positions) do
    self:check_position(i)
    ids[k] = i - 1
  end
  local at = accel.tensor(ids, { dtype = "i64", device = self.images.device })
  local x = self.images:index_select(1, at):to(self.dtype) / self.scale
  return { self.channel and x:unsqueeze(2) or x, self.labels:index_select(1, at) }
end

function IDX:get(i)
  local batch = self:get_batch { i }
  return { batch[1]:select(1, 1), batch[2]:select(1, 1) }
end

return IDX
