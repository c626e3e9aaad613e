--- Homes of parameters of a model that is created in parts (accel.deepspeed.zero): each goes to host memory or to a file as soon as it
--- has its first values, so that memory holds one module. Units of a sharded model take the values over, and use the same host memory and
--- file for their own parts, so that room is needed once.
local accel = require "accel"
local core = require "accel.offload.core"
local raise = require "accel.util.raise"
local Tiers = require "accel.offload.tiers"

local M = {}

local unscoped = accel.unscoped
local UNDER_WAY <const> = 2 -- writes whose memory is still held

---@class accel.offload.Creation
---@field tier "host"|"file"
local Creation = {}
Creation.__index = Creation

-- By tier and folder. Freed when no parameter and no model has its home there.
local made = setmetatable({}, { __mode = "v" })

local function key_of(tier, folder, phantom)
  return ("%s %s %s"):format(tier, tier == "file" and folder or "", phantom and "phantom" or "")
end

--- An unnamed file in a folder. Its errors name the caller.
---@param who string
---@param what string
---@param folder string?
---@param phantom boolean? of the meta device: no file is made
---@param there boolean? the folder is not made
---@return any store of accel.offload.core
function M.file_in(who, what, folder, phantom, there)
  if type(folder) ~= "string" then raise("%s: %s on file needs a folder: set one for its files", who, what) end
  if phantom then return core.phantom "file" end
  if not there then
    local fine, message = accel.makedirs(folder)
    if not fine then raise("%s: %s", who, message) end
  end
  local own, why = accel.mkdtemp(folder .. "/accel-") -- ranks may share the folder
  if not own then raise("%s: %s", who, why) end
  local store, cause = core.create(own .. "/" .. what, 0, false)
  os.remove(own) -- empty: the file has no name
  if not store then raise("%s: %s", who, cause) end
  return store
end

--- The tier of parameters created from now on.
---@param who string
---@param tier "host"|"file"
---@param folder string?
---@param phantom boolean?
---@return accel.offload.Creation
function M.at(who, tier, folder, phantom)
  local key = key_of(tier, folder, phantom)
  local it = made[key]
  if not it then
    it = setmetatable({ tier = tier, tiers = Tiers { phantom = phantom }, leaving = {} }, Creation)
    it.store = tier == "file" and M.file_in(who, "parameters", folder, phantom) or it.tiers:host_store()
    made[key] = it
  end
  return it
end

--- The store that parameters were created in, for units that take them over, or nil.
---@param tier "host"|"file"
---@param folder string?
---@param phantom boolean?
function M.store(tier, folder, phantom)
  local it = made[key_of(tier, folder, phantom)]
  return it and it.store
end

--- Memory that is contiguous and on the CPU, with t's values.
function M.in_memory(t)
  if core.tier(t) then t = t + 0 end
  return (t.device ~= "cpu" and t.device ~= "meta" and t:to "cpu" or t):contiguous()
end

--- The home of a flat tensor, which gets t's values, without waiting.
---@param t accel.Tensor
---@return accel.Tensor
function Creation:put(t)
  if self.tier == "host" then
    return unscoped(function() return core.memory(self.store, { t:numel() }, t.dtype):copy_(t) end)
  end
  local home = self.tiers:in_file(t.device, self.store, { t:numel() }, t.dtype)
  self:write(home, t)
  return home
end

--- The home gets t's values.
function Creation:write(home, t)
  if self.tier == "host" then
    home:copy_(t)
    return
  end
  while #self.leaving >= UNDER_WAY do table.remove(self.leaving, 1):wait() end
  self.leaving[#self.leaving + 1] = core.move(true, home, 0, M.in_memory(t))
end

--- Copies the home's content to `into`, flat and of the same length.
---@param home accel.Tensor
---@param into accel.Tensor
function Creation:read(home, into)
  if self.tier == "host" then
    into:copy_(home)
    return
  end
  self:settle()
  local straight = (into.device == "cpu" or into.device == "meta") and into:is_contiguous()
  local landing = straight and into or unscoped(core.pages, { into:numel() }, into.dtype)
  core.move(false, home, 0, landing):wait()
  if straight then return end
  into:copy_(landing)
  landing:release()
end

--- Waits for pending writes. An error is raised once.
function Creation:settle()
  while #self.leaving > 0 do table.remove(self.leaving, 1):wait() end
end

return M
