--- ParallelismConfig: the sizes of the mesh of ranks, and how its dimensions work (TorchTensorParallelConfig and its like).
local base = require "accel.accelerator.plugins.base"
local check = require "accel.util.check"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local M = {}

local none <const> = options.none
local ENV <const> = "PARALLELISM_CONFIG_"

--- Options of tensor parallelism: tp_plan, "auto" for the model's own or a table of module names and styles
--- (accel.parallel.parallelize_module). sequence_parallel: ranks hold parts of the sequence between the parallel layers.
--- enable_async_tp: gradients of inputs are summed over the ranks while gradients of weights are computed. Losses and gradients keep
--- their bits. tp_comm_overlap: forward's products are computed in parts, while other parts are gathered or summed.
--- example: accel.accelerator.TorchTensorParallelConfig({}).enable_async_tp --> false
---@class accel.accelerator.TorchTensorParallelConfig : accel.accelerator.Plugin
M.TorchTensorParallelConfig = base.extend("TorchTensorParallelConfig",
  { { "enable_async_tp", false }, { "tp_plan", none }, { "sequence_parallel", none }, { "tp_comm_overlap", none } })

--- How pipeline parallelism works, with the options of nn.parallel.PipelineParallel.
--- example: accel.accelerator.PipelineParallelConfig({}).schedule --> "1f1b"
---@class accel.accelerator.PipelineParallelConfig : accel.accelerator.Plugin
M.PipelineParallelConfig = base.extend("PipelineParallelConfig", {
  { "num_micro_batches", 1 }, { "schedule", "1f1b" }, { "virtual_stages", 1 }, { "split_points", none }, { "stage_layers", none },
  { "loss_fn", none }, { "pipeline_plan", none },
}, {
  schedule = function(who, name, value) return check.word(who, name, value, { "gpipe", "1f1b", "interleaved", "zero_bubble" }) end,
  num_micro_batches = check.positive, virtual_stages = check.positive,
})

--- How keys and values travel in context parallelism: "allgather" or "alltoall".
--- example: accel.accelerator.TorchContextParallelConfig({}).cp_comm_strategy --> "allgather"
---@class accel.accelerator.TorchContextParallelConfig : accel.accelerator.Plugin
M.TorchContextParallelConfig = base.extend("TorchContextParallelConfig",
  { { "cp_comm_strategy", "allgather", ENV .. "CP_COMM_STRATEGY", "text" } }, {
    cp_comm_strategy = function(who, name, value) return check.word(who, name, value, { "allgather", "alltoall" }) end,
  })

--- Options of sequence parallelism: the length of sequences if it is fixed, and the attention implementation.
--- example: accel.accelerator.DeepSpeedSequenceParallelConfig({}).sp_attn_implementation --> "sdpa"
---@class accel.accelerator.DeepSpeedSequenceParallelConfig : accel.accelerator.Plugin
local Sequence = base.extend("DeepSpeedSequenceParallelConfig", {
  { "sp_seq_length", none, ENV .. "SP_SEQ_LENGTH", "int" },
  { "sp_seq_length_is_variable", true, ENV .. "SP_SEQ_LENGTH_IS_VARIABLE", "bool" },
  { "sp_attn_implementation", "sdpa", ENV .. "SP_ATTN_IMPLEMENTATION", "text" },
})
M.DeepSpeedSequenceParallelConfig = Sequence

local ATTENTION <const> = { flash_attention_2 = true, flash_attention_3 = true, sdpa = true }

function Sequence:init(...)
  base.Plugin.init(self, ...)
  if not self.sp_seq_length_is_variable and self.sp_seq_length == nil then
    raise "DeepSpeedSequenceParallelConfig: sequences of one length (sp_seq_length_is_variable = false) need sp_seq_length"
  end
  local name = self.sp_attn_implementation
  if not ATTENTION[name] and not name:find("flash-attn", 1, true) then
    raise("DeepSpeedSequenceParallelConfig: sp_attn_implementation must be flash_attention_2, flash_attention_3 or sdpa, got '%s'", name)
  end
end

local SIZES <const> = { "dp_replicate_size", "dp_shard_size", "tp_size", "cp_size", "sp_size", "pp_size", "ep_size" }

