--- Writing and verifying a checkpoint on all ranks of an Accelerator: the part of each rank, the messages between them,
--- and the progress bar of the main process. Used by checkpoint.lua.
local accel = require "accel"
local dist = require "accel.dist"
local raise = require "accel.util.raise"
local verdict = require "accel.dist.verdict"
local open_read = require("accel.file.core").open_read

local M = {}

local LOOK <const> = 0.05 -- seconds between two looks at a save

--- This rank's part of a checkpoint, the number of parts, and the rank of part 0. All ranks write one checkpoint, or
--- with save_on_each_node the ranks of each machine write their own.
---@param accelerator accel.Accelerator
---@return integer part, integer parts, integer first
function M.parts(accelerator)
  local rank = accelerator.process_index
  if not accelerator.project_configuration.save_on_each_node then return rank, accelerator.num_processes, 0 end
  local part = accelerator.local_process_index
  return part, dist.get_local_world_size(), rank - part
end

--- Whether this process decides on the folder of a checkpoint and removes old ones: the main process, or with
--- save_on_each_node the first of each machine.
---@param accelerator accel.Accelerator
---@return boolean
function M.decides(accelerator)
  local _, _, first = M.parts(accelerator)
  return accelerator.process_index == first
end

--- The result of fn on the deciding process, sent to all processes it decides for.
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
---@param opts {replace: boolean, after: integer, number: integer?} number: at the end of path, which may become a greater one
---@return table save
---@return string path with the number that it has now
---@return integer? number
function M.create(accelerator, path, part, parts, first, opts)
  local ckpt, number, save = require "accel.ckpt", opts.number, nil
  local function named(n) return n == opts.number and path or (path:gsub("%d+$", ("%d"):format(n))) end
  local ok, why = pcall(verdict, accelerator, "save_state", function()
    if part > 0 then return end
    local message, code
    repeat -- "state": another run has taken the name since this one looked
      if code then number = number + 1 end
      save, message, code = ckpt.create(named(number), { part = 0, parts = parts, replace = opts.replace, after = opts.after })
    until save or not number or code ~= "state"
    made(save, message)
  end)
  if ok and accelerator.num_processes > 1 then
    local made_by = dist.all_gather_object { save and save.folder or false, number }
    number = made_by[first + 1][2]
    ok, why = pcall(verdict, accelerator, "save_state", function()
      if part > 0 then
        save = made(ckpt.create(named(number), { part = part, parts = parts, folder = made_by[first + 1][1], replace = opts.replace }))
      end
    end)
  end
  if ok then return save, named(number), number end
  if save then save:abort() end
  error(why, 0)
end

--- A file that a hook wrote into the folder, as a file of the checkpoint.
---@param save table
---@param name string
function M.adopt(save, name)
  local path = save.folder .. "/" .. name
  local file, why = open_read(path)
  if not file then raise("save_state: the file of a hook cannot be read: %s", why) end
  local bytes = file:read "a"
  file:close()
  local ok, message = os.remove(path)
  if not ok then raise("save_state: the file of a hook: %s", message) end
  save:add_bytes(name, bytes)
end

--- A progress bar on the main process for work longer than a second, on a terminal.
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
    if code ~= "timeout" or save.over then break end -- a save can fail with this code as well
    bar.update(save:progress())
    accel.interrupted() -- marks the signal as known to the script, so that it does not stop the program inside this call
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
