-- What happens between the steps of a save, brought about on purpose: another run takes the number that this one is about to take, and a
-- rank that has run its hooks must not write before the main process has listed the files of hooks. On 1 and 2 ranks.
--   accel-run tests/stdlib/accelerator/checkpoint_write_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
if ranks.start { 1, 2 } then return end
local ckpt = require "accel.ckpt"
local folder = require "accel.accelerator.checkpoint_folder"

local root = accel.accelerator.broadcast_object_list {
  ranks.rank == 0 and accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/write-") or "" }[1]

--- An Accelerator with a model, in a folder of its own.
local function make(name)
  accel.accelerator.AcceleratorState._reset_state(true)
  local a = accel.Accelerator { project_config = accel.ProjectConfiguration { project_dir = root .. "/" .. name,
    automatic_checkpoint_naming = true, on_existing = "beside" } }
  a:prepare(accel.nn.Linear(2, 2))
  return a
end

-- Another run takes the number after this one has looked at the folder: its save is under way, or over, or was removed again.
local create <const> = ckpt.create
for _, how in ipairs { "under way", "over", "removed" } do
  local a, other = make("taken " .. how), nil
  function ckpt.create(path, o) -- luacheck: ignore 122
    if not other and o.part == 0 then
      other = assert(create(path, { part = 0, parts = 1, replace = false, after = 0 }))
      if how ~= "under way" then
        other:add_bytes("x", "y")
        other:start { state = {} }
        assert(other:wait())
      end
      local save, message, code = create(path, o)
      assert(not save and code == "state", message)
      if how == "removed" then assert(os.rename(path, root .. "/gone" .. ranks.size)) end
      return save, message, code
    end
    return create(path, o)
  end
  local path = a:save_state()
  ckpt.create = create -- luacheck: ignore 122
  if how == "under way" and other then other:abort() end
  a:wait_for_everyone()
  ranks.same({ path:match "[^/]*$", a.save_iteration }, { "checkpoint_1", 2 }, "the next number: " .. how)
  assert(assert(ckpt.open(path)):verify())
end

do -- a hook's file: the main process lists the folder late, and finds no file of another rank in it
  local a, files, listed = make "hooks", folder.files, 0
  a:register_save_state_pre_hook(function(_, _, to)
    if ranks.rank == 0 then assert(accel.write_file(to .. "/note.txt", "hello")) end
  end)
  function folder.files(path, ...) -- luacheck: ignore 122
    listed = listed + 1
    if listed == 2 and ranks.rank == 0 and ranks.size > 1 then
      local ends, there = accel.clock() + 0.5, #files(path)
      while accel.clock() < ends and #files(path) == there do end
    end
    return files(path, ...)
  end
  local path = a:save_state()
  folder.files = files -- luacheck: ignore 122
  a:wait_for_everyone()
  assert(listed >= 2)
  local c <close> = assert(ckpt.open(path))
  assert(c:verify() and c:bytes "note.txt" == "hello")
end
