--- The folders of an Accelerator's checkpoints: their names, automatic naming, the newest one, and whether the folder belongs to
--- another run. Only the main process reads the disk. The others receive its result. Used by accelerator.lua, checkpoint.lua,
--- optimizer.lua and resume.lua.
---
--- Numbers are names and nothing else: which checkpoint is newer is up to accel.ckpt, which run one is of to accel.ckpt.run.
local accel = require "accel"
local check = require "accel.util.check"
local raise = require "accel.util.raise"
local refuse = require "accel.util.refuse"
local run = require "accel.ckpt.run"
local lfs = require "lfs"

local M = {}

--- A path as a shell has it: ~ is the home.
---@param path string
---@return string
function M.expand(path)
  local home = os.getenv "HOME"
  if home and (path == "~" or path:sub(1, 2) == "~/") then path = home .. path:sub(2) end
  return #path > 1 and (path:gsub("/+$", "")) or path
end

--- The part of a path before its last name.
---@param path string
---@return string
function M.parent(path) return path:match "^(.*)/[^/]*$" or "." end

--- The folder of automatically named checkpoints, or nil without a project_dir.
---@param accelerator accel.Accelerator
---@return string?
function M.checkpoints(accelerator)
  local project = accelerator.project_configuration.project_dir
  return project and M.expand(project) .. "/checkpoints" or nil
end

--- The greatest number of a checkpoint_<number> in a folder, including damaged ones, or -1.
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

local function is_there(path) return lfs.attributes(path, "mode") ~= nil end

--- Whether a run may write among checkpoints of others, by one of the three ways that the error names.
local function may_go_on(accelerator)
  return run.has_loaded() or os.getenv "ACCEL_RESUME" == "auto"
    or accelerator.project_configuration.on_existing == "beside"
end

--- The error text if the folder of automatic names holds checkpoints of another run that this run does not continue. nil otherwise.
local function problem(accelerator)
  local project = accelerator.project_configuration
  local parent = project.automatic_checkpoint_naming and not may_go_on(accelerator) and M.checkpoints(accelerator)
  local other = parent and not run.has_entered(parent) and require "accel.ckpt".other_run(parent)
  return other and ("%s holds checkpoints of another run (%s); to continue that run call load_state() first or start with accel-run "
    .. '--resume auto, to keep both set ProjectConfiguration { on_existing = "beside" }'):format(parent, other:match "[^/]*$") or nil
end

--- When an Accelerator is made, on all ranks: looks whether the folder is another run's, which its first step will refuse. Only the
--- first step: evaluation reads such a folder, and a script may still load. It is asked for here, since ranks with uneven inputs do
--- not make their first step together.
---@param accelerator accel.Accelerator
function M.look(accelerator)
  local project, kept = accelerator.project_configuration, accelerator._checkpointing
  if not (project.automatic_checkpoint_naming and project.project_dir) or may_go_on(accelerator) then return end
  local writing, dist = require "accel.ckpt.write", require "accel.dist"
  local found = writing.decides(accelerator) and problem(accelerator) or false
  if accelerator.num_processes > 1 and dist.get_world_size() > 1 then
    for _, text in ipairs(dist.all_gather_object(found)) do found = found or text end
  end
  kept.entering = { text = found, parent = M.checkpoints(accelerator) }
end

--- The first step raises if the folder belonged to another run when the Accelerator was made, and this run has not loaded
--- since. Otherwise the run has entered the folder, and checkpoints that other runs write there later do not end it.
---@param accelerator accel.Accelerator
---@param who string
function M.enter(accelerator, who)
  local kept = accelerator._checkpointing
  local entering = kept.entering
  if entering.text and not may_go_on(accelerator) and entering.parent == M.checkpoints(accelerator) then
    refuse("%s: %s", who, entering.text)
  end
  kept.entering = nil
  run.enter(entering.parent)
end

