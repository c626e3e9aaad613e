--- MegatronLMDummyDataLoader: stands in prepare for the train, valid and test loaders over Megatron-LM's indexed data sets that its
--- arguments and the MegatronLMPlugin describe. Used by prepare.lua.
local accel = require "accel"
local GPT = require "accel.data.gpt_dataset"
local masked = require "accel.data.masked_dataset"
local DataLoader = require "accel.data.dataloader"
local IndexedDataset = require("accel.data.indexed_dataset").IndexedDataset
local check = require "accel.util.check"
local class = require "accel.util.class"
local data_place = require("accel.accelerator.parallelism").data_place
local default_collate = require("accel.data.collate").default_collate
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local samplers = require "accel.data.samplers"

local M = {}

local WHO <const> = "MegatronLMDummyDataLoader"
local PARTS <const> = { "train", "valid", "test" }
--- More samples than its share that a set of a blend has: megatron-core's margin.
local SURPLUS <const> = 1.005

local none <const> = options.none
local declared <const> = {
  data_path = none, train_data_path = none, valid_data_path = none, test_data_path = none, splits_string = none, split = none,
  seq_length = none, micro_batch_size = none, seed = 1234, data_cache_path = none, eod = none, eod_mask_loss = none,
  reset_position_ids = false, reset_attention_mask = false, num_workers = 0, dataset_type = none,
}

--- Options of data.BERTDataset and data.T5Dataset, which go to these.
local MASKED <const> = { sequence_length_decoder = none, masking_max_ngram = none, masking_use_geometric_distribution = none,
  classification_head = none }
for key in next, masked.declared do MASKED[key] = none end
for _, key in ipairs { "sequence_length", "num_samples", "seed", "split", "part", "path_to_cache" } do MASKED[key] = nil end
for key in next, MASKED do declared[key] = none end

--- Options of data.GPTDataset alone.
local OF_GPT <const> = { "eod", "eod_mask_loss", "reset_position_ids", "reset_attention_mask" }

local TYPES <const> = { "gpt", "bert", "t5" }

