--- models.PreTrainedModel: the common base of models with a Hugging Face configuration: construction from one, initial
--- values, tied weights, folders, generation.
---
--- A family declares its classes with `define` and gives build(c), which makes the modules, and forward:
---
---   local Bert = PreTrainedModel:define("BertModel", { schema = schema, base_model_prefix = "bert", is_base = true })
---   function Bert:build(c) self.embeddings = Embeddings(c) ... end
---
--- A model is built on the meta device and then filled: with initial values, or by from_pretrained with the
--- tensors of files, so that nothing is drawn or allocated twice.
local accel = require "accel"
local divided = require "accel.nn.divided"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local attention_again = require "accel.models.attention_again"
local check = require "accel.util.check"
local class = require "accel.util.class"
local configuration = require "accel.models.config"
local declared = require "accel.models.declared_size"
local parameter_order = require "accel.models.order"
local init = require "accel.nn.initialization"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local no_effect = require "accel.util.no_effect"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"
local unwritten = require "accel.util.unwritten"

--- example: accel.util.class.isinstance(accel.models.GPT2 { vocab_size = 5, n_positions = 8, n_embd = 4, n_layer = 1,
---   n_head = 1 }, accel.models.PreTrainedModel) --> true
---@class accel.models.PreTrainedModel : accel.nn.Module
---@field config table the configuration, completed
---@field schema accel.models.Schema of the family
---@field base_model_prefix? string the field under which models with a head hold the base model
---@field is_base boolean this class is the base model
---@field tied_weights table<string, string> name -> name whose tensor it shares with config.tie_word_embeddings
---@field _no_split_modules string[] classes of its blocks: the units of TRANSFORMER_BASED_WRAP
---@field ignored_keys string[] patterns of names in files that mean nothing any more
---@field generation_config? accel.models.GenerationConfig of the folder that the model came from
---@field order? table<string, string> fields of modules in the order of Transformers, where it differs from build's (order.lua)
---@field optional_keys string[] patterns of names that a file may lack. They get initial values
local PreTrainedModel = Module:extend("accel.models.PreTrainedModel")

PreTrainedModel.is_base = false
PreTrainedModel.tied_weights, PreTrainedModel.ignored_keys, PreTrainedModel.optional_keys = {}, {}, {}

--- A class below this one, with fields and its own from_pretrained(dir, opts).
---@param name string Hugging Face's class name: goes into config.json
---@param fields? table
function PreTrainedModel:define(name, fields)
  local cls = self:extend(name)
  for key, value in next, fields or {} do cls[key] = value end
  --- The model of a folder that holds this class: see models.from_pretrained, which takes the class from config.json.
  ---@param dir string
  ---@param opts? table options of models.from_pretrained, except class
  function cls.from_pretrained(dir, opts, ...)
    local loading = require "accel.models.loading"
    if dir == cls then return loading(cls, opts, ...) end
    return loading(cls, dir, opts, ...)
  end
  return cls
end

---@param self accel.models.PreTrainedModel
local function name_of(self) return class.of(self).__name end

--- accel.deepspeed.zero if parameters are sharded over ranks at creation, otherwise nil.
local function creates_sharded() return divided.creates and divided.creates() or nil end

--- Options: dtype (of floating parameters, "f32"), device (the default one).
---@param config? table Hugging Face's config.json keys
---@param opts? {dtype: string?, device: string?}
function PreTrainedModel:init(config, opts)
  local name = name_of(self)
  if not self.schema then raise("%s is a base class: make a model of one of its families", name) end
  local o = options(name, opts, { dtype = "f32", device = accel.get_default_device() })
  local dtype = accel.empty(0, { dtype = o.dtype, device = "meta" }).dtype
  if not tensors.is_floating(dtype) then raise("%s: dtype '%s' is not a floating one", name, o.dtype) end
  local c, problem = configuration.read(self.schema, config)
  if not c then raise("%s: %s", name, problem) end
  local many = declared.too_many(c)
  if many then raise("%s: the configuration %s", name, many) end
  self.config = c
  local zero = o.device == "meta" and unwritten.dry_run() and creates_sharded()
  do
    local _ <close> = accel.device "meta"
    local _ <close> = zero and zero.Init() or nil -- a dry run: parameters are cut as a real run cuts them when it draws their values
    self:_build(c)
    if c.tie_word_embeddings then self:tie_weights() end
  end
  if o.device == "meta" then
    if unwritten.dry_run() then accel.collect() end -- heads that are tied now: a real run never allocates them
    return
  end
  local empty = Parameter.device == "meta" -- inside init_empty_weights: nothing is drawn, only buffers have values
  local large = not empty and not creates_sharded() and declared.too_large(declared.bytes(self:_slots(), dtype), o.device)
  if large then raise("%s: the configuration %s", name, large) end
  self:_fill(function(t, at)
    local to = tensors.is_floating(t.dtype) and dtype or t.dtype
    if empty and Parameter.is(t) then return t:detach():to(to) end
    return self:_initial(t, at, to, o.device)
  end)
