--- From the words of FullyShardedDataParallelPlugin and DeepSpeedPlugin to the tiers of accel.offload.training. Used by sharding.lua.
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = {}

local TIERS <const> = { cpu = "host", nvme = "file" }

--- FSDP's cpu_offload: parameters, gradients and optimizer states rest in host memory, and the step runs there.
---@param plugin accel.accelerator.FullyShardedDataParallelPlugin
---@return table? options of accel.offload.training
function M.fsdp(plugin)
  if not plugin.cpu_offload then return nil end
  return { parameters = "host", optimizer = "host" }
end

local function tier_of(who, key, device)
  if device == nil or device == "none" then return nil end
  if not TIERS[device] then raise("%s: %s is %s; expected 'none', 'cpu' or 'nvme'", who, key, check.shown(device)) end
  return TIERS[device]
end

local function folder_of(who, key, tier, path)
  if tier ~= "file" then return nil end
  if type(path) ~= "string" or path == "none" or path == "" then
    raise("%s: %s: 'nvme' needs a folder for its files: give %s", who, key:gsub("nvme_path", "device"), key)
  end
  return path
end

--- DeepSpeed's offload_optimizer and offload_param.
---@param plugin accel.accelerator.DeepSpeedPlugin
---@return table? options of accel.offload.training
function M.deepspeed(plugin)
  local who = "DeepSpeedPlugin"
  local parameters = tier_of(who, "offload_param_device", plugin.offload_param_device)
  local optimizer = tier_of(who, "offload_optimizer_device", plugin.offload_optimizer_device)
  if parameters and plugin.zero_stage ~= 3 then
    raise("%s: offload_param_device = '%s' needs zero_stage = 3, which shards parameters; this is stage %s", who,
      plugin.offload_param_device, tostring(plugin.zero_stage))
  end
  if optimizer and plugin.zero_stage == 0 then
    raise("%s: offload_optimizer_device = '%s' needs zero_stage 1, 2 or 3", who, plugin.offload_optimizer_device)
  end
  if not parameters and not optimizer then return nil end
  local zero = plugin.deepspeed_config.zero_optimization or {}
  if parameters and (zero.zero_quantized_weights or (tonumber(zero.zero_hpz_partition_size) or 1) > 1) then
    raise("%s: offload_param goes neither with zero_quantized_weights nor with zero_hpz_partition_size: parameters come from their tier", who)
  end
  local slice = zero.sub_group_size
  return {
    parameters = parameters, optimizer = optimizer or (parameters and "host"),
    parameters_folder = folder_of(who, "offload_param_nvme_path", parameters, plugin.offload_param_nvme_path),
    optimizer_folder = folder_of(who, "offload_optimizer_nvme_path", optimizer, plugin.offload_optimizer_nvme_path),
    slice = type(slice) == "number" and math.max(1024, math.min(4 << 20, math.floor(slice))) or nil,
  }
end

return M