--- Prefixes and weights of a data path: "a", { "a", "b" }, { 0.3, "a", 0.7, "b" }, or these as one text with spaces between.
---@param name string
---@param path any
---@return string[] prefixes
---@return number[]? weights
local function paths(name, path)
  local list = path
  if type(path) == "string" then
    list = {}
    for word in path:gmatch "%S+" do list[#list + 1] = word end
  end
  if type(list) ~= "table" or #list == 0 then raise("%s: %s is %s, not a prefix or a list of them", WHO, name, check.shown(path)) end
  local prefixes, weights = {}, {}
  local weighted = #list > 1 and tonumber(list[1]) ~= nil
  for i, x in ipairs(list) do
    if weighted and i % 2 == 1 then
      local w = tonumber(x)
      if not w or w <= 0 then raise("%s: %s[%d] is %s; expected a weight above 0", WHO, name, i, check.shown(x)) end
      weights[#weights + 1] = w
    elseif type(x) ~= "string" then
      raise("%s: %s[%d] is %s; expected a prefix: give every prefix a weight or none", WHO, name, i, check.shown(x))
    else
      prefixes[#prefixes + 1] = x
    end
  end
  if weighted and #weights ~= #prefixes then raise("%s: %s has a weight that no prefix follows", WHO, name) end
  return prefixes, weighted and weights or nil
end

--- Passes over a fixed number of samples, one after the other. After the last sample the first follows again.
---@class accel.accelerator.MegatronPasses : accel.data.Sampler
local Passes = samplers.Sampler:extend "accel.accelerator.MegatronPasses"

function Passes:init(samples, passes) self.samples, self.passes = samples, passes end

function Passes:len() return self.samples end

function Passes:order(epoch)
  local order, first = {}, epoch % self.passes * self.samples
  for i = 1, self.samples do order[i] = first + i end
  return order
end

--- Samples of documents laid end to end, or of their sentences: one data set of a part.
---@param o table
---@param indexed accel.data.IndexedDataset
---@param range {split: string, part: integer, num_samples: integer?}
local function samples_of(o, indexed, range)
  local own = { sequence_length = o.seq_length, num_samples = range.num_samples, seed = o.seed, split = range.split, part = range.part,
    path_to_cache = o.data_cache_path }
  if o.dataset_type == "gpt" then
    for _, key in ipairs(OF_GPT) do own[key] = o[key] end
    return GPT.GPTDataset(indexed, own)
  end
  for key in next, MASKED do own[key] = o[key] end
  if o.dataset_type == "bert" then return require("accel.data.bert_dataset").BERTDataset(indexed, own) end
  return require("accel.data.t5_dataset").T5Dataset(indexed, own)
end

--- Batches of samples. Masked labels (loss_mask 0) become -100, which models ignore.
---@param samples table[]
---@return table
function M.collate(samples)
  local batch = default_collate(samples)
  if batch.loss_mask then batch.labels = batch.labels:masked_fill(batch.loss_mask:eq(0), -100) end
  return batch
end

--- A placeholder in prepare for loaders over indexed data sets (data.GPTDataset, BERTDataset, T5Dataset). The first one becomes the
--- train loader. A second and a third in the same call become the valid and the test loader, or nil if the split leaves them empty.
--- GPT's batches have tokens, labels (shifted by one token, -100 if masked), loss_mask and position_ids [B, seq_length]. B is
--- micro_batch_size times the plugin's num_micro_batches. Global batch k begins after k * B * data ranks samples, and rank r takes the B
--- samples after r * B. If the plugin sets train_iters (or train_samples), a pass of the train loader has that many batches. If it sets
--- eval_iters, a pass of the valid loader has that many and continues after the previous pass. Otherwise a pass has all samples of an
--- epoch. The plugin's consumed_samples, { train, valid, test }, sets their first samples.
--- example: accel.accelerator.MegatronLMDummyDataLoader { data_path = { 3, "a", 1, "b" }, seq_length = 8, micro_batch_size = 2 }.weights
---   --> { 3, 1 }
---@class accel.accelerator.MegatronLMDummyDataLoader
---@field dataset_args table the options, as they were given
---@field prefixes string[]? of data_path
---@field weights number[]?
local Dummy = class "accel.accelerator.MegatronLMDummyDataLoader"
M.MegatronLMDummyDataLoader = Dummy

---@param dataset_kwargs table
---  data_path string|table: prefix of .bin and .idx, a list of prefixes, or of weights and prefixes in turn
---  train_data_path, valid_data_path, test_data_path string|table: in place of data_path, files of each part
---  splits_string string = "969,30,1": shares of train, valid and test of data_path (split: Megatron's name of it)
---  seq_length integer: tokens of a sample (the plugin's)
---  micro_batch_size integer: rows of a micro-batch of a data rank
---  seed integer = 1234: of the order
---  data_cache_path string: folder of the indices. nil: every rank makes them
---  eod integer: the token that ends documents
---  eod_mask_loss boolean: mask the loss of inputs that are eod (the plugin's)
---  reset_position_ids boolean = false: restart positions at 0 after eod
---  reset_attention_mask boolean = false: batches have an attention_mask [B, seq_length, seq_length] that keeps documents apart
---  num_workers integer = 0: of the loaders
---  dataset_type string: "gpt", "bert" (data.BERTDataset) or "t5" (data.T5Dataset). nil: as the prepared model is. Of the latter two
---    sequences are sentences, the split is of documents, batches have the fields of these data sets, with labels of -100 for unmasked tokens
---  tokenizer string, and other options of these data sets. sequence_length_decoder integer: (the plugin's decoder_seq_length)
function Dummy:init(dataset_kwargs)
  local o = options(WHO, dataset_kwargs, declared)
  if o.splits_string ~= nil and o.split ~= nil then raise("%s: splits_string and split are two names of one option", WHO) end
  o.split = o.splits_string or o.split or "969,30,1"
  local own = o.train_data_path or o.valid_data_path or o.test_data_path
  if own and o.data_path ~= nil then raise("%s: give data_path, which is split, or a path for each part, not both", WHO) end
  if own and o.splits_string ~= nil then raise("%s: splits_string applies only to data_path, but each part has its own files", WHO) end
  if not own and o.data_path ~= nil then self.prefixes, self.weights = paths("data_path", o.data_path) end
  if o.micro_batch_size ~= nil then check.positive(WHO, "micro_batch_size", o.micro_batch_size) end
  if o.seq_length ~= nil then check.positive(WHO, "seq_length", o.seq_length) end
  GPT.split(o.split)
  self.dataset_args, self.options = dataset_kwargs, o
end

-- Data sets --------------------------------------------------------------------------------------

--- The samples of one part. nil if its share of the sequences is empty.
---@param o table
---@param part integer
---@param want integer? samples. nil: an epoch
local function data_set(o, part, want)
  local name = o.data_path ~= nil and "data_path" or PARTS[part] .. "_data_path"
  if o[name] == nil then return nil end
  local prefixes, weights = paths(name, o[name])
  local whole = name ~= "data_path"
  local split, index = whole and "1" or o.split, whole and 1 or part
  local sum, sets, lengths = 0, {}, {}
  for _, w in ipairs(weights or {}) do sum = sum + w end
  for i, prefix in ipairs(prefixes) do
    local indexed = IndexedDataset(prefix)
    local first, last = GPT.range(split, index, o.dataset_type == "gpt" and #indexed or indexed.document_indices.shape[1] - 1)
    if part > 1 and first == last then return nil end
    local samples = want
    if want and #prefixes > 1 then samples = weights and math.ceil(math.ceil(want * (weights[i] / sum)) * SURPLUS) or nil end
    sets[i] = samples_of(o, indexed, { num_samples = samples, split = split, part = index })
    lengths[i] = #sets[i]
  end
  if #sets == 1 then return sets[1] end
  local size = want
  if weights and not want then -- as many as the set that is used up first has
    size = math.huge
    for i, n in ipairs(lengths) do size = math.min(size, n * sum // weights[i] | 0) end
  elseif not weights then -- each as often as it has samples
    local all = 0
    for _, n in ipairs(lengths) do all = all + n end
    size = math.min(want or all, all)
  end
  return GPT.BlendedDataset(sets, weights or lengths, math.max(1, size))
end

--- Training samples of each part, and samples of a pass. nil: all of an epoch.
---@param plugin accel.accelerator.MegatronLMPlugin
---@param rows integer of a global batch
---@return (integer?)[] samples
---@return (integer?)[] passes
local function amounts(plugin, rows)
  if plugin.train_iters ~= nil and plugin.train_samples ~= nil then
    raise "MegatronLMPlugin: give train_iters or train_samples, not both"
  end
  for _, key in ipairs { "train_iters", "train_samples", "eval_iters", "eval_interval" } do
    if plugin[key] ~= nil then check.positive("MegatronLMPlugin", key, plugin[key]) end
  end
  local iters = plugin.train_iters or plugin.train_samples and plugin.train_samples // rows
  local eval = plugin._asked.eval_iters and plugin.eval_iters * rows
  local train = plugin.train_samples or iters and iters * rows
  return { train, iters and eval and (iters // plugin.eval_interval + 1) * eval or eval, eval }, { train, eval, eval }
end

--- The start of a loader, by the plugin's consumed_samples.
local function go_on(loader, consumed, part)
  if type(consumed) == "number" then consumed = { consumed } end
  local n = check.count("MegatronLMPlugin", ("consumed_samples[%d]"):format(part), (consumed or {})[part] or 0)
  if n == 0 then return end
  local rows = loader.total_batch_size
  local pass = loader.total_dataset_length // rows * rows -- drop the incomplete batch
  if pass == 0 then return end
  loader:load_state_dict { epoch = n // pass, samples = n % pass }
end

-- prepare ----------------------------------------------------------------------------------------

--- The type of the data sets: the given one, or the one the model needs.
local function type_of(o, accelerator)
  if o.dataset_type ~= nil then return check.word(WHO, "dataset_type", o.dataset_type, TYPES) end
  local model = accelerator._prepared.models[1]
  local config = model and accelerator:unwrap_model(model).config
  local kind = type(config) == "table" and config.model_type
  return (kind == "bert" or kind == "t5") and kind or "gpt"
end

--- Raises for options that data sets of this type do not have. Every rank names the same one.
local function refuse_others(o)
  local kind = o.dataset_type
  if kind == "gpt" then
    for key in accel.pairs(MASKED) do
      if o[key] ~= nil then raise("%s: %s is of dataset_type \"bert\" and \"t5\"", WHO, key) end
    end
    return
  end
  for _, key in ipairs(OF_GPT) do
    if o[key] then raise("%s: %s is of dataset_type \"gpt\", got \"%s\"", WHO, key, kind) end
  end
  if kind == "t5" and o.classification_head ~= nil then raise("%s: classification_head is of dataset_type \"bert\", got \"t5\"", WHO) end
  if kind == "bert" and o.sequence_length_decoder ~= nil then
    raise("%s: sequence_length_decoder is of dataset_type \"t5\", got \"bert\"", WHO)
  end
end

--- The loader of a part, reused if it was made before.
local function base_loader(self, accelerator, part)
  local made = self._made and self._made[accelerator]
  if made and made[part] ~= nil then return made[part] or nil end
  if not made then
    made = {}
    self._made = self._made or setmetatable({}, { __mode = "k" })
    self._made[accelerator] = made
  end
  local plugin, o = accelerator.megatron_lm_plugin, {}
  for key in next, declared do o[key] = self.options[key] end
  o.dataset_type = type_of(o, accelerator)
  if o.eod_mask_loss == nil then o.eod_mask_loss = plugin._asked.eod_mask_loss or false end
  refuse_others(o)
  if o.dataset_type == "gpt" then
    o.seq_length = o.seq_length or plugin.seq_length
  else
    o.seq_length = o.seq_length or plugin.encoder_seq_length or plugin.seq_length
  end
  if o.dataset_type == "t5" then
    o.sequence_length_decoder = o.sequence_length_decoder or plugin.decoder_seq_length
    if o.sequence_length_decoder == nil then
      raise("%s: sequence_length_decoder is missing (decoder_seq_length of the plugin), the tokens of T5's decoder", WHO)
    end
  end
  if o.seq_length == nil then raise("%s: seq_length is missing, the tokens of a sample", WHO) end
  if o.micro_batch_size == nil then raise("%s: micro_batch_size is missing, the rows of a micro-batch", WHO) end
  local provider = plugin.custom_megatron_datasets_provider_function
  if not (provider or o.data_path or o.train_data_path) then raise("%s: data_path is missing, the prefix of .bin and .idx files", WHO) end
  local rows = o.micro_batch_size * plugin.num_micro_batches
  local want, passes = amounts(plugin, rows * data_place(accelerator))
  local set
  if provider then
    if not self._provided then self._provided = table.pack(provider(want)) end
    set = self._provided[part]
  elseif o.data_cache_path and accelerator.num_processes > 1 then -- one writes the indices, the others read them
    set = accelerator:main_process_first(data_set, o, part, want[part])
  else
    set = data_set(o, part, want[part])
  end
  made[part] = false
  if set == nil then return nil end
  local pass = passes[part]
  if pass and pass > #set then pass = nil end
  local sampler = pass and Passes(pass, math.max(1, want[part] // pass)) or samplers.SequentialSampler(set)
  made[part] = DataLoader(set, { batch_size = rows, sampler = sampler, drop_last = true, num_workers = o.num_workers, seed = o.seed,
    collate_fn = (o.eod_mask_loss or o.dataset_type ~= "gpt") and "accel.accelerator.megatron_data:collate" or nil })
  return made[part]
end

--- The prepared loader of the part-th dummy in a call of prepare. nil if there is no such part.
---@param accelerator accel.Accelerator
---@param dummy accel.accelerator.MegatronLMDummyDataLoader
---@param part integer
---@param opts table
---@return accel.accelerator.DataLoader?
function M.prepare(accelerator, dummy, part, opts)
  local plugin = accelerator.megatron_lm_plugin
  if not plugin then
    raise("prepare: a %s stands for the data sets of a MegatronLMPlugin, but there is no megatron_lm_plugin", WHO)
  end
  if part > #PARTS then raise("prepare: a %s was given %d times; give at most three (train, valid, test)", WHO, part) end
  plugin.megatron_dataset_flag = true
  local base = base_loader(dummy, accelerator, part)
  if not base then return nil end
  local made = accelerator._prepared:find(base)
  if made then return made end
  made = accelerator:prepare_data_loader(base, opts)
  go_on(made, plugin.consumed_samples, part)
  return made
end

require "accel.util.absent".members(Dummy, "MegatronLMDummyDataLoader")

return M