--- Sizes of the dimensions pp, dp_replicate, dp_shard, cp, sp and tp of the mesh of ranks. Their product is the number of ranks. ep_size of
--- the ranks that read different data (dp_replicate, dp_shard, cp, sp) divide the experts of a mixture among them. Missing values come from
--- the environment (PARALLELISM_CONFIG_...), which a launch with parallelism_config sets.
--- example: accel.accelerator.ParallelismConfig({ dp_shard_size = 2, tp_size = 2 }).total_size --> 4
---@class accel.accelerator.ParallelismConfig : accel.accelerator.Plugin
---@field total_size integer ranks in all
---@field non_dp_size integer tp_size * cp_size * sp_size * pp_size
---@field data_parallel_size integer dp_replicate_size * dp_shard_size
local Parallelism = base.extend("ParallelismConfig", {
  { "dp_replicate_size", 1, ENV .. "DP_REPLICATE_SIZE", "int" }, { "dp_shard_size", 1, ENV .. "DP_SHARD_SIZE", "int" },
  { "tp_size", 1, ENV .. "TP_SIZE", "int" }, { "cp_size", 1, ENV .. "CP_SIZE", "int" },
  { "cp_backend", "torch", ENV .. "CP_BACKEND", "text" }, { "sp_size", 1, ENV .. "SP_SIZE", "int" },
  { "sp_backend", "deepspeed", ENV .. "SP_BACKEND", "text" },
  { "tp_handler", none }, { "cp_handler", none }, { "sp_handler", none }, { "pp_size", 1 }, { "pp_handler", none },
  { "ep_size", 1, ENV .. "EP_SIZE", "int" }, { "total_size", none }, { "non_dp_size", none }, { "data_parallel_size", none },
}, {
  cp_backend = function(who, name, value) return check.word(who, name, value, { "torch" }) end,
  sp_backend = function(who, name, value) return check.word(who, name, value, { "deepspeed" }) end,
})
M.ParallelismConfig = Parallelism

function Parallelism:init(...)
  base.Plugin.init(self, ...)
  local who = "ParallelismConfig"
  for _, key in ipairs(SIZES) do check.positive(who, key, self[key]) end
  if self.cp_size > 1 and self.sp_size > 1 then
    raise("%s: cp_size and sp_size are %d and %d; a sequence can be split in only one way", who, self.cp_size, self.sp_size)
  end
  if (self.tp_size > 1 or self.cp_size > 1) and self.dp_replicate_size > 1 and self.dp_shard_size == 1 then
    raise("%s: tp_size or cp_size above 1 with dp_replicate_size above 1 also needs dp_shard_size above 1", who)
  end
  local data = self.dp_replicate_size * self.dp_shard_size * self.cp_size * self.sp_size
  if data > 1 and data % self.ep_size ~= 0 then
    raise("%s: ep_size %d does not divide the %d ranks of dp_replicate_size, dp_shard_size, cp_size and sp_size, which divide the experts"
      .. " among them", who, self.ep_size, data)
  end
  if self.tp_size > 1 then self.tp_handler = self.tp_handler or M.TorchTensorParallelConfig {} end
  if self.cp_size > 1 then self.cp_handler = self.cp_handler or M.TorchContextParallelConfig {} end
  if self.sp_size > 1 then self.sp_handler = self.sp_handler or Sequence {} end
  if self.pp_size > 1 then self.pp_handler = self.pp_handler or M.PipelineParallelConfig {} end
  self:_multiply()
end

function Parallelism:_multiply()
  self.data_parallel_size = self.dp_replicate_size * self.dp_shard_size
  self.non_dp_size = self.tp_size * self.cp_size * self.sp_size * self.pp_size
  self.total_size = self.data_parallel_size * self.non_dp_size
  -- Accelerate's properties: which dimensions are in use, and the names of those that belong together
  local function over(...)
    local names = {}
    for _, name in ipairs { ... } do
      if self[name .. "_size"] > 1 then names[#names + 1] = name end
    end
    return names
  end
  for _, name in ipairs { "dp_replicate", "dp_shard", "tp", "cp", "sp" } do rawset(self, name .. "_enabled", self[name .. "_size"] > 1) end
  rawset(self, "active_mesh_dims", over("dp_replicate", "dp_shard", "cp", "sp", "tp"))
  rawset(self, "dp_dim_names", over("dp_replicate", "dp_shard"))
  rawset(self, "non_dp_dim_names", over("tp", "cp", "sp"))
  rawset(self, "dp_shard_cp_dim_names", over("dp_shard", "cp"))
  rawset(self, "dp_cp_dim_names", over("dp_replicate", "dp_shard", "cp"))
  rawset(self, "fsdp_dim_names", over("dp_replicate", "dp_shard", "cp"))
  rawset(self, "non_data_parallel_size", self.non_dp_size)
end

--- The sizes and handlers as a plain table for json.encode.
--- example: accel.ParallelismConfig({ tp_size = 2 }):to_json().tp_size --> 2
---@return table
function Parallelism:to_json()
  local out = {}
  for key, value in next, self:to_dict() do
    if type(value) == "table" then value = value.to_dict and value:to_dict() or value end
    if type(value) ~= "function" then out[key] = value end
  end
  return out
end

--- Nothing was asked for: the ranks are data-parallel.
function Parallelism:_replicate(num_processes)
  self.dp_replicate_size = num_processes
  self:_multiply()
end

--- Sizes above 1, for messages.
function Parallelism:_sizes()
  local list = {}
  for _, key in ipairs(SIZES) do
    if self[key] > 1 then list[#list + 1] = ("%s %d"):format(key, self[key]) end
  end
  return #list > 0 and table.concat(list, ", ") or "all 1"
end

require "accel.util.absent".members(Parallelism, "ParallelismConfig")

return M
