--- Models, batches and losses that the tests of accel.parallel share: every family, small, with dropout everywhere.
local accel = require "accel"
local models = accel.models

local M = {}

M.names = { "bert", "gpt2", "llama", "mixtral", "t5", "vit" }

local VOCABULARY <const> = 33

--- A model with `layers` layers (of T5 as many in each stack) and dropout of rate p; the same parameters each time.
---@param name string
---@param layers integer
---@param p number
function M.model(name, layers, p)
  accel.manual_seed(7)
  local V = VOCABULARY
  local rotary = { vocab_size = V, hidden_size = 16, intermediate_size = 24, num_hidden_layers = layers, num_attention_heads = 4,
    num_key_value_heads = 4, max_position_embeddings = 16, attention_dropout = p }
  if name == "gpt2" then
    return models.GPT2 { vocab_size = V, n_positions = 16, n_embd = 16, n_layer = layers, n_head = 4, resid_pdrop = p,
      embd_pdrop = p, attn_pdrop = p }
  elseif name == "llama" then
    return models.Llama(rotary)
  elseif name == "mixtral" then
    rotary.num_local_experts, rotary.num_experts_per_tok = 4, 2
    rotary.output_router_logits, rotary.router_aux_loss_coef = true, 0.1
    return models.MixtralForCausalLM(rotary)
  elseif name == "bert" then
    return models.BertForMaskedLM { vocab_size = V, hidden_size = 16, intermediate_size = 24, num_hidden_layers = layers,
      num_attention_heads = 4, max_position_embeddings = 16, hidden_dropout_prob = p, attention_probs_dropout_prob = p }
  elseif name == "t5" then
    return models.T5ForConditionalGeneration { vocab_size = V, d_model = 16, d_kv = 4, d_ff = 24, num_layers = layers,
      num_heads = 4, dropout_rate = p }
  end
  return models.ViTForImageClassification { image_size = 8, patch_size = 4, hidden_size = 16, intermediate_size = 24,
    num_hidden_layers = layers, num_attention_heads = 4, hidden_dropout_prob = p, attention_probs_dropout_prob = p }
end

--- The arguments of a batch of 8 rows, packed.
---@param name string
---@param step integer
---@param model accel.nn.Module
function M.batch(name, step, model)
  local g = accel.Generator(step)
  if name == "vit" then
    return table.pack(accel.randn(8, 3, 8, 8, { generator = g }), {}, accel.randint(0, 2, { 8 }, { generator = g }))
  end
  local ids = accel.randint(0, VOCABULARY, { 8, 8 }, { generator = g })
  local mask = ids:ne(3):to "i64"
  if name == "bert" then return table.pack(ids, { attention_mask = mask }) end
  if name == "t5" then return table.pack(ids, { decoder_input_ids = model:shift_right(ids), attention_mask = mask }) end
  return table.pack(ids, { labels = ids })
end

--- The loss of what a model returned, given the arguments.
function M.loss(name)
  return function(out, x, _, labels)
    if name == "vit" then return accel.cross_entropy(out, labels) end
    if name == "bert" or name == "t5" then return accel.cross_entropy(out:reshape(-1, VOCABULARY), x:reshape(-1)) end
    return type(out) == "table" and out[1] or out
  end
end

--- Rows first .. first + n - 1 (from 1) of a batch.
function M.rows(args, first, n)
  local function cut(x)
    if accel.is_tensor(x) then return x:narrow(1, first, n) end
    if type(x) ~= "table" then return x end
    local out = {}
    for key, value in pairs(x) do out[key] = cut(value) end
    return out
  end
  local out = { n = args.n }
  for i = 1, args.n do out[i] = cut(args[i]) end
  return out
end

--- Losses of so many steps on one rank, in so many micro-batches. batch(name, step, model) and part(args, m) say what a step and a
--- micro-batch have, where that is not a batch of 8 rows and the m-th part of it.
---@return number[]
function M.alone(name, layers, p, steps, micros, batch, part_of)
  local model, loss_fn, losses = M.model(name, layers, p), M.loss(name), {}
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  for step = 1, steps do
    local args, total, n = (batch or M.batch)(name, step, model), 0, 8 // micros
    for m = 1, micros do
      local part = part_of and part_of(args, m) or M.rows(args, (m - 1) * n + 1, n)
      accel.micro_batch((m - 1) * n)
      local last = name == "vit" and 2 or part.n
      local out = table.pack(model(table.unpack(part, 1, last)))
      local loss = loss_fn(out.n == 1 and out[1] or out, table.unpack(part, 1, part.n)) / micros
      loss:backward()
      total = total + loss:item()
    end
    optimizer:step()
    optimizer:zero_grad()
    losses[step] = total
  end
  return losses
end

return M
