--- How a run takes itself up again: accel-run --resume (ACCEL_RESUME) has the state loaded as soon as all objects that it is of
--- are prepared, and SIGTERM or SIGUSR1 has it saved and the program ended with status 75, which asks to be started again.
--- Restarts of --max-restarts have ACCEL_RESUME=restart: they load checkpoints of this run only. Each Accelerator has one. It
--- is armed if --resume or automatic_checkpoint_naming gives the folder of checkpoints.
---
--- Signals are served between two batches of the loader that trains: there the update is complete, its schedule has
--- advanced, and the script has done all that it does in a round of its loop. All ranks learn of a signal at the same
--- step (accel.interrupted), so that they stop at the same batch.
local accel = require "accel"
local ckpt_content = require "accel.accelerator.checkpoint_content"
local class = require "accel.util.class"
local dist = require "accel.dist"
local folder = require "accel.accelerator.checkpoint_folder"
local refuse = require "accel.util.refuse"
local run = require "accel.ckpt.run"
local together = require("accel.accelerator.elastic").together
local terminal = require "accel.util.terminal"

local REQUEUE <const> = 75 -- EX_TEMPFAIL: accel-run passes it on, schedulers put the job back into their queue
local SIGNALS <const> = { [10] = "SIGUSR1", [15] = "SIGTERM" }

---@class accel.accelerator.Resume
---@field path string? the checkpoint that was loaded at the start
---@field found table? { path =, record = } of one that waits for its objects
local Resume = class("accel.accelerator.Resume")

--- The newest checkpoint of the project, under automatic names or under the script's names in project_dir. It is this run's, or if
--- this run has none and `mine` is not set, any run's.
local function newest(accelerator, mine)
  local project = folder.expand(accelerator.project_configuration.project_dir)
  local best, sequence, why, empty = nil, -1, nil, true
  for _, only in ipairs { true, mine or false } do
    for _, parent in ipairs(best and {} or { folder.checkpoints(accelerator), project }) do
      local path, reason, nothing = folder.newest(accelerator, parent, only)
      local c = path and require "accel.ckpt".open(path)
      if c then
        local manifest = c.manifest
        if manifest.state.objects and (manifest.sequence or 0) > sequence then best, sequence = path, manifest.sequence or 0 end
        c:close()
      end
      why, empty = not only and why or reason, empty and nothing
    end
  end
  if not best and empty then why = ("no checkpoint in %s yet"):format(folder.checkpoints(accelerator)) end
  return best, why
end

--- The checkpoint that --resume names: a folder with one, or with several. A restart uses a newer checkpoint that this run has
--- saved. Without one it does the same as the first start.
local function find(accelerator, wanted)
  if wanted == "restart" then
    local path = newest(accelerator, true)
    return path, not path and "this run has not saved a checkpoint yet" or nil
  end
  if wanted == "auto" then return newest(accelerator) end
  local path = folder.expand(wanted)
  if (math.tointeger(os.getenv "TORCHELASTIC_RESTART_COUNT") or 0) > 0 and folder.checkpoints(accelerator) then
    local newer = newest(accelerator, run.handed_down() ~= nil)
    if newer then return newer end
  end
  local c, why, code = require "accel.ckpt".open(path)
  if c then
    c:close()
    return path
  end
  if code ~= "not_found" then return nil, why end
  local inside = folder.newest(accelerator, path)
  if inside then return inside end
  local there = require "lfs".attributes(path, "mode")
  return nil, (there and "%s is not a checkpoint and contains none" or "%s does not exist; expected the folder of a checkpoint"):format(path)
end

local function look(self, wanted)
  local accelerator = self.accelerator
  local found = together(accelerator, require "accel.ckpt.write".of_first, accelerator, "--resume", function()
    local path, why = find(accelerator, wanted)
    if not path then return { why = why or "there is no checkpoint" } end
    local c = assert(require "accel.ckpt".open(path))
    local record = c.manifest.state
    c:close()
    return { path = path, record = record }
  end)
  if found.path then
    self.found = found
  elseif wanted ~= "auto" and wanted ~= "restart" then
    refuse("accel-run --resume %s: %s", wanted, found.why)
  elseif accelerator.is_main_process then
    io.stderr:write(wanted == "auto" and terminal.format("accel: --resume auto: %s; starting from scratch\n", found.why)
      or terminal.format("accel: restart: %s; starting from scratch\n", found.why))
  end
end

local taken -- the one that took --resume: the last Accelerator's