end

--- This class as a part of another model that is being built: no values yet.
---@param c table a checked configuration
---@param ... any for build
function PreTrainedModel:part(c, ...)
  local model = setmetatable(self.alloc(), self)
  model.config = c
  model:_build(c, ...)
  return model
end

--- Makes the modules in the order of Transformers.
function PreTrainedModel:_build(...)
  self:build(...)
  if self.order then parameter_order.apply(self, self.order) end
end

--- Makes the modules. Every family has its own.
---@param _ table the checked configuration
function PreTrainedModel:build(_) raise("%s does not define build", name_of(self)) end

--- Module and field of a dotted name.
function PreTrainedModel:_place(name)
  local path, key = name:match "^(.*)%.([^.]+)$"
  return path and self:get_submodule(path) or self, key or name
end

--- Makes every name of tied_weights share the tensor of the name that it points to.
function PreTrainedModel:tie_weights()
  for alias, source in ordered.iterate(self.tied_weights) do
    local from, key = self:_place(source)
    local module, field = self:_place(alias)
    module[field] = from[key]
  end
end

--- Whether every name of tied_weights shares the tensor of the name that it points to. Merging an adapter into one of them unties it.
---@return boolean
function PreTrainedModel:is_tied()
  for alias, source in ordered.iterate(self.tied_weights) do
    local from, key = self:_place(source)
    local module, field = self:_place(alias)
    if module[field] ~= from[key] then return false end
  end
  return true
end

--- Name -> {tensor, module, key} of parameters and persistent buffers, aliases included, in registration
--- order.
function PreTrainedModel:_slots()
  local out = ordered()
  for prefix, module in pairs(self:named_modules()) do
    for key, t, kind in module:_fields() do
      if kind == "parameter" or kind == "buffer" then
        out[prefix == "" and key or prefix .. "." .. key] = { tensor = t, module = module, key = key }
      end
    end
  end
  return out
end

--- Replaces every parameter and buffer t of this model by fn(t, {module=, key=, name=}). Shared ones once.
function PreTrainedModel:_fill(fn)
  local where = {}
  for prefix, module in pairs(self:named_modules()) do
    for key, t, kind in module:_fields() do
      if kind ~= "module" and not where[t] then
        where[t] = { module = module, key = key, name = prefix == "" and key or prefix .. "." .. key, kind = kind }
      end
    end
  end
  local zero = creates_sharded()
  return self:_map_tensors(function(t)
    local at = where[t]
    local new = at and fn(t, at) or t
    if zero and at and at.kind == "parameter" then
      new = Parameter(new, t.requires_grad)
      zero.cut(new, at.name)
    end
    return new
  end)
end

--- A new tensor with the initial values for a meta tensor.
function PreTrainedModel:_initial(t, at, dtype, device)
  local new = accel.empty(t.shape, { dtype = dtype, device = device, requires_grad = t.requires_grad })
  self:initialize(new, at)
  return new
end

-- Parameters whose initial value is a key of the configuration, by the end of their names.
local CONSTANTS <const> = {
  { "lambda_?[12]$", "layer_scale_init_value" }, { "lambda_?[12]$", "layerscale_value" },
  { "layer_scale_parameter$", "layer_scale_init_value" }, { "logit_scale$", "logit_scale_init_value" },
}

