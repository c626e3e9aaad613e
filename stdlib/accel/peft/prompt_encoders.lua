--- The parameters of virtual tokens by the type of the adapter, as PEFT names them: prompt_encoder.<adapter>. An encoder's rows() are the
--- embeddings of all virtual tokens, or with tasks those of each row of a batch. `flat`: files hold its parameters. Otherwise they hold the
--- rows. Used by prompt.lua and state.lua.
local accel = require "accel"
local Embedding = require "accel.nn.embedding"
local Linear = require "accel.nn.linear"
local Module = require "accel.nn.module"
local Parameter = require "accel.nn.parameter"
local Sequential = require "accel.nn.sequential"
local activation = require "accel.nn.activation"
local init = require "accel.nn.initialization"
local raise = require "accel.util.raise"

local M = {}

--- Embeddings [n, dim] as they are.
---@class accel.peft.PromptEmbedding : accel.nn.Module
local PromptEmbedding = Module:extend("accel.peft.PromptEmbedding")
PromptEmbedding.flat = true

function PromptEmbedding:init(n, dim, make) self.embedding = Embedding(n, dim, make) end

function PromptEmbedding:rows() return self.embedding.weight end

--- Names below the encoder and in files.
function PromptEmbedding:saved() -- luacheck: no self
  return { { "embedding.weight", "prompt_embeddings" } }
end

--- Embeddings through layers that learn: `layers` of embeddings [n, width] gives the rows.
---@class accel.peft.PromptNetwork : accel.nn.Module
local PromptNetwork = Module:extend("accel.peft.PromptNetwork")
PromptNetwork.flat = false

function PromptNetwork:init(n, width, make) self.embedding = Embedding(n, width, make) end

--- The parameters by their own names: checkpoints of training have them, files do not.
function PromptNetwork:saved()
  local out = {}
  for name in pairs(self:named_parameters()) do out[#out + 1] = { name, "prompt_encoder." .. name } end
  return out
end

function PromptNetwork:rows()
  local x = self.embedding.weight
  if self.transform then return self.transform(x) end
  if self.lstm_head then x = self.lstm_head(x:unsqueeze(1)):squeeze(1) end
  return self.mlp_head(x)
end

--- Embeddings that tasks share, times a low-rank matrix of each task.
---@class accel.peft.MultitaskEmbedding : accel.peft.PromptEmbedding
local Multitask = PromptEmbedding:extend("accel.peft.MultitaskEmbedding")

function Multitask:init(n, dim, make, config)
  PromptEmbedding.init(self, n, dim, make)
  local kind = { dtype = make.dtype, device = make.device }
  self.prefix_task_cols = Parameter(accel.zeros({ config.num_tasks, n, config.num_ranks }, kind))
  self.prefix_task_rows = Parameter(accel.zeros({ config.num_tasks, config.num_ranks, dim }, kind))
  if make.device ~= "meta" then
    init.normal_(self.prefix_task_cols, 0, 0.02)
    init.normal_(self.prefix_task_rows, 0, 0.02)
  end
end

function Multitask:saved() -- luacheck: no self
  return { { "prefix_task_cols", "prefix_task_cols" }, { "prefix_task_rows", "prefix_task_rows" }, { "embedding.weight", "prompt_embeddings" } }
end

--- Rows [batch, n, dim] of these tasks.
---@param tasks accel.Tensor [batch]
function Multitask:rows(tasks)
  if tasks == nil then raise "a model with a multitask prompt needs task_ids = a tensor [batch] among its options" end
  local columns, rows = self.prefix_task_cols:index_select(1, tasks), self.prefix_task_rows:index_select(1, tasks)
  return self.embedding.weight * accel.matmul(columns, rows)
end

--- Begins with the prompt of another adapter's file.
function Multitask:take(config)
  local state, why = accel.load(config.prompt_tuning_init_state_dict_path)
  if not state then raise("get_peft_model: prompt_tuning_init_state_dict_path: %s", why) end
  local how, task = config.prompt_tuning_init, config.prompt_tuning_init_task
  local function put(p, key, dim)
    local value = state[key] or raise("get_peft_model: %s has no '%s'", config.prompt_tuning_init_state_dict_path, key)
    if dim and how == "AVERAGE_SOURCE_TASKS" then value = value:mean(1, true)
    elseif dim then value = value:narrow(1, task + 1, 1) end
    p:detach():copy_(value)
  end
  put(self.embedding.weight, "prompt_embeddings")
  if how == "ONLY_SOURCE_SHARED" then return end
  put(self.prefix_task_cols, "prefix_task_cols", 1)
  put(self.prefix_task_rows, "prefix_task_rows", 1)
end

local function linear(from, to, make) return Linear(from, to, { dtype = make.dtype, device = make.device }) end

--- The encoder of a configuration whose sizes are complete.
---@param config table
---@param make {dtype: string, device: string}
---@return accel.nn.Module
function M.make(config, make)
  local dim, n = config.token_dim, config.num_virtual_tokens
  if config.peft_type == "PREFIX_TUNING" then
    local width = config.num_layers * 2 * dim
    local encoder
    if config.prefix_projection and not config._flat then
      encoder = PromptNetwork(n, dim, make)
      encoder.transform = Sequential(linear(dim, config.encoder_hidden_size, make), activation.Tanh(),
        linear(config.encoder_hidden_size, width, make))
    else
      encoder = PromptEmbedding(n, width, make)
    end
    if config.init_weights == "zero" and make.device ~= "meta" then
      local last = encoder.transform and encoder.transform[3]
      init.zeros_(last and last.weight or encoder.embedding.weight)
      if last then init.zeros_(last.bias) end
    end
    return encoder
  end
  n = n * config.num_transformer_submodules
  if config.peft_type == "MULTITASK_PROMPT_TUNING" then return Multitask(n, dim, make, config) end
  if config.peft_type ~= "P_TUNING" or config._flat then return PromptEmbedding(n, dim, make) end
  local encoder, hidden = PromptNetwork(n, dim, make), config.encoder_hidden_size
  if config.encoder_reparameterization_type == "LSTM" then
    encoder.lstm_head = require("accel.nn.rnn").LSTM(dim, hidden, { num_layers = config.encoder_num_layers, dropout = config.encoder_dropout,
      bidirectional = true, batch_first = true, dtype = make.dtype, device = make.device })
    encoder.mlp_head = Sequential(linear(2 * hidden, 2 * hidden, make), activation.ReLU(), linear(2 * hidden, dim, make))
  else
    encoder.mlp_head = Sequential(linear(dim, hidden, make), activation.ReLU(), linear(hidden, hidden, make), activation.ReLU(),
      linear(hidden, dim, make))
  end
  return encoder
end

return M