--- The reason why --resume has loaded nothing by the end of the script, for accel-run. nil: a state was loaded, or
--- there was none.
---@return string?
function Resume.unused()
  if not taken then return "the script made no accel.Accelerator that looks for checkpoints" end
  local found = taken.found
  return found and ("%s was not loaded, since these were never prepared or registered: %s"):format(found.path,
    table.concat(require "accel.accelerator.checkpoint_load".absent(found.record, taken.accelerator), ", ")) or nil
end

---@param accelerator accel.Accelerator
function Resume:init(accelerator)
  self.accelerator, self.moved = accelerator, false
  local wanted, project = os.getenv "ACCEL_RESUME", accelerator.project_configuration
  if wanted == "" then wanted = nil end
  local restarted = (math.tointeger(os.getenv "TORCHELASTIC_RESTART_COUNT") or 0) > 0
  if project.project_dir == nil then
    if wanted == "restart" then return end
    if wanted == "auto" and not restarted then
      refuse "accel-run --resume auto looks in project_dir/checkpoints; give accel.Accelerator a project_dir"
    end
    if wanted == nil or wanted == "auto" then return end
  elseif not wanted and not project.automatic_checkpoint_naming then
    return
  end
  accelerator.gradient_state.resume = self
  self.armed = project.project_dir ~= nil
  if self.armed and accel.on_interrupt "requeue" == "flag" then -- the script serves signals itself
    accel.on_interrupt "flag"
    self.armed = false
  end
  if wanted then
    taken = self
    look(self, wanted)
  end
end

-- ---- loading ----

--- Loads the checkpoint once all objects that it is of are there.
function Resume:objects_came()
  local found = self.found
  if not found or #require "accel.accelerator.checkpoint_load".absent(found.record, self.accelerator) > 0 then return end
  self.found = nil
  together(self.accelerator, self.accelerator._load, self.accelerator, found.path)
  self.path, self.moved = found.path, false
  if self.accelerator.is_main_process then
    io.stderr:write(terminal.format("accel: resumed from %s: step %d, epoch %d\n", found.path, found.record.step,
      found.record.epoch))
  end
end

--- The checkpoint that --resume has already loaded, so that load_state(dir) can skip it. nil otherwise. Once only: a script that asks
--- again, or that has saved meanwhile, wants the state of the file.
---@param dir string?
---@return string?
function Resume:loaded_already(dir)
  if not self.path or self.moved then return nil end
  self.moved = true
  if dir ~= nil and folder.expand(dir) ~= self.path then
    self.accelerator:_warn(("load_state: accel-run --resume has loaded %s; %s is not loaded"):format(self.path, dir))
  end
  return self.path
end

--- The script loads a state by itself.
function Resume:explicit() self.found = nil end

-- ---- signals ----

--- A backward: the loop that is under way is one that trains.
function Resume:trains()
  self.moved = true
  if self.armed then self.training = self.accelerator.gradient_state.active_dataloader end
end

--- The signal to save and stop, as known to all ranks, or nil.
local function asked()
  if accel.step_count() == 0 then return nil end
  local on, signal = accel.interrupted()
  local number = on and SIGNALS[signal] and signal or 0
  if dist.get_num_nodes() > 1 then -- ranks of one machine agree without a message
    local t = accel.tensor({ number }, { dtype = "i64", device = "cpu" })
    dist.all_reduce(t, "max")
    number = t:item()
  end
  return number > 0 and number or nil
end

local function stop(self, signal)
  local accelerator = self.accelerator
  local restore = require "accel.accelerator.elastic_saves".remember(accelerator)
  local path = together(accelerator, function()
    restore() -- when it is made again
    return accelerator:_save(nil, { asynchronous = false, format = "accel" }, true)
  end)
  if accelerator.is_main_process then
    io.stderr:write(terminal.format("accel: %s: stopped at step %d, saved in %s; status %d asks for a restart with --resume auto\n",
      SIGNALS[signal], ckpt_content.step(accelerator), path, REQUEUE))
  end
  accelerator:end_training()
  os.exit(REQUEUE, true)
end

--- Before a prepared loader hands out a batch.
---@param loader accel.accelerator.DataLoader
---@param first boolean of a pass
function Resume:before_batch(loader, first)
  if first and self.found then
    refuse("%s cannot be resumed: the first pass begins, and of its objects these were not prepared or registered: %s",
      self.found.path, table.concat(require "accel.accelerator.checkpoint_load".absent(self.found.record,
      self.accelerator), ", "))
  end
  if self.training ~= loader then return end
  local signal = asked()
  if signal then stop(self, signal) end
end

return Resume