--- Initial values of one tensor, in place: scales of layers and logits by the configuration, matrices (and kernels) normal
--- with config.initializer_range, the padding row zero. Vectors named weight and running variances are one, everything
--- else zero. Families with other rules override it.
---@param t accel.Tensor
---@param at {module: accel.nn.Module, key: string, name: string} its position. name is the whole dotted one
function PreTrainedModel:initialize(t, at)
  local key, module = at.key, at.module
  for _, row in ipairs(CONSTANTS) do
    local value = at.name:find(row[1]) and configuration.get(self.config, row[2])
    if value then return init.constant_(t, value) end
  end
  if key == "running_var" or (key == "weight" and t.ndim == 1) then
    init.ones_(t)
  elseif t.ndim >= 2 and tensors.is_floating(t.dtype) then
    init.normal_(t, 0, configuration.get(self.config, "initializer_range") or 0.02)
    if module.padding_idx then init.zeros_(t:detach():select(1, module.padding_idx + 1)) end
  else
    init.zeros_(t)
  end
end

local function matches(name, patterns)
  for _, pattern in ipairs(patterns) do
    if name:find(pattern) then return true end
  end
  return false
end

--- Older names of tensors: a family maps them to current ones.
---@param name string
---@return string
function PreTrainedModel:rename(name)
  return (name:gsub("%.gamma$", ".weight"):gsub("%.beta$", ".bias"))
end

--- The name here of a tensor that a file calls `name`: as it is, under an older spelling, or with the base
--- model's prefix added or taken away. False: the file may hold it, but nothing wants it. nil: unknown.
---@param slots table<string, table>
---@param name string
---@return string|false|nil
function PreTrainedModel:resolve(slots, name)
  local prefix = self.base_model_prefix
  for _, known in ipairs { name, self:rename(name) } do
    if rawget(slots, known) then return known end
    if prefix then
      local other = self.is_base and known:match("^" .. prefix .. "%.(.+)$") or prefix .. "." .. known
      if other and rawget(slots, other) then return other end
    end
  end
  if matches(name, self.ignored_keys) then return false end
  return nil
end

