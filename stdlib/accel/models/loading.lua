--- loading(cls, dir, opts): the implementation of from_pretrained. The model is made without values. Every tensor of
--- the files is read once, converted if its dtype differs, and becomes the parameter itself, so that memory holds the
--- model and one more tensor. Returns the model in eval mode and the mismatches: {missing_keys=, unexpected_keys=,
--- mismatched_keys=}. For a faulty folder returns nil, message, code.
---
--- Options: dtype (of floating parameters, default: config.json's, otherwise the first tensor's), device, config (keys that
--- override those of config.json), strict (true: no missing or unexpected names. By default a head may be missing, and starts
--- from initial values), ignore_mismatched_sizes (tensors of other shapes count as missing), quantization_config (an
--- accel.quant.BnbQuantizationConfig: weights of linear layers in 4 or 8 bits. A folder saved in this form records it in its
--- config.json). Weights that other tools quantised (models/packed) are dequantised as they are read.
local accel = require "accel"
local GenerationConfig = require "accel.models.generation.config"
local PreTrainedModel = require "accel.models.pretrained_model"
local divided = require "accel.nn.divided"
local Conv1D = require "accel.models.conv1d"
local class = require "accel.util.class"
local configuration = require "accel.models.config"
local declared = require "accel.models.declared_size"
local dist = require "accel.dist"
local list = require "accel.util.listed"
local nearest = require "accel.util.nearest"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local packed = require "accel.models.packed"
local pretrained = require "accel.models.pretrained"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local terminal = require "accel.util.terminal"
local weights = require "accel.ckpt.weights"

local FEW <const> = 64 -- blocks that are built without a look at the files

local short_names = {}
for short, long in next, pretrained.dtype_names do short_names[long], short_names[short] = short, short end

local integers = { i64 = true, i32 = true, i16 = true, i8 = true, u8 = true, bool = true }

local function listed(names) return list(names, 6) end

local function shape_text(shape)
  local parts = {}
  for i, n in ipairs(shape) do parts[i] = ("%d"):format(n) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

--- A checked configuration. nil, message, code if the file is wrong. Overrides that are wrong raise.
local function read_config(cls, dir, overrides)
  local given, message, code = pretrained.read_config(dir)
  if not given then return nil, message, code end
  given.model_type = given.model_type or cls.schema.model_type
  local c, problem, kind = configuration.read(cls.schema, given)
  if not c then return nil, ("%s/config.json: %s"):format(dir, problem), kind end
  if next(overrides) == nil then return c end
  if overrides.num_labels then given.id2label, given.label2id = nil, nil end
  for key, value in next, overrides do
    if not cls.schema.fields[key] and not cls.schema.aliases[key] then
      local near = nearest(tostring(key), cls.schema.fields)
      raise("from_pretrained: unknown key '%s' in config%s", tostring(key),
        near and ("; did you mean '%s'?"):format(near) or "")
    end
    if (key == "dtype" or key == "torch_dtype") and not short_names[value] then
      raise("from_pretrained: config.%s must name a dtype such as 'bfloat16', got %s", key, tostring(value))
    end
    if key == "torch_dtype" and overrides.dtype == nil then given.dtype = nil end -- its older name
    given[key] = value
  end
  c, problem = configuration.read(cls.schema, given)
  if not c then raise("from_pretrained: config: %s", problem) end
  return c
end

--- The open files of a folder, closed together.
local Files = class("accel.models.Files")

function Files:init(dir) self.dir, self.readers = dir, {} end

function Files.__close(self)
  for _, reader in next, self.readers do reader:close() end
end

--- The file's reader. On failure returns nil, message, code.
function Files:open(file)
  if self.readers[file] then return self.readers[file] end
  local reader, message, code = weights.open_reader(self.dir .. "/" .. file)
  self.readers[file] = reader
  return reader, message, code
end

