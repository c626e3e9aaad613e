--- accel.load of a folder: a checkpoint of torch.distributed.checkpoint in either of its formats. Called by accel.load.
local accel = require "accel.core"
local open_sharded = require "accel.util.open_sharded"
local ordered = require "accel.util.ordered"

---@param dir string
---@param device accel.Device
return function(dir, device)
  local names, message, code = accel.listdir(dir)
  if not names then return nil, message, code end
  for _, name in ipairs(names) do
    if name == ".metadata" then return require "accel.util.distcp" (dir, device) end
  end
  local files
  files, message, code = open_sharded(dir)
  if not files then
    if code == "not_found" then message = message .. ", and no .metadata: it is not a checkpoint that accel.load reads" end
    return nil, message, code
  end
  local _ <close> = files
  local state = ordered()
  for _, name in ipairs(files:keys()) do
    local t, why, kind = accel.device(device, files.get, files, name)
    if not t then return nil, why, kind end
    state[name] = t
  end
  return state
end