--- Whether a model is complete without this tensor of a file: it belongs to a head, or the family allows it.
---@param name string
function PreTrainedModel:is_optional(name)
  if matches(name, self.optional_keys) or name:find "num_batches_tracked$" then return true end
  local prefix = self.base_model_prefix
  return prefix ~= nil and not self.is_base and name:sub(1, #prefix + 1) ~= prefix .. "."
end

--- Takes Hugging Face's names as they come: with or without the base model's prefix, in older spellings, and
--- without the tensors that are tied to others here.
---@param state table<string, accel.Tensor>
---@param strict? boolean|{strict: boolean}
function PreTrainedModel:load_state_dict(state, strict, ...)
  if type(state) ~= "table" then return Module.load_state_dict(self, state, strict, ...) end
  local slots, given, quantised = self:_slots(), ordered(), {}
  for name, t in ordered.iterate(state) do
    local known = self:resolve(slots, name)
    if known ~= false then given[known or name] = t end
  end
  for alias, source in ordered.iterate(self.tied_weights) do
    local a, b = rawget(slots, alias), rawget(slots, source)
    if a and b and a.tensor == b.tensor then
      given[alias] = rawget(given, source) or rawget(given, alias)
      given[source] = rawget(given, alias)
      if a.tensor.quant_state then quantised[#quantised + 1] = { alias, source } end
    end
  end
  if #quantised == 0 then return Module.load_state_dict(self, given, strict, ...) end
  local states = require "accel.nn.quant_state"
  for _, pair in ipairs(quantised) do -- metadata of packed tensors
    for name, t in pairs(states.renamed(given, pair[2], pair[1])) do given[name] = rawget(given, name) or t end
    for name, t in pairs(states.renamed(given, pair[1], pair[2])) do given[name] = rawget(given, name) or t end
  end
  local result = Module.load_state_dict(self, given, strict, ...)
  for _, pair in ipairs(quantised) do -- with a changed layout, each has a separate tensor
    local from, key = self:_place(pair[2])
    local module, field = self:_place(pair[1])
    module[field] = from[key]
  end
  return result
end

--- Makes a tied name a separate parameter again, on the meta device.
---@param name string
function PreTrainedModel:_untie(name)
  local module, key = self:_place(name)
  local t = module[key]
  module[key] = Parameter(accel.empty(t.shape, { dtype = t.dtype, device = "meta" }), t.requires_grad)
end

--- Writes config.json (and generation_config.json) and model.safetensors, or with max_shard_size (bytes, or "5GB") several files and their
--- index, into a folder, which is made. Tied tensors are written once. Returns true. On a disk error returns nil, message, code.
---@param dir string
---@param opts? table
---  max_shard_size integer|string: bytes of a file
---  safe_serialization boolean = true: false writes PyTorch's files, pytorch_model.bin
---  beside table<string, string>: texts by the names of further files of the folder, which switch together with the weights
---  is_main_process boolean = true: false writes nothing, on ranks that leave the folder to another one
---  state_dict table: values by name to write in the place of the model's own, as accelerator:get_state_dict(model) gathers them
---  save_function function: has no effect, since accel's own writer writes the folder as a whole
function PreTrainedModel:save_pretrained(dir, opts, ...)
  local pretrained = require "accel.models.pretrained"
  local o = options("save_pretrained", opts, { max_shard_size = options.none, safe_serialization = true, beside = options.none,
    is_main_process = true, state_dict = options.none, save_function = options.none }, ...)
  if o.save_function ~= nil then
    check.callable("save_pretrained", "save_function", o.save_function)
    no_effect.once("save_pretrained", "save_function", "since accel's own writer writes the folder as a whole")
  end
  if o.state_dict ~= nil and type(o.state_dict) ~= "table" then
    raise("save_pretrained: state_dict must be a table of tensors, got %s", check.shown(o.state_dict))
  end
  if not o.is_main_process then return true end
  local slots, state, tied = self:_slots(), ordered(), self:is_tied()
  for alias, source in ordered.iterate(self.tied_weights) do
    local a, b = rawget(slots, alias), rawget(slots, source)
    if a and b then a.skip, a.own = tied, a.tensor == b.tensor end -- if one is not tied, the folder's configuration ties none
  end
  local dtype
  for name, slot in pairs(slots) do
    if not slot.skip then
      local given = o.state_dict and o.state_dict[name]
      if o.state_dict and given == nil then
        raise("save_pretrained: state_dict has no '%s', which the model has; gather it by accelerator:get_state_dict(model)", name)
      end
      if given then
        state[name] = given:detach()
      elseif slot.tensor.quant_state then
        for key, t in pairs(require("accel.nn.quant_state").state_dict_of(name, slot.tensor)) do state[key] = t end
      else
        state[name] = slot.own and slot.tensor:detach():clone() or slot.tensor:detach()
      end
      if tensors.is_floating(slot.tensor.dtype) then dtype = dtype or slot.tensor.dtype end
    end
  end
  if self.config.quantization_config then require("accel.nn.quant_state").warn_foreign(self, "save_pretrained") end
  local config = {}
  for key, value in next, configuration.others(self.config) do config[key] = value end
  for key, value in next, self.config do config[key] = value end
  for _, key in ipairs { "bos_token_id", "eos_token_id", "pad_token_id" } do -- absent would mean some id to others
    if config[key] == nil then config[key] = accel.json.null end
  end
  if next(self.tied_weights) then config.tie_word_embeddings = tied end
  config.architectures = accel.json.array { name_of(self) }
  config.dtype, config.torch_dtype, config.num_labels = pretrained.dtype_names[dtype], nil, nil
  local beside = {}
  for name, text in accel.pairs(o.beside or {}) do beside[name] = text end
  if self.generation_config then
    local name, text = self.generation_config:_file()
    beside[name] = text
  end
  return pretrained.save(dir, config, state, o.max_shard_size, beside, o.safe_serialization)
end

--- The stacks of layers in this model that can run as checkpoints.
function PreTrainedModel:_stacks()
  local stacks = {}
  for _, module in pairs(self:named_modules()) do
    if module.gradient_checkpointing ~= nil then stacks[#stacks + 1] = module end
  end
  if #stacks == 0 then raise("%s has no layers that gradient checkpointing could run again", name_of(self)) end
  return stacks
end

--- From here on, training keeps only the input of each layer and computes the layer again in backward: less memory for about a third more
--- time, the same losses to the last bit. Options of accel.checkpoint, directly or, as in Hugging Face, under
--- gradient_checkpointing_kwargs. granularity = "selective" recomputes attention alone, which costs a few percent of the time.
--- example: local m = accel.models.GPT2(accel.models.tiny.gpt2) m:gradient_checkpointing_enable()
---   return m:is_gradient_checkpointing() --> true
---@param opts? table
function PreTrainedModel:gradient_checkpointing_enable(opts, ...)
  check.surplus("gradient_checkpointing_enable", ...)
  local o = { use_reentrant = false }
  for key, value in pairs(opts or {}) do o[key] = value end
  for key, value in pairs(o.gradient_checkpointing_kwargs or {}) do o[key] = value end
  o.gradient_checkpointing_kwargs = nil
  local granularity = o.granularity or "full"
  o.granularity = nil
  check.word("gradient_checkpointing_enable", "granularity", granularity, { "full", "selective" })
  require "accel.autograd.checkpoint"(function(rest) -- wrong options are named here
    if not rest then return end
    local known = { granularity = true, gradient_checkpointing_kwargs = true }
    for key in next, require("accel.autograd.recompute").options do known[key] = true end
    raise("gradient_checkpointing_enable: unknown option '%s'%s", tostring(next(rest)), options.listed(known))
  end, o)
  self:gradient_checkpointing_disable()
  if granularity == "selective" then
    if not attention_again.set(self, o) then raise("%s has no attention that gradient checkpointing could run again", name_of(self)) end
    return
  end
  for _, stack in ipairs(self:_stacks()) do stack.gradient_checkpointing = o end
end

--- Layers keep their tensors for backward again.
function PreTrainedModel:gradient_checkpointing_disable()
  attention_again.clear(self)
  for _, stack in ipairs(self:_stacks()) do stack.gradient_checkpointing = false end
end

--- Whether any part of the model runs its layers as checkpoints.
---@return boolean
function PreTrainedModel:is_gradient_checkpointing()
  for _, module in pairs(self:named_modules()) do
    if module.gradient_checkpointing or rawget(module, "recomputed") then return true end
  end
  return false
end

--- The number of arguments that forward takes, as its class declares them. It refuses further ones.
---@return integer
function PreTrainedModel:_forward_takes() return debug.getinfo(self.forward, "u").nparams - 1 end

--- Maximum tokens. math.huge without a limit.
---@return number
function PreTrainedModel:context_length() return self.config.max_position_embeddings end

--- Layers, heads of keys and values, and width of a head, for the cache.
---@return integer, integer, integer
function PreTrainedModel:cache_shape() raise("%s does not generate text", name_of(self)) end

--- The attention window of every layer. nil if a layer sees all tokens.
---@return integer?
function PreTrainedModel:cache_window() return configuration.get(self.config, "sliding_window") end

--- An empty cache of keys and values for so many sequences of up to length tokens.
---@param batch integer
---@param length? integer default: the context length
---@param opts? {implementation: string?, config: table?}
---  implementation: "static" (all memory at once), "dynamic", "quantized" (int8), "sliding_window" (of models that have one)
---  config: {dtype = "bf16"|"f16"|...}: dtype of keys and values (default: the model's)
---@return accel.models.KVCache
function PreTrainedModel:new_cache(batch, length, opts, ...)
  return require "accel.models.new_cache"(self, batch, length, opts, ...)
end

--- This model's generation settings: its folder's, or those that follow from its configuration.
---@return accel.models.GenerationConfig
function PreTrainedModel:_generation_config()
  return self.generation_config or require "accel.models.generation.config".from_model_config(self.config)
end

for name, method in next, (require "accel.models.embeddings_of") do PreTrainedModel[name] = method end

--- New ids after a prompt, or prompts: a list, or a list of lists. generate { input_ids = ids, ... } is the same.
---@param ids integer[]|integer[][]|accel.Tensor|table
---@param opts? table accel.models.generate.run's
---@return integer[]|integer[][]|accel.models.GenerateOutput
function PreTrainedModel:generate(ids, opts, ...)
  self:cache_shape()
  return require "accel.models.generate"(self, ids, opts, ...)
end

return PreTrainedModel