--- The folder that a state is saved to, and the number in its name if it is named automatically. Such a name never replaces an
--- existing checkpoint.
---@param accelerator accel.Accelerator
---@param given string?
---@param always? boolean name it automatically in any case, even among checkpoints of other runs: the program is being stopped
---@return string path
---@return integer? number
function M.to_save(accelerator, given, always)
  local project, kept = accelerator.project_configuration, accelerator._checkpointing
  if not project.automatic_checkpoint_naming and not always then
    if given == nil then
      raise "save_state: which folder? Give one, or ProjectConfiguration { automatic_checkpoint_naming = true }"
    end
    local path = M.expand(given)
    local names = accel.listdir(path)
    if is_there(path) and (not names or #names > 0 and not is_there(path .. "/MANIFEST.json")) then
      raise("save_state: %s exists and is not a checkpoint; give another folder", path)
    end
    return path, nil
  end
  local parent = M.checkpoints(accelerator)
  if not parent then
    raise "save_state: automatic_checkpoint_naming needs a project_dir: accel.Accelerator { project_dir = ... }"
  end
  local others = not always and problem(accelerator)
  if others then refuse("save_state: %s", others) end
  run.enter(parent)
  local number, free = project.iteration, M.greatest(parent) + 1
  -- a number set by a script is taken unchanged. Otherwise it follows the greatest number in the folder, including names that
  -- others add meanwhile
  local function at(n) return ("%s/checkpoint_%d"):format(parent, n) end
  if kept.next == nil or kept.next == number then
    number = math.max(number, free)
    while is_there(at(number)) do number = number + 1 end
  end
  local path = at(number)
  if is_there(path) then
    refuse("save_state: %s exists already; load_state() continues after it, or set "
      .. "accelerator.project_configuration.iteration = %d", path, free)
  end
  return path, number
end

--- A sequence number that the next checkpoint must exceed: the greatest in both folders that --resume reads.
---@param accelerator accel.Accelerator
---@return integer
function M.after(accelerator)
  local project = accelerator.project_configuration.project_dir
  if not project then return 0 end
  local last = require "accel.ckpt.core".last_sequence
  return math.max(last(M.expand(project)), last(M.checkpoints(accelerator)))
end

local function verified(entry)
  local c <close>, message = require "accel.ckpt".open(entry.path)
  if not c then return nil, message end
  local ok, why = c:verify()
  return ok or nil, why
end

--- The newest undamaged checkpoint in a folder: of this run and the runs it continues, or of any run if there is none. nil and the
--- reason if there is no such checkpoint. Skipped ones are named with their faults.
---@param accelerator accel.Accelerator
---@param parent string
---@param mine? boolean of this run only
---@return string? path
---@return string? why
function M.newest(accelerator, parent, mine)
  local newest, told = require "accel.ckpt".newest, {}
  local function on_skip(entry)
    if told[entry.path] then return end
    told[entry.path] = true
    accelerator:_warn(("%s is passed over: %s"):format(entry.path, (entry.reason:gsub("^" .. entry.path:gsub("%p", "%%%0")
      .. ": ", ""))))
  end
  local path, why, code = newest(parent, {
    accept = function(entry)
      if not run.is_mine(entry.run) then return false end
      return verified(entry)
    end,
    on_skip = function(entry)
      if run.is_mine(entry.run) then on_skip(entry) end
    end,
  })
  if not path and not mine and code == "not_found" and accel.listdir(parent) then
    path = newest(parent, { accept = verified, on_skip = on_skip })
    why = parent .. " has no whole checkpoint"
  end
  if not path then return nil, why, code == "not_found" and next(told) == nil end
  accelerator._checkpointing.verified = path
  return path
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
    if not accel.listdir(path) then raise("load_state: %s is not a folder", path) end
    return path
  end
  if not accelerator.project_configuration.automatic_checkpoint_naming then
    raise "load_state: which folder? Give one, or ProjectConfiguration { automatic_checkpoint_naming = true }"
  end
  local parent = M.checkpoints(accelerator)
  if not parent then raise "load_state: automatic_checkpoint_naming needs a project_dir" end
  local path, why = M.newest(accelerator, parent)
  return path or require "accel.ckpt.accelerate".newest(parent) or raise("load_state: %s", why)
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
