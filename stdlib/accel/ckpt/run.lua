--- The run of this process, as checkpoints name it. One run is one start of a job: all its ranks, all Accelerators of a process, and
--- ranks that accel-run starts anew after a failure (--max-restarts hands ACCEL_RUN_ID down). A run that loads a checkpoint continues
--- the run that wrote it. It may then remove that run's oldest checkpoints, and never removes others. Used by accel.ckpt and by the
--- Accelerator.
local core = require "accel.ckpt.core"

local M = {}

local MANY <const> = 64 -- runs of a chain of restarts that a manifest lists. Older ones have no checkpoints left

--- State of this process (a Lua state): its run name, made at the first use; the runs that it has taken over, the latest first;
--- the sequence of its last checkpoint; whether it has loaded a state; the folders that it has entered.
local own, continued, last, loaded, entered = nil, {}, 0, false, {}

--- The name that a launcher handed down, nil without one. A program that a rank starts by itself inherits the variable and is not a rank.
---@return string?
function M.handed_down()
  local given = os.getenv "ACCEL_RUN_ID"
  return given and given ~= "" and os.getenv "ACCEL_WORLD" ~= "none" and given or nil
end

--- The name of this run.
---@return string
function M.id()
  own = own or M.handed_down() or core.new_id()
  return own
end

--- The runs that this one continues, the latest first: list of names, which the caller must not change.
---@return string[]
function M.continues() return continued end

--- This run takes over a state: a checkpoint's, with its manifest, or another program's. A checkpoint of an earlier release names no
--- run: it is of the run "".
---@param manifest? {run: string?, continues: string[]?}
function M.continue(manifest)
  loaded = true
  if not manifest then return end
  local list, seen = {}, { [M.id()] = true }
  local function add(name)
    if not seen[name] and #list < MANY then
      seen[name], list[#list + 1] = true, name
    end
  end
  add(manifest.run or "")
  for _, name in ipairs(manifest.continues or {}) do add(name) end
  for _, name in ipairs(continued) do add(name) end
  continued = list
end

--- Whether this run has taken over a state.
---@return boolean
function M.has_loaded() return loaded end

--- This run writes into a folder that held no checkpoints of others when it began to. Whoever comes later must make room.
---@param folder string
function M.enter(folder) entered[folder] = true end

---@param folder string
---@return boolean
function M.has_entered(folder) return entered[folder] == true end

--- This run and those that it continues.
---@return string[]
function M.mine() return { M.id(), table.unpack(continued) } end

--- Whether a checkpoint is of this run, or of one that it continues.
---@param name string? of its manifest
---@return boolean
function M.is_mine(name)
  if name == M.id() then return true end
  for _, other in ipairs(continued) do
    if name == other then return true end
  end
  return false
end

--- The sequence of the last checkpoint that this process has committed, 0 before. With `sequence`: sets it.
---@param sequence? integer
---@return integer
function M.last(sequence)
  if sequence and sequence > last then last = sequence end
  return last
end

return M
