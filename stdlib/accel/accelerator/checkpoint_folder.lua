--- Where checkpoints of an Accelerator lie: their names, what automatic naming makes of them, the newest one. Only the main
--- process looks; the others are told. Used by checkpoint.lua and resume.lua.
local accel = require "accel"
local check = require "accel.util.check"
local raise = require "accel.util.raise"

local M = {}

--- A path as a shell has it: ~ is the home.
---@param path string
---@return string
function M.expand(path)
  local home = os.getenv "HOME"
  if home and (path == "~" or path:sub(1, 2) == "~/") then path = home .. path:sub(2) end
  return #path > 1 and (path:gsub("/+$", "")) or path
end

--- What stands before the last name of a path.
---@param path string
---@return string
function M.parent(path) return path:match "^(.*)/[^/]*$" or "." end

--- The folder of the checkpoints that are named automatically; nil without a project_dir.
---@param accelerator accel.Accelerator
---@return string?
function M.checkpoints(accelerator)
  local project = accelerator.project_configuration.project_dir
  return project and M.expand(project) .. "/checkpoints" or nil
end

--- The greatest number of a checkpoint_<number> in a folder, -1 without any: folders that do not verify count, too.
---@param parent string
---@return integer
function M.greatest(parent)
  local most = -1
  for _, name in ipairs(accel.listdir(parent) or {}) do
    local n = math.tointeger(tonumber(name:match "^checkpoint_(%d+)$"))
    if n and n > most then most = n end
  end
  return most
end

local function is_there(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

--- The folder that a state is saved to, and whether it is named automatically: what is there already is then no
--- checkpoint to be replaced.
---@param accelerator accel.Accelerator
---@param given string?
---@param always? boolean name it automatically in any case
---@return string path
---@return boolean automatic
function M.to_save(accelerator, given, always)
  local project = accelerator.project_configuration
  if not project.automatic_checkpoint_naming and not always then
    if given == nil then
      raise "save_state: which folder? Give one, or ProjectConfiguration { automatic_checkpoint_naming = true }"
    end
    local path = M.expand(given)
    local names = accel.listdir(path)
    if is_there(path) and (not names or #names > 0 and not is_there(path .. "/MANIFEST.json")) then
      raise("save_state: %s is there already, and is no checkpoint; give a folder of its own", path)
    end
    return path, false
  end
  local parent = M.checkpoints(accelerator)
  if not parent then
    raise "save_state: automatic_checkpoint_naming needs a project_dir: accel.Accelerator { project_dir = ... }"
  end
  local path = ("%s/checkpoint_%d"):format(parent, project.iteration)
  if is_there(path) then
    raise("save_state: %s exists already; load_state() goes on behind it, or set "
      .. "accelerator.project_configuration.iteration = %d", path, M.greatest(parent) + 1)
  end
  return path, true
end

--- The newest checkpoint in a folder whose every byte is as it was written; nil, and why, without one. Those that are
--- passed over are named with what is wrong with them.
---@param accelerator accel.Accelerator
---@param parent string
---@return string? path
---@return string? why
function M.newest(accelerator, parent)
  local ckpt = require "accel.ckpt"
  local list, why = ckpt.scan(parent)
  if not list then return nil, why end
  for i = #list, 1, -1 do
    local entry = list[i]
    local ok, reason = entry.status == "ok", entry.reason
    if ok then
      local c, message = ckpt.open(entry.path)
      ok, reason = c ~= nil, message
      if c then
        ok, reason = c:verify()
        c:close()
      end
      if ok then
        accelerator._checkpointing.verified = entry.path
        return entry.path
      end
    end
    if entry.status ~= "foreign" then
      accelerator:_warn(("%s is passed over: %s"):format(entry.path, (reason:gsub("^" .. entry.path:gsub("%p", "%%%0")
        .. ": ", ""))))
    end
  end
  return nil, parent .. " has no whole checkpoint"
end

--- The folder that a state is loaded from.
---@param accelerator accel.Accelerator
---@param given string?
---@return string
function M.to_load(accelerator, given)
  if given ~= nil then
    if type(given) ~= "string" or given == "" then
      raise("load_state: the folder must be a string, got %s", check.shown(given))
    end
    local path = M.expand(given)
    if not accel.listdir(path) then raise("load_state: %s is no folder", path) end
    return path
  end
  if not accelerator.project_configuration.automatic_checkpoint_naming then
    raise "load_state: which folder? Give one, or ProjectConfiguration { automatic_checkpoint_naming = true }"
  end
  local parent = M.checkpoints(accelerator)
  if not parent then raise "load_state: automatic_checkpoint_naming needs a project_dir" end
  local path, why = M.newest(accelerator, parent)
  if not path then raise("load_state: %s", why) end
  return path
end

--- The files below a folder, by their path in it.
---@param folder string
---@param prefix? string
---@param list? string[]
---@return string[]
function M.files(folder, prefix, list)
  prefix, list = prefix or "", list or {}
  for _, name in ipairs(accel.listdir(folder .. "/" .. prefix)) do
    local path = prefix .. name
    if accel.listdir(folder .. "/" .. path) then M.files(folder, path .. "/", list) else list[#list + 1] = path end
  end
  table.sort(list)
  return list
end

return M
