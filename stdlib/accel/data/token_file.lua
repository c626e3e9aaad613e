--- data.TokenFile(path or tensor, {block = 64, stride = block, dtype = "u16"}): a long row of token ids, cut into
--- windows of `block` tokens and the same windows one token later, for language models. Sample i starts at token (i -
--- 1) * stride. A path names bare little-endian ids (nanoGPT's .bin). Each batch reads its windows by pread, through
--- the system's page cache. A 1-d tensor of ids is used directly.
local accel = require "accel"
local Dataset = require "accel.data.dataset"
local fingerprint = require "accel.data.fingerprint"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- example: accel.data.TokenFile(accel.arange(10), { block = 4 }):get(2) --> { { 4, 5, 6, 7 }, { 5, 6, 7, 8 } }
---@class accel.data.TokenFile : accel.data.Dataset
local TokenFile = Dataset:extend("accel.data.TokenFile")

--- Windows at the given starts (0-based tokens) of a tensor: [n, length].
local function gather(ids, starts, length)
  local at = accel.tensor(starts, { dtype = "i64", device = ids.device }):unsqueeze(2)
    + accel.arange(length, { dtype = "i64", device = ids.device })
  return ids:index_select(1, at:view(#starts * length)):view(#starts, length)
end

---@param source string|accel.Tensor
---@param opts? {block: integer?, stride: integer?, dtype: string?}
function TokenFile:init(source, opts)
  local o = options("TokenFile", opts, { block = 64, stride = options.none, dtype = "u16" })
  self.block, self.stride = o.block, o.stride or o.block
  self.source, self.dtype = source, o.dtype
  if self.block < 1 or self.stride < 1 then raise "TokenFile: block and stride must be positive" end
  if tensors.is_tensor(source) then
    if #source.shape ~= 1 then
      raise("TokenFile: expected a 1-d tensor of ids, got shape %s", tensors.shape_string(source))
    end
    self.ids = source.dtype == "i64" and source or source:to("i64")
    self.n_tokens = source.shape[1]
  else
    local file, message = accel.open_tokens(source, { dtype = o.dtype })
    if not file then raise("TokenFile: %s", message) end
    self.file, self.n_tokens = file, file:len()
  end
end

--- Number of windows that have a full target.
function TokenFile:len() return math.max(0, (self.n_tokens - 1 - self.block) // self.stride + 1) end

--- The file and its windows, for states of loaders: accel.data.fingerprint.
---@return string
function TokenFile:fingerprint()
  local what = self.file and fingerprint.files { self.source } or ("%d tokens"):format(self.n_tokens)
  return ("%s, block %d, stride %d"):format(what, self.block, self.stride)
end

--- For workers: the same file, or tensor.
function TokenFile:worker_spec()
  local opts = { block = self.block, stride = self.stride, dtype = self.dtype }
  return { module = "accel.data.token_file", args = { self.source, opts } }
end

--- Inputs and targets [n, block] for windows that start at these tokens (0-based).
---@param starts integer[]
function TokenFile:windows(starts)
  local last = self.n_tokens - 1 - self.block
  local after = {}
  for k, start in ipairs(starts) do
    if start < 0 or start > last then
      raise("TokenFile: a window of %d tokens at %d leaves the %d tokens of the file", self.block, start,
        self.n_tokens)
    end
    after[k] = start + 1
  end
  if self.file then return self.file:batch(starts, self.block), self.file:batch(after, self.block) end
  return gather(self.ids, starts, self.block), gather(self.ids, after, self.block)
end

function TokenFile:get(i)
  self:check_position(i)
  local x, y = self:windows { (i - 1) * self.stride }
  return { x:select(1, 1), y:select(1, 1) }
end

---@param positions integer[]
function TokenFile:get_batch(positions)
  local starts = {}
  for k, i in ipairs(positions) do
    self:check_position(i)
    starts[k] = (i - 1) * self.stride
  end
  return { self:windows(starts) }
end

return TokenFile
