--- The architectures of GGUF files that accel reads and writes, and the keys of their metadata that change a model's computation. A family
--- has: name, class(), names(model), write(head, config, model), extra(config, model), read(meta, given, get), tensors(model). Used by
--- models.gguf.
local accel = require "accel"
local class = require "accel.util.class"
local decoder = require "accel.models.gguf.decoder"
local names = require "accel.models.gguf.names"
local raise = require "accel.util.raise"

local M = {}

local families, by_name = {}, {}
for _, description in ipairs(require "accel.models.gguf.architectures") do
  local family = decoder(description)
  families[#families + 1] = family
  if not description.only_written then by_name[family.name] = family end
end
families[#families + 1] = require "accel.models.gguf.gpt2"
by_name.gpt2 = families[#families]

for _, family in ipairs(families) do
  --- The tensors of a model: list of {name =, shape =, make =, keep =}, in the order of the model. make returns the tensor. It creates one
  --- if elements are reordered or the tensor is quantised (f32).
  function family.tensors(model)
    local rows, out, seen, whole = family.names(model), family.extra(model.config, model), {}, {}
    for name, slot in pairs(model:_slots()) do
      local row = rows[name] or raise("gguf.save: '%s' has no name in the format", name)
      if not seen[slot.tensor] then
        seen[slot.tensor] = true
        local t, write, state = slot.tensor, row.write, slot.tensor.quant_state
        if state and write == names.transposed then write = nil end -- a Conv1D that is quantised is a linear layer, [out, in] as there
        local shape = state and state.shape or t.shape
        local function plain() return state and t:dequantize "f32" or t:detach() end
        if row.part and whole[row.name] then -- one more expert
          local parts = whole[row.name]
          parts[row.part], parts.entry.shape[1] = plain, parts.entry.shape[1] + 1
          goto next
        elseif row.part then
          local parts = { [row.part] = plain }
          whole[row.name], parts.entry = parts, { name = row.name, shape = { 1, table.unpack(shape) }, make = function()
            local list = {}
            for i, part in ipairs(parts) do list[i] = part() end
            return accel.stack(list, 1)
          end }
          out[#out + 1] = parts.entry
          goto next
        end
        if row.flat then shape = { shape[#shape] } end
        out[#out + 1] = {
          name = row.name, shape = write == names.transposed and { shape[2], shape[1] } or shape,
          keep = row.keep or row.name:find "_norm" ~= nil,
          make = function()
            local values = plain()
            return write and write(values) or values
          end,
        }
      end
      ::next::
    end
    return out
  end
end

local function known()
  local out = {}
  for name in accel.pairs(by_name) do out[#out + 1] = name end
  return table.concat(out, ", ")
end

-- Why a family is not written: without an entry, llama.cpp has no architecture for it.
local REASONS <const> = {
  bloom = "accel does not write llama.cpp's 'bloom'", falcon = "accel does not write llama.cpp's 'falcon'",
  gpt_bigcode = "accel does not write llama.cpp's 'starcoder'", mamba = "accel does not write llama.cpp's 'mamba'",
  gpt_oss = "llama.cpp's 'gpt-oss' holds its experts in MXFP4, which accel does not write",
  deepseek_v3 = "llama.cpp's 'deepseek2' splits and absorbs the latent projections, which accel does not write",
  llama4_text = "accel does not write llama.cpp's 'llama4'", olmo3 = "llama.cpp's 'olmo2' with windows is not written",
  mixtral = "the stacked experts of llama.cpp's 'llama' are not written",
}

function M.of_model(model)
  for _, family in ipairs(families) do
    if class.isinstance(model, family.class()) then return family end
  end
  local name = class.of(model) and class.of(model).__name or type(model)
  local kind = name:find "ForCausalLM$" and model.config and model.config.model_type
  raise("gguf.save: %s is not written%s; models with a language-model head of these architectures are: %s", name,
    kind and ": " .. (REASONS[kind] or "llama.cpp has no architecture for " .. kind) or "", known())
end

--- The family of a file. nil and the error otherwise.
function M.of_file(meta)
  local name = meta["general.architecture"]
  if by_name[name] then return by_name[name] end
  return nil, ("the architecture '%s' is not read; those that are: %s"):format(tostring(name), known())
end

-- Keys of a family's metadata that are read, and those that change nothing: training lengths, converters' notes.
local DECLARED <const> = {}
for word in ([[block_count context_length embedding_length feed_forward_length attention.head_count attention.head_count_kv
  attention.key_length attention.value_length attention.layer_norm_rms_epsilon attention.layer_norm_epsilon rope.dimension_count
  rope.freq_base rope.scaling.type rope.scaling.factor rope.scaling.original_context_length rope.scaling.finetuned vocab_size
  rope.scale_linear tensor_data_layout expert_count]]):gmatch "%S+" do DECLARED[word] = true end

-- The values of further keys for which accel's computation is correct, by llama.cpp's defaults. Of a key that is not among these 0 and
-- false are the values that turn something off.
local NEUTRAL <const> = { ["attention.causal"] = true, ["rope.scaling.attn_factor"] = 1, ["rope.scaling.yarn_attn_factor"] = 1 }

--- The first key of a file's metadata that requires an unsupported computation, with its value, or nil.
---@param family {name: string, declared: table<string, boolean>?, part: boolean?}
---@param meta table<string, any>
---@return string?
function M.unread(family, meta)
  local function key(name) return meta[family.name .. "." .. name] end
  local heads, width, prefix = key "attention.head_count", key "embedding_length", family.name .. "."
  local head_dim = key "attention.key_length" or type(heads) == "number" and type(width) == "number" and heads > 0 and width // heads
  for name, value in accel.pairs(meta) do
    local own = name:sub(1, #prefix) == prefix and name:sub(#prefix + 1) or nil
    local fits = not own or DECLARED[own] or (family.declared or DECLARED)[own] or value == 0 or value == false
    if own and NEUTRAL[own] ~= nil then fits = value == NEUTRAL[own] end
    if family.name == "gpt2" and own == "attention.head_count_kv" then fits = value == heads end
    if family.name == "gpt2" and own == "attention.key_length" then fits = type(heads) == "number" and value * heads == width end
    if head_dim and (own == "attention.value_length" or own == "rope.dimension_count" and not family.part) then fits = value == head_dim end
    if not fits then return ("%s = %s is not supported"):format(name, type(value) == "table" and "a list" or tostring(value)) end
  end
end

return M
