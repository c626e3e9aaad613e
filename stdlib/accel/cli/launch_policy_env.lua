--- Which variables of the environment a launch policy may set. A policy is untrusted (accel.config.sandbox): a variable such as
--- LD_PRELOAD, LUA_INIT or ACCEL_COMPILE_CC would run its code outside of the sandbox. Allowed are names that cannot name a program, a
--- library or a file, and those that the user allows by --policy_env. Called by launch_policy.lua.
local accel = require "accel"

local M = {}

local ALLOWED <const> = {}
for name in ([[
  CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING CUDA_VISIBLE_DEVICES CUBLAS_WORKSPACE_CONFIG
  OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OMP_SCHEDULE OMP_WAIT_POLICY MKL_NUM_THREADS OPENBLAS_NUM_THREADS
  NCCL_ALGO NCCL_BUFFSIZE NCCL_CROSS_NIC NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_IB_DISABLE NCCL_IB_HCA NCCL_IB_TIMEOUT NCCL_MAX_NCHANNELS
  NCCL_MIN_NCHANNELS NCCL_NET_GDR_LEVEL NCCL_NTHREADS NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_PROTO NCCL_SHM_DISABLE
  NCCL_SOCKET_IFNAME WANDB_MODE WANDB_PROJECT]]):gmatch "%S+" do ALLOWED[name] = true end

--- Parameters of accel that are numbers, switches or one of some words. Whether machines prove who they are is the user's to say.
local function plain_parameter(name)
  if name == "ACCEL_INSECURE" then return false end
  for _, p in ipairs((accel.params())) do
    if p.name == name then return p.type ~= "string" or p.allowed ~= nil or name == "ACCEL_DEVICE" end
  end
  return false
end

--- Raises for a variable that a policy may not set.
---@param path string of the policy
---@param env table<string, any> the planned variables
---@param own? string names that the user allows, with commas between them
---@param refuse fun(fmt: string, ...: any)
function M.check(path, env, own, refuse)
  local allowed = {}
  for name in (own or ""):gmatch "[^,%s]+" do allowed[name] = true end
  for name, value in accel.pairs(env) do
    if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" then refuse("%s: env: '%s' is not the name of a variable", path, tostring(name)) end
    if type(value) == "table" then refuse("%s: env.%s must be a string or a number, got a table", path, name) end
    if not (ALLOWED[name] or allowed[name] or name:find "^ACCELERATE_" or plain_parameter(name)) then
      refuse("%s: env.%s is not a variable that a policy may set; allow it with --policy_env %s, or plan a script argument in args", path, name,
        name)
    end
  end
end

return M