--- Whether the files of a folder hold too few tensors for the blocks that its configuration declares: false, or nil, message, code. So that
--- the numbers of layers and experts are checked before they are built.
local function too_many(config, dir, files)
  if declared.blocks(config) <= FEW then return false end
  local names, message, code = pretrained.files(dir)
  if not names then return nil, message, code end
  local held = 0
  for _, file in ipairs(names) do
    local reader, why, kind = files:open(file)
    if not reader then return nil, why, kind end
    for _, key in ipairs(reader:keys()) do
      local shape = reader:info(key).shape
      held = held + (#shape == 3 and shape[1] or 1) -- experts in one tensor
    end
  end
  local problem = declared.too_many(config, held)
  if problem then return nil, ("%s/config.json: %s"):format(dir, problem), "format" end
  return false
end

--- The tensors of the files: name -> {file, key, shape, dtype}, in their order.
local function contents(files, dir)
  local names, map, code = pretrained.files(dir)
  if not names then return nil, map, code end
  local found = ordered()
  for _, file in ipairs(names) do
    local reader, message, why = files:open(file)
    if not reader then return nil, message, why end
    for _, key in ipairs(reader:keys()) do
      local other = rawget(found, key)
      if other then return nil, ("%s: '%s' is in %s and in %s"):format(dir, key, other.file, file), "format" end
      local info = reader:info(key)
      found[key] = { file = file, key = key, shape = info.shape, dtype = info.dtype }
    end
  end
  for key, file in ordered.iterate(type(map) == "table" and map or {}) do
    local entry = rawget(found, key)
    if not entry or entry.file ~= file then
      return nil, ("%s: the index places '%s' in %s, which lacks it"):format(dir, key, file), "format"
    end
  end
  return found
end

--- The content of the files, without reading values: own name -> {file, key, shape, dtype}, and unexpected names. format: of weights that
--- another tool quantised (models/packed). Third the number of these.
local function survey(model, slots, files, dir, format)
  local found, message, code = contents(files, dir)
  if not found then return nil, message, code end
  local n = 0
  if format then
    found, n = packed.compose(format, found, function(entry)
      local reader = files:open(entry.file)
      return accel.device("cpu", reader.get, reader, entry.key)
    end)
    if not found then return nil, ("%s: %s"):format(dir, n), "format" end
  end
  local given, unexpected = ordered(), {}
  for key, entry in ordered.iterate(found) do
    local name = model:resolve(slots, key)
    if name == nil then
      unexpected[#unexpected + 1] = key
    elseif name and (name == key or not rawget(given, name)) then -- today's spelling wins over an older one
      given[name] = entry
      if entry.linear and class.isinstance(slots[name].module, Conv1D) then
        entry.shape, entry.transposed = { entry.shape[2], entry.shape[1] }, true
      end
    end
  end
  return given, unexpected, n
end

--- Whether two tensors hold the same numbers, looking at some rows at a time.
local function equal(a, b)
  a, b = a:reshape(-1), b:reshape(-1)
  local n, step = a:numel(), 1 << 20
  for at = 1, n, step do
    local part = math.min(step, n - at + 1)
    if a:narrow(1, at, part):ne(b:narrow(1, at, part)):to("i64"):sum():item() ~= 0 then return false end
  end
  return true
end

--- Tied names that the files contain in addition to their source: one with its own values is no longer tied, as in
--- Transformers. The others are left out.
local function settle_ties(model, slots, given, read)
  for alias, source in ordered.iterate(model.tied_weights) do
    local a, b = rawget(slots, alias), rawget(slots, source)
    local mine, its = rawget(given, alias), rawget(given, source)
    if a and b and a.tensor == b.tensor and mine and its then
      local distinct = mine.dtype ~= its.dtype or not tensors.same_sizes(mine.shape, its.shape)
      if not distinct then
        local x, message, code = read(mine)
        if not x then return nil, message, code end
        local y
        y, message, code = read(its)
        if not y then return nil, message, code end
        distinct = not equal(x, y)
        x:release()
        y:release()
      end
      if distinct then
        model:_untie(alias)
        model.config.tie_word_embeddings = false
      else
        mine.skip = true
      end
    end
  end
  return true
end

--- Sorts own names into those that are given, missing and of another shape. Returns the tensors to be filled: tensor ->
--- the files' entry, or false for initial values.
local function assign(model, given, o)
  local slots, wanted, missing, mismatched, fatal, wrong = model:_slots(), {}, {}, {}, {}, {}
  for name, slot in pairs(slots) do
    local g = rawget(given, name)
    if g and not g.skip then
      if tensors.same_sizes(g.shape, slot.tensor.shape) then
        wanted[slot.tensor] = g
      else
        mismatched[#mismatched + 1] = name
        wanted[slot.tensor] = wanted[slot.tensor] or false
        if not o.ignore_mismatched_sizes then
          wrong[#wrong + 1] = ("'%s' has shape %s, the model needs %s"):format(g.key, shape_text(g.shape),
            shape_text(slot.tensor.shape))
        end
      end
    end
  end
  for name, slot in pairs(slots) do
    if wanted[slot.tensor] == nil then
      if not name:find "num_batches_tracked$" then missing[#missing + 1] = name end
      if o.strict or not model:is_optional(name) then fatal[#fatal + 1] = name end
      wanted[slot.tensor] = false
    end
  end
  if #fatal > 0 then table.insert(wrong, 1, "missing " .. listed(fatal)) end
  return wanted, missing, mismatched, wrong
end

--- The dtype of floating parameters: requested, in the configuration, or the first tensor's.
local function dtype_for(o, config, given)
  if o.dtype then return accel.empty(0, { dtype = o.dtype, device = "meta" }).dtype end
  local said = short_names[config.dtype or config.torch_dtype]
  if said then return said end
  for _, g in pairs(given) do
    if tensors.is_floating(g.dtype) then return g.dtype end
  end
  return "f32"
end

-- The last step of every way to load a folder: how the model generates text, if it does.
local function complete(model, dir, info)
  if model.cache_shape ~= PreTrainedModel.cache_shape then -- it generates text
    local generation, reason, kind = GenerationConfig.from_pretrained(dir)
    if not generation and kind ~= "not_found" then return nil, reason, kind end
    model.generation_config = generation
  end
  return model:eval(), info
end

--- A model in 4 or 8 bits, by the caller's option, or for a folder with bitsandbytes' weights. Errors in such a folder are its own.
local function quantised(cls, dir, config, o)
  local quant = require "accel.models"._quant
  local found, message, code = pretrained.files(dir)
  if not found then return nil, message, code end
  local ok, model = pcall(function()
    local how = o.quantization_config or quant.BnbQuantizationConfig.from_dict(config.quantization_config)
    if not class.isinstance(how, quant.BnbQuantizationConfig) then
      raise("from_pretrained: quantization_config must be an accel.quant.BnbQuantizationConfig, got %s", type(how))
    end
    if o.dtype then how.torch_dtype = accel.empty(0, { dtype = o.dtype, device = "meta" }).dtype
    elseif not o.quantization_config then how.torch_dtype = short_names[config.dtype or config.torch_dtype] or how.torch_dtype end
    local made = cls(config, { device = "meta" })
    quant.load_and_quantize_model(made, how, { weights_location = dir, device_map = { [""] = o.device } })
    made.config.quantization_config = how:to_dict()
    return made
  end)
  if not ok and type(model) == "string" and not o.quantization_config then -- raised with the script's line, which is not to blame
    return nil, ("%s: %s"):format(dir, (model:gsub("^[^\n]-:%d+: ", ""))), "format"
  elseif not ok then
    error(model, 0)
  end
  return complete(model, dir, { missing_keys = {}, unexpected_keys = {}, mismatched_keys = {} })
end

---@param cls table a class below PreTrainedModel
---@param dir string
---@param opts? table
---@return accel.models.PreTrainedModel?, table|string|nil, string?
return function(cls, dir, opts, ...)
  if type(dir) ~= "string" then
    raise("from_pretrained: dir must be a string, got %s", class.isclass(dir) and "a class" or type(dir))
  end
  for key in next, type(opts) == "table" and opts or {} do -- a usual slip: Hugging Face's keyword arguments
    if cls.schema.fields[key] and key ~= "dtype" and key ~= "quantization_config" then
      raise("from_pretrained: '%s' is a key of the configuration: config = { %s = ... }", key, key)
    end
  end
  local o = options("from_pretrained", opts, {
    dtype = options.none, device = accel.get_default_device(), config = {}, strict = false,
    ignore_mismatched_sizes = false, quantization_config = options.none,
  }, ...)
  local config, message, code = read_config(cls, dir, o.config)
  if not config then return nil, message, code end
  local files <close> = Files(dir)
  local many
  many, message, code = too_many(config, dir, files)
  if many == nil then return nil, message, code end
  local q, format
  q, message, code = packed.config_of(dir, config)
  if message then return nil, message, code end
  if q and not packed.is_kept(q) then
    format, message, code = packed.format(q)
    if not format then return nil, ("%s: %s"):format(dir, message), code end
    if o.quantization_config then
      return nil, ("%s: its weights are quantised already (%s); leave out quantization_config, save the model with save_pretrained and "
        .. "load that folder with it"):format(dir, format.name), "unsupported"
    end
    config.quantization_config = nil
  elseif o.quantization_config or q then
    return quantised(cls, dir, config, o)
  end
  local built, model = pcall(cls, config, { device = "meta" })
  if not built then
    if type(model) == "table" and model.code == "shape" then -- more elements than can be counted
      return nil, ("%s/config.json: %s"):format(dir, model.message), "format"
    end
    error(model, 0)
  end
  local slots = model:_slots()
  local given, unexpected, n_packed = survey(model, slots, files, dir, format)
  if not given then return nil, unexpected, n_packed end
  local dtype = dtype_for(o, config, given)
  if not tensors.is_floating(dtype) then raise("from_pretrained: dtype '%s' is not a floating one", o.dtype) end
  local function read(g)
    if g.make then
      local w, problem, kind = g.make()
      if not w then return nil, ("%s: %s"):format(dir, problem), kind end
      return (g.transposed and w:t():contiguous() or w):to(o.device)
    end
    local reader = files:open(g.file)
    return accel.device(o.device, reader.get, reader, g.key)
  end
  for _, g in pairs(given) do
    if not short_names[g.dtype] and not integers[g.dtype] then
      return nil, ("%s: tensor '%s' is %s, which no parameter can be"):format(dir, g.key, g.dtype), "format"
    end
  end
  local ok
  ok, message, code = settle_ties(model, slots, given, read)
  if not ok then return nil, message, code end
  local wanted, missing, mismatched, wrong = assign(model, given, o)
  if o.strict and #unexpected > 0 then wrong[#wrong + 1] = "unexpected " .. listed(unexpected) end
  if #wrong > 0 then
    local hint = #mismatched > 0 and not o.ignore_mismatched_sizes and next(o.config) ~= nil
      and " (set ignore_mismatched_sizes = true to initialise those of another shape)" or ""
    return nil, ("%s does not fit %s: %s%s"):format(dir, cls.__name, table.concat(wrong, "; "), hint), "format"
  end
  local failed
  local efficient = divided.loading
  local leaves = efficient and efficient.leaves() -- rank 0 sends the values
  if not leaves then -- the files' tensors have the files' size. Missing ones have the size in config.json
    local large = declared.too_large(declared.bytes(slots, dtype, function(t) return not wanted[t] end), o.device)
    if large then return nil, ("%s/config.json: %s"):format(dir, large), "format" end
  end
  model:_fill(function(t, at)
    if failed then return t end
    local g, target = wanted[t], tensors.is_floating(t.dtype) and dtype or t.dtype
    if leaves then return accel.empty(t.shape, { dtype = target, device = "meta" }) end
    if not g then return model:_initial(t, at, target, o.device) end
    local new
    new, message, code = read(g)
    if not new then
      failed = true
      return t
    end
    if new.dtype == target then return new end
    local converted = new:to(target)
    new:release()
    return converted
  end)
  if failed then return nil, message, code end
  if format and n_packed > 0 and dist.get_rank() == 0 then
    io.stderr:write(terminal.format("accel: %s: %d weights (%s) are dequantised to %s\n", dir, n_packed, format.name, dtype))
  end
  local fresh = {}
  for _, names in ipairs { missing, mismatched } do table.move(names, 1, #names, #fresh + 1, fresh) end
  if #fresh > 0 and not leaves then
    warn(("%s.from_pretrained: %s has no %s: initial values, to be trained"):format(cls.__name, dir, listed(fresh)))
  end
  return complete(model, dir, { missing_keys = missing, unexpected_keys = unexpected, mismatched_keys = mismatched })
end
