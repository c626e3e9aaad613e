--- Writing and verifying a checkpoint on all ranks of an Accelerator: which part each of them is, what the parts tell each
--- other, and the progress that the main process shows. Used by checkpoint.lua.
local accel = require "accel"
local dist = require "accel.dist"
local raise = require "accel.util.raise"
local verdict = require "accel.accelerator.verdict"

local M = {}

local LOOK <const> = 0.05 -- seconds between two looks at a save

--- This rank's part of a checkpoint, how many there are, and the rank of part 0: all ranks write one, or with
--- save_on_each_node those of each machine one of their own.
---@param accelerator accel.Accelerator
---@return integer part, integer parts, integer first
function M.parts(accelerator)
  local rank = accelerator.process_index
  if not accelerator.project_configuration.save_on_each_node then return rank, accelerator.num_processes, 0 end
  local part = accelerator.local_process_index
  return part, dist.get_local_world_size(), rank - part
end

--- Whether this process is the one that decides where a checkpoint lies, and removes old ones: the main process, or with
--- save_on_each_node the first of each machine.
---@param accelerator accel.Accelerator
---@return boolean
function M.decides(accelerator)
  local _, _, first = M.parts(accelerator)
  return accelerator.process_index == first
end

--- What fn returns on the process that decides, on all that it decides for.
---@param accelerator accel.Accelerator
---@param who string
---@param fn fun(): any
---@return any
function M.of_first(accelerator, who, fn)
  local value = verdict(accelerator, who, function()
    if M.decides(accelerator) then return fn() end
  end)
  if accelerator.num_processes == 1 then return value end
  local _, _, first = M.parts(accelerator)
  return dist.all_gather_object({ value })[first + 1][1]
end

local function made(save, message)
  if not save then raise("save_state: %s", message) end
  return save
end

--- The save that all parts write, made by the first one.
---@param accelerator accel.Accelerator
---@param path string
---@param part integer
---@param parts integer
---@param first integer
---@param replace boolean
---@return table
function M.create(accelerator, path, part, parts, first, replace)
  local ckpt, save = require "accel.ckpt", nil
  local ok, why = pcall(verdict, accelerator, "save_state", function()
    if part == 0 then save = made(ckpt.create(path, { part = 0, parts = parts, replace = replace })) end
  end)
  if ok and accelerator.num_processes > 1 then
    local folders = dist.all_gather_object(save and save.folder or false)
    ok, why = pcall(verdict, accelerator, "save_state", function()
      if part > 0 then
        save = made(ckpt.create(path, { part = part, parts = parts, folder = folders[first + 1], replace = replace }))
      end
    end)
  end
  if ok then return save end
  if save then save:abort() end
  error(why, 0)
end

--- A file that a hook wrote into the folder, as a file of the checkpoint.
---@param save table
---@param name string
function M.adopt(save, name)
  local path = save.folder .. "/" .. name
  local file, why = io.open(path, "rb")
  if not file then raise("save_state: the file of a hook cannot be read: %s", why) end
  local bytes = file:read "a"
  file:close()
  local ok, message = os.remove(path)
  if not ok then raise("save_state: the file of a hook: %s", message) end
  save:add_bytes(name, bytes)
end

--- A bar on the main process for what takes longer than a second, where there is a terminal.
local function bar_of(accelerator, label)
  local Progress, terminal = require "accel.util.progress", require "accel.util.terminal"
  if not accelerator.is_main_process or not terminal.interactive(2) then
    return { update = function() end, finish = function() end }
  end
  local bar, start = nil, accel.clock()
  return {
    update = function(done, all)
      if not bar and accel.clock() - start < 1 then return end
      bar = bar or Progress { label = label, unit = "B" }
      if bar:due() then bar:update(all > 0 and done / all or 1, done) end
    end,
    finish = function()
      if bar then bar:finish() end
    end,
  }
end

--- Waits for a save. The first Ctrl-C lets it end, and is served by the next step.
---@param accelerator accel.Accelerator
---@param pending table
function M.wait(accelerator, pending)
  local save, bar <const> = pending.save, bar_of(accelerator, "save")
  local ok, message, code
  local _ <close> = setmetatable({}, { __close = function(_, failure)
    bar.finish()
    if failure ~= nil then save:abort() end
  end })
  while true do
    ok, message, code = save:wait(LOOK)
    if code ~= "timeout" or save.over then break end -- a save may fail with this code, too
    bar.update(save:progress())
    accel.interrupted() -- says that the script knows, so that it is not stopped inside of this
  end
  if not ok then raise("save_state: the checkpoint %s of step %d: %s", pending.path, pending.step, message) end
end

--- Compares every byte of a checkpoint with its checksums.
---@param accelerator accel.Accelerator
---@param c table an open checkpoint
function M.verify(accelerator, c)
  local bar <const> = bar_of(accelerator, "verify")
  local _ <close> = setmetatable({}, { __close = function() bar.finish() end })
  local ok, message = c:verify(bar.update)
  if not ok then raise("%s", message) end
end

return M
