--- Quantised tensors as entries of state dicts and files, in the names and layouts that bitsandbytes writes.
---
--- 4 bits, for a weight called w: `w` (packed bytes, [n, 1] u8), `w.absmax`, `w.quant_map`, with double quantization `w.nested_absmax` and
--- `w.nested_quant_map`, and `w.quant_state.bitsandbytes__nf4` (or fp4): a JSON object as bytes. int8, for m.weight: `m.weight` (i8),
--- `m.SCB` (the rows' largest magnitudes) and `m.weight_format` (0: by row). Entries are views: the tensor keeps its one storage.
local accel = require "accel"
local check = require "accel.util.check"
local ordered = require "accel.util.ordered"
local options = require "accel.util.options"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local LONG <const> = { f32 = "float32", f16 = "float16", bf16 = "bfloat16" }
local SHORT <const> = { float32 = "f32", float16 = "f16", bfloat16 = "bf16" }
local STATE <const> = ".quant_state.bitsandbytes__"

--- A float as Python writes it: the shortest text that reads back as the same number.
local function float_text(x)
  for digits = 15, 17 do
    local text = ("%%.%dg"):format(digits):format(x)
    if tonumber(text) == x then return text:find "[.eni]" and text or text .. ".0" end
  end
end

--- The JSON object of a 4-bit state, character for character as bitsandbytes writes it.
local function state_text(s, offset)
  local shape = {}
  for i, n in ipairs(s.shape) do shape[i] = ("%d"):format(n) end
  local text = ('{"quant_type": "%s", "blocksize": %d, "dtype": "%s", "shape": [%s]'):format(s.quant_type, s.blocksize, LONG[s.dtype],
    table.concat(shape, ", "))
  if offset then
    text = ('%s, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": %s'):format(text, float_text(offset))
  end
  return text .. "}"
end

local function sibling(name, other) return (name:match "^(.*%.)[^.]*$" or "") .. other end

--- Whether a key of a state dict belongs to a quantised tensor's metadata: the name of that tensor, or nil.
---@param key string
---@return string?
function M.owner(key)
  local name = key:match "^(.+)%.nested_absmax$" or key:match "^(.+)%.nested_quant_map$" or key:match "^(.+)%.absmax$"
    or key:match "^(.+)%.quant_map$" or key:match "^(.+)%.quant_state%.bitsandbytes__[%w]+$"
  if name then return name end
  local prefix = key:match "^(.*%.)SCB$" or key:match "^(.*%.)weight_format$"
  return prefix and prefix .. "weight" or (key == "SCB" or key == "weight_format") and "weight" or nil
end

--- Renames the metadata entries of the tensor `from` for the tensor `to`: name -> tensor.
---@param state table<string, accel.Tensor>
---@param from string
---@param to string
---@return table<string, accel.Tensor>
function M.renamed(state, from, to)
  local out = {}
  for key, t in next, state do
    if M.owner(key) == from then
      local last = key:match "[^.]*$"
      out[(last == "SCB" or last == "weight_format") and sibling(to, last) or to .. key:sub(#from + 1)] = t
    end
  end
  return out
end

--- The entries of a quantised tensor under a name.
--- example: local s = accel.quant.state_dict_of("w", accel.quantize_4bit(accel.ones(64), "nf4"))
---   return s["w"].shape, s["w.absmax"] --> { 32, 1 }, { 1 }
---@param name string
---@param q accel.Tensor
---@return table<string, accel.Tensor> ordered
function M.state_dict_of(name, q)
  local s = tensors.is_tensor(q) and q.quant_state
  if not s then raise("quant.state_dict_of: expected a quantised tensor, got %s", check.shown(q)) end
  local out = ordered()
  if s.quant_type == "int8" then
    out[name] = q:quant_part "values"
    out[sibling(name, "SCB")] = q:quant_part "absmax"
    out[sibling(name, "weight_format")] = accel.zeros({}, { dtype = "u8", device = q.device })
    return out
  elseif s.quant_type ~= "nf4" and s.quant_type ~= "fp4" then
    raise("quant.state_dict_of: bitsandbytes has no names for tensors of type %s", s.quant_type)
  end
  out[name] = q:quant_part("values"):reshape(-1, 1)
  out[name .. ".absmax"] = q:quant_part "absmax"
  out[name .. ".quant_map"] = accel.quant_map(s.quant_type):to(q.device)
  local offset
  if s.nested then
    out[name .. ".nested_absmax"] = q:quant_part "nested_absmax"
    out[name .. ".nested_quant_map"] = accel.quant_map("dynamic"):to(q.device)
    offset = q.device ~= "meta" and q:quant_part("offset"):item() or 0.0
  end
  out[name .. STATE .. s.quant_type] = accel.from_bytes(state_text(s, offset), "u8"):to(q.device)
  return out
end

local function bytes_of(t) return t.dtype == "u8" and t or accel.from_bytes(t:to "cpu":contiguous():to_bytes(), "u8") end

local function same_map(name, map, kind)
  local own = accel.quant_map(kind)
  if map:numel() ~= own:numel() or (map:to "cpu":to "f32":reshape(-1) - own):abs():max():item() > 1e-6 then
    raise("%s: the file has non-standard values for the codes of %s; only the standard ones can be read", name, kind)
  end
end

local function count(name, what, t, n)
  if t:numel() ~= n then raise("%s: %s has %d elements, the shape in its state needs %d", name, what, t:numel(), n) end
end

--- Raises unless t is a vector of n elements of a dtype, as a file holds what belongs to n blocks or rows.
local function vector(name, what, t, n, dtype)
  if t.ndim ~= 1 or t.shape[1] ~= n then
    raise("%s: %s has shape %s, the shape in its state needs (%d)", name, what, tensors.shape_string(t), n)
  end
  if t.dtype ~= dtype then raise("%s: %s is %s, expected %s", name, what, t.dtype, dtype) end
end

--- The fields of a 4-bit state, checked.
local function read_state(name, kind, t)
  local ok, s = pcall(accel.json.decode, bytes_of(t):to "cpu":to_bytes())
  local function bad(fmt, ...) raise("%s%s%s: " .. fmt, name, STATE, kind, ...) end
  if not ok or type(s) ~= "table" then bad "not a JSON object" end
  if s.quant_type ~= kind then bad("quant_type is %s", check.shown(s.quant_type)) end
  if not SHORT[s.dtype] then bad("dtype %s is not one of float32, float16, bfloat16", check.shown(s.dtype)) end
  if math.type(s.blocksize) ~= "integer" then bad("blocksize is %s", check.shown(s.blocksize)) end
  if type(s.shape) ~= "table" then bad("shape is %s", check.shown(s.shape)) end
  for _, n in ipairs(s.shape) do
    if math.type(n) ~= "integer" or n < 0 then bad("shape has %s", check.shown(n)) end
  end
  if s.nested_offset ~= nil and (type(s.nested_offset) ~= "number" or s.nested_blocksize ~= 256) then
    bad("nested_blocksize must be 256 and nested_offset a number")
  end
  return s
end

local function read_4bit(name, kind, state, device)
  local s = read_state(name, kind, state[name .. STATE .. kind])
  local packed, absmax, map = state[name], state[name .. ".absmax"], state[name .. ".quant_map"]
  if not absmax then raise("%s: there is no '%s.absmax'", name, name) end
  if map then same_map(name, map, kind) end
  local q = accel.empty_quantized(kind, s.shape, {
    dtype = SHORT[s.dtype], blocksize = s.blocksize, nested = s.nested_offset ~= nil, device = device,
  })
  local used = { name, name .. ".absmax", name .. ".quant_map", name .. STATE .. kind }
  local function fill(part, what, t)
    local to = q:quant_part(part)
    if part == "values" then count(name, what, t, to:numel()) else vector(name, what, t, to:numel(), to.dtype) end
    if device ~= "meta" then to:copy_(t:reshape(to.shape)) end
  end
  packed = bytes_of(packed)
  fill("values", "the weight", packed)
  fill("absmax", "absmax", absmax)
  if s.nested_offset ~= nil then
    local nested = state[name .. ".nested_absmax"]
    if not nested then raise("%s: there is no '%s.nested_absmax'", name, name) end
    if state[name .. ".nested_quant_map"] then same_map(name, state[name .. ".nested_quant_map"], "dynamic") end
    fill("nested_absmax", "nested_absmax", nested)
    if device ~= "meta" then q:quant_part("offset"):fill_(s.nested_offset) end
    used[#used + 1], used[#used + 2] = name .. ".nested_absmax", name .. ".nested_quant_map"
  end
  return q, used
end

local function read_int8(name, state, dtype, device)
  local values, scales, format = state[name], state[sibling(name, "SCB")], state[sibling(name, "weight_format")]
  if not scales then raise("%s is int8, but there is no '%s' with the scales of its rows", name, sibling(name, "SCB")) end
  if format and format:numel() == 1 and format:item() ~= 0 then
    raise("%s: weight_format %d is not stored by row; load and save it with bitsandbytes 0.43 or later", name, format:item())
  end
  if values.ndim ~= 2 then raise("%s has shape %s, a matrix is needed", name, tostring(values.shape)) end
  local q = accel.empty_quantized("int8", values.shape, { dtype = dtype or "f16", device = device })
  count(name, "SCB", scales, values.shape[1])
  if device ~= "meta" then
    q:quant_part("values"):copy_(values)
    q:quant_part("absmax"):copy_(scales:reshape(-1))
  end
  return q, { name, sibling(name, "SCB"), sibling(name, "weight_format") }
end

--- The same for readers of any file, which do not know its content yet.
function M._from(name, state, o)
  local values = state[name]
  if not tensors.is_tensor(values) or values.quant_state then return nil end
  local device = o.device or values.device
  for _, kind in ipairs { "nf4", "fp4" } do
    if state[name .. STATE .. kind] then
      return read_4bit(name, kind, state, device)
    end
  end
  if values.dtype == "i8" then return read_int8(name, state, o.dtype, device) end
  for key in next, state do -- a state of a type that is not known
    local kind = type(key) == "string" and key:sub(1, #name + #STATE) == name .. STATE and key:sub(#name + #STATE + 1)
    if kind then
      raise("%s is quantised as '%s'; only nf4 and fp4 are supported", name, kind)
    end
  end
  return nil
end

--- A quantised tensor from its entries, and their keys. nil if there is none under this name.
--- example: local q = accel.quantize_4bit(accel.ones(64), "nf4")
---   return accel.quant.from_state_dict("w", accel.quant.state_dict_of("w", q)):dequantize():sum():item() --> 64
---@param name string
---@param state table<string, accel.Tensor>
---@param opts? {device: string?, dtype: string?} dtype: of the values of int8, which files do not say ("f16")
---@return accel.Tensor?, string[]?
function M.from_state_dict(name, state, opts, ...)
  local o = options("from_state_dict", opts, { device = options.none, dtype = options.none }, ...)
  if o.dtype and (state[name .. STATE .. "nf4"] or state[name .. STATE .. "fp4"]) then
    no_effect.once("from_state_dict", "dtype", "on 4 bits: the file sets it")
  end
  return M._from(name, state, o)
end

--- Warns in one line if only accel will be able to read a model's file: Transformers quantises only linear layers, of one type, and
--- keeps embeddings unquantised. The way around is to quantise by the defaults.
---@param model accel.models.PreTrainedModel
---@param who string
function M.warn_foreign(model, who)
  local q, found = model.config.quantization_config, {}
  local usual = q.load_in_8bit and "int8" or q.bnb_4bit_quant_type
  for name, module in pairs(model:named_modules()) do
    local w = tensors.is_tensor(module.weight) and module.weight.quant_state
    if w and (module.num_embeddings or w.quant_type ~= usual) then found[#found + 1] = ("%s (%s)"):format(name, w.quant_type) end
  end
  if #found == 0 then return end
  warn(("%s: only accel can read %s as quantised; Transformers can read the folder without skip_modules = {} and head_quant_type (accel-run "
    .. "quantize: without --head), llama.cpp a file of accel-run gguf export"):format(who, table.concat(found, ", ")))
end

return M
