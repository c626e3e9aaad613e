--- data.IDX(images, labels, {scale = 255, dtype = "f32", classes = ...}): images and labels from files in the IDX format (MNIST and
--- its kin). Sample i is {image [1, rows, columns] of values / scale, label}; batches are gathered as u8 and converted then.
---
---   local train = data.IDX("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
---   local pixels = data.IDX.read("train-images-idx3-ubyte")         -- u8 [60000, 28, 28]
---
--- The format (Y. LeCun's MNIST page): two zero bytes, a type byte, the number of dimensions, each dimension as a big-endian u32, the
--- values, big-endian.
local accel = require "accel"
local Dataset = require "accel.data.dataset"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local types = {
  [0x08] = { "u8", 1 }, [0x09] = { "i8", 1 }, [0x0B] = { "i16", 2 }, [0x0C] = { "i32", 4 }, [0x0D] = { "f32", 4 }, [0x0E] = { "f64", 8 },
}
local MAX_DIMS = 8

---@class accel.data.IDX : accel.data.Dataset
---@field images accel.Tensor [n, rows, columns] as in the file
---@field labels accel.Tensor i64 [n]
--- example: accel.data.IDX.read("no such file") == nil --> true
local IDX = Dataset:extend("accel.data.IDX")

--- Header of an open file: type entry, shape, number of values; nil and what is wrong.
local function read_header(file, size)
  local head = file:read(4)
  if not head or #head < 4 then return nil, "not an IDX file: shorter than its header" end
  if head:sub(1, 2) == "\x1f\x8b" then return nil, "compressed with gzip; unpack it first (gunzip)" end
  local zero, code, ndim = string.unpack(">I2BB", head)
  local kind = types[code]
  if zero ~= 0 or not kind then
    return nil, ("not an IDX file: it begins with %02x %02x %02x %02x"):format(head:byte(1, 4))
  end
  if ndim < 1 or ndim > MAX_DIMS then return nil, ("%d dimensions, expected 1 to %d"):format(ndim, MAX_DIMS) end
  local dims = file:read(4 * ndim)
  if not dims or #dims < 4 * ndim then return nil, "cut off inside its header" end
  local shape, n = { string.unpack((">" .. ("I4"):rep(ndim)), dims) }, 1
  shape[ndim + 1] = nil -- where unpack stopped
  local bytes = size - 4 - 4 * ndim
  for _, extent in ipairs(shape) do
    if extent > 0 and n > bytes // extent then n = bytes + 1 else n = n * extent end -- stays small whatever the header claims
  end
  if n * kind[2] ~= bytes then
    return nil, ("the header promises %s of %s, the file holds %d bytes of data"):format(table.concat(shape, " x "), kind[1], bytes)
  end
  return kind, shape, n
end

--- The tensor of an IDX file, in the file's dtype and shape; nil, message, code when it cannot be read or is malformed.
---@param path string
---@return accel.Tensor? t
---@return string? message
---@return string? code
function IDX.read(path)
  local file <close>, message = io.open(path, "rb")
  if not file then return nil, message, "not_found" end
  local size = file:seek "end"
  if not size or not file:seek "set" then return nil, path .. ": not a regular file", "io" end
  local kind, shape, n = read_header(file, size)
  if not kind then return nil, ("%s: %s"):format(path, shape), "format" end
  local bytes = n > 0 and file:read(n * kind[2]) or ""
  if not bytes or #bytes ~= n * kind[2] then return nil, path .. ": could not be read to its end", "io" end
  if kind[2] == 1 then return accel.from_bytes(bytes, kind[1], shape) end
  -- big-endian: backwards it is little-endian, the last value first
  return accel.from_bytes(bytes:reverse(), kind[1], { n }):flip(1):view(shape)
end

--- The data set; nil, message, code where IDX(...) would raise because of a file.
---@param images string path of the pictures
---@param labels string path of the labels
---@param opts? {scale: number?, dtype: string?, channel: boolean?}
function IDX.open(images, labels, opts)
  local parts = {}
  for i, path in ipairs { images, labels } do
    local t, message, code = IDX.read(path)
    if not t then return nil, message, code end
    parts[i] = t
  end
  local x, y = parts[1], parts[2]
  if #y.shape ~= 1 then return nil, ("%s: labels have one dimension, not shape %s"):format(labels, tensors.shape_string(y)), "format" end
  if #x.shape < 2 or x.shape[1] ~= y.shape[1] then
    return nil, ("%s holds shape %s, %s %d labels"):format(images, tensors.shape_string(x), labels, y.shape[1]), "format"
  end
  return IDX(x, y, opts)
end

---@param images string|accel.Tensor
---@param labels string|accel.Tensor
---@param opts? {scale: number?, dtype: string?, channel: boolean?} channel: put a dimension of 1 before rows and columns [true]
function IDX:init(images, labels, opts)
  local o = options("IDX", opts, { scale = 255.0, dtype = "f32", channel = true })
  if type(images) == "string" then
    local set, message = IDX.open(images, labels, opts)
    if not set then raise("IDX: %s", message) end
    images, labels = set.images, set.labels
  end
  self.images, self.labels = images, labels:to("i64")
  self.scale, self.dtype, self.channel = o.scale, o.dtype, o.channel
end

function IDX:len() return self.labels.shape[1] end

---@param positions integer[]
function IDX:get_batch(positions)
  local ids = {}
  for k, i in ipairs(positions) do
    self:check_position(i)
    ids[k] = i - 1
  end
  local at = accel.tensor(ids, { dtype = "i64" })
  local x = self.images:index_select(1, at):to(self.dtype) / self.scale
  return { self.channel and x:unsqueeze(2) or x, self.labels:index_select(1, at) }
end

function IDX:get(i)
  local batch = self:get_batch { i }
  return { batch[1]:select(1, 1), batch[2]:select(1, 1) }
end

return IDX
