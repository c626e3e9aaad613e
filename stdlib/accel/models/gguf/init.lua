--- models.gguf: GGUF, the files of llama.cpp, for the architectures of architectures.lua and GPT-2. Blocks of types.lua's types are
--- written, those of all types are read. Names and metadata are in families.lua and decoder.lua, tokenizers in
--- tokenizer.lua, the head in head.lua.
---
---   assert(accel.models.gguf.save(model, "model.gguf", { type = "Q8_0", tokenizer = tok }))
---   local model, extra = assert(accel.models.gguf.load "model.gguf")          -- extra.tokenizer
local check = require "accel.util.check"
local accel = require "accel"
local Head = require "accel.models.gguf.head"
local core = require "accel.file.core"
local families = require "accel.models.gguf.families"
local open = require "accel.models.gguf.files"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local tokenizers = require "accel.models.gguf.tokenizer"
local types = require "accel.models.gguf.types"

local M = {}

local ALIGNMENT <const> = 32

--- Contiguous memory as the file holds it.
local function stored(t, kind)
  if kind.dtype then return t:to(kind.dtype):to("cpu"):contiguous() end
  return core.gguf_quantize(t:to("f32"):to("cpu"):contiguous(), kind.number)
end

--- Writes a model into a file, tensor by tensor: in addition to the model, memory holds the largest tensor in f32 and in its written
--- form. Returns true. On a disk error returns nil, message, code, and an existing file is unchanged. Raises for parts that the format
--- cannot represent.
---@param model accel.models.PreTrainedModel a language model of an architecture that llama.cpp has
---@param path string
---@param opts? table
---  type "F32"|"F16"|"BF16"|"Q8_0"|"Q6_K"|"Q5_K_M"|"Q5_K_S"|"Q5_1"|"Q5_0"|"Q4_K_M"|"Q4_K_S"|"Q4_1"|"Q4_0" = "F16": of matrices. Files of
---    K types give some tensors more bits, by llama.cpp's rules
---  tokenizer accel.text.Tokenizer: goes into the file with its chat template (byte-level BPE, or SentencePiece's BPE)
---  name string: general.name
---@return boolean?, string?, string?
function M.save(model, path, opts, ...)
  check.surplus("gguf.save", ...)
  local o = options("gguf.save", opts, { type = "F16", tokenizer = options.none, name = options.none })
  local kind = types.files[tostring(o.type):upper()]
    or raise("gguf.save: type must be one of %s, got '%s'", table.concat(types.names, ", "), tostring(o.type))
  local family = families.of_model(model)
  local head = Head()
  head:string("general.architecture", family.name)
  if o.name then head:string("general.name", o.name) end
  head:u32("general.file_type", kind.number)
  if not types.types[kind.usual].dtype then head:u32("general.quantization_version", 2) end
  head:u32("general.alignment", ALIGNMENT)
  family.write(head, model.config, model)
  if o.tokenizer then tokenizers.write(head, o.tokenizer, model.config)
  else head:string("tokenizer.ggml.model", "no_vocab") end -- llama.cpp asks for it, and takes ids then
  local list, kinds, layers, logits = family.tensors(model), {}, 0, "token_embd.weight"
  for _, entry in ipairs(list) do
    layers = math.max(layers, 1 + (tonumber(entry.name:match "^blk%.(%d+)%.") or -1))
    if entry.name == "output.weight" then logits = entry.name end
  end
  for i, entry in ipairs(list) do
    local bytes
    kinds[i], bytes = types.place(kind, entry, math.tointeger(layers), logits)
    head:tensor(entry.name, entry.shape, kinds[i].number, bytes, ALIGNMENT)
  end
  local _ <close> = accel.no_grad()
  local file <close>, message, code = core.create_gguf(path, head:bytes(), ALIGNMENT, head.at)
  if not file then return nil, message, code end
  for i, entry in ipairs(list) do
    local _ <close> = accel.scope() -- temporaries of one tensor are freed before the next
    local ok, why, kind_of = file:append(stored(entry.make(), kinds[i]))
    if not ok then return nil, why, kind_of end
  end
  return file:commit()
end

--- A file's metadata and tensors: {metadata = table by key, tensors = list of {name =, type =, shape =, bytes =}}. On failure
--- returns nil, message, code.
---@param path string
---@return table?, string?, string?
function M.info(path)
  local file <close>, message, code = open(path)
  if not file then return nil, message, code end
  return { metadata = file:metadata(), tensors = file:tensors() }
end

--- The tokenizer of a file, which may have no tensors. On failure returns nil, message, code.
---@param path string
---@return accel.text.Tokenizer?, string?, string?
function M.tokenizer(path, ...)
  check.surplus("gguf.tokenizer", ...)
  local file <close>, message, code = open(path)
  if not file then return nil, message, code end
  local tokenizer, problem = tokenizers.read(file:metadata())
  if not tokenizer then return nil, ("%s: %s"):format(path, problem), "unsupported" end
  return tokenizer
end

--- A model of a file, or of the first of the parts that one was cut into, in eval mode, and {metadata =, tokenizer =}. nil, message, code
--- if the file is missing or wrong, or has unknown content.
---@param path string
---@param opts? table
---  dtype string = "f32": of the parameters. "auto": f16 or bf16 if the file's matrices are
---  device string: the device of the parameters (default: the default device)
---@return accel.models.PreTrainedModel?, table|string|nil, string?
function M.load(path, opts, ...)
  check.surplus("gguf.load", ...)
  local o = options("gguf.load", opts, { dtype = "f32", device = accel.get_default_device() })
  local file <close>, message, code = open(path)
  if not file then return nil, message, code end
  local meta, given = file:metadata(), {}
  for i, t in ipairs(file:tensors()) do
    t.index = i
    given[t.name] = t
  end
  local family, problem = families.of_file(meta)
  if family then problem = families.unread(family, meta) end
  if problem then return nil, ("%s: %s"):format(path, problem), "unsupported" end
  local config
  config, problem = family.read(meta, given, function(i) return file:get(i) end)
  if not config then return nil, ("%s: %s"):format(path, problem), "format" end
  local dtype = o.dtype
  if dtype == "auto" then
    local probe = given["blk.0.attn_output.weight"]
    dtype = probe and (probe.type == "F16" or probe.type == "BF16") and probe.dtype or "f32"
  end
  local built, model = pcall(family.class(), config, { device = "meta" })
  if not built then return nil, ("%s: %s"):format(path, tostring(type(model) == "table" and model.message or model)), "format" end
  local failed, names = nil, family.names(model)
  local shared, layer = {}, nil -- tensors of this layer that hold all experts
  local function whole(name, index)
    local of = name:match "^blk%.%d+%."
    if of ~= layer then shared, layer = {}, of end
    local why
    if not shared[name] then shared[name], why = file:get(index) end
    return shared[name], why
  end
  model:_fill(function(t, at)
    if failed then return t end
    local want = names[at.name]
    local entry = want and given[want.name]
    if not entry then
      failed = ("there is no tensor '%s'"):format(want and want.name or at.name)
      return t
    end
    entry.taken = true
    local new, why
    if want.part then
      new, why = whole(want.name, entry.index)
      if new and (#new.shape ~= 3 or new.shape[1] < want.part) then
        new, why = nil, ("tensor '%s' has shape %s, without expert %d"):format(want.name, accel.json.encode(new.shape), want.part - 1)
      end
      new = new and new:select(1, want.part):clone()
    else
      new, why = file:get(entry.index)
    end
    if not new then
      failed = why
      return t
    end
    if want.read then new = want.read(new) end
    local same = #new.shape == #t.shape
    for d = 1, #t.shape do same = same and new.shape[d] == t.shape[d] end
    if not same then
      failed = ("tensor '%s' has shape %s, the model needs %s"):format(want.name, accel.json.encode(new.shape), accel.json.encode(t.shape))
      return t
    end
    return new:to(dtype):to(o.device):contiguous()
  end)
  if failed then return nil, ("%s: %s"):format(path, failed), "format" end
  for name, entry in accel.pairs(given) do -- leaving out a tensor would change the model's computation
    if not entry.taken and name ~= "rope_freqs.weight" then
      return nil, ("%s: tensor '%s' has no place in %s"):format(path, name, family.class().__name), "unsupported"
    end
  end
  local tokenizer
  tokenizer, problem = tokenizers.read(meta)
  return model:eval(), { metadata = meta, tokenizer = tokenizer, tokenizer_problem = problem }
end

return M
