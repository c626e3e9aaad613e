-- accel.util.writer: one file, pieces, sets; what is given up leaves no trace; permissions; a kill between the renames of sharded weights.
--   accel-run tests/stdlib/util/writer_test.lua
local accel = require "accel"
local writer = require "accel.util.writer"

local dir = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/writer-"))
local function text(name)
  local file <close> = assert(io.open(dir .. "/" .. name, "rb"))
  return file:read "a"
end
local function names() return table.concat(accel.listdir(dir), " ") end
local function mode(name)
  local pipe <close> = assert(io.popen(("stat -c %%a '%s/%s'"):format(dir, name)))
  return pipe:read "l"
end
local function raises(want, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(want, 1, true), tostring(err))
end

assert(writer.file(dir .. "/a", "1") and text "a" == "1")
assert(writer.file(dir .. "/a", "2", { private = true }) and text "a" == "2" and mode "a" == "600")
assert(writer.file(dir .. "/a", "3") and mode "a" == "600") -- handed on
assert(select(3, writer.file("/nowhere/x", "1")) == "not_found")
raises("privat", writer.file, dir .. "/a", "1", { privat = true })

do -- pieces
  local file = assert(writer.create(dir .. "/b", { private = true }))
  assert(file:write("x", "y") and file:write "z")
  assert(accel.listdir(dir)[3] == nil or names():find "b%.tmp")
  assert(file:commit() and text "b" == "xyz" and mode "b" == "600")
  raises("the file is closed", file.write, file, "x")
  file:close()
  local left <close> = assert(writer.create(dir .. "/c"))
  assert(left:write "never")
end
assert(names() == "a b")

do -- sets
  local set = assert(writer.set(dir))
  assert(set:write("a", "new") and set:remove "b" and accel.save("w.safetensors", { w = accel.ones(2) }, nil, set))
  local file = assert(set:create "c")
  assert(file:write "c" and text "a" == "3")
  assert(select(3, set:commit()) == "state") -- c is open
  raises("closed", set.write, set, "d", "1")
  assert(names() == "a b" and text "a" == "3")
  local again <close> = assert(writer.set(dir, { private = true }))
  assert(again:write("a", "new") and again:remove "b" and accel.save("w.safetensors", { w = accel.ones(2) }, nil, again))
  assert(select(3, again:write("a", "twice")) == "invalid_argument")
  assert(again:commit() and text "a" == "new" and names() == "a w.safetensors" and mode "w.safetensors" == "600")
  raises("expected a set of files", accel.save, "w", {}, nil, {})
  raises("the set of files is closed", accel.save, "w", {}, nil, again)
end

do -- a set that is collected, and files of it that outlive it
  local set = assert(writer.set(dir))
  local file = assert(set:create "d")
  set:close()
  raises("the file is closed", file.write, file, "x")
  assert(writer.set(dir)):write("e", "1")
  collectgarbage() collectgarbage()
  assert(names() == "a w.safetensors")
end

-- a save that another program reads after any number of its renames was done: the index comes last
local files = require "accel.ckpt.model_files"
local function state(v) return { a = accel.ones(8) * v, b = accel.ones(8) * v, c = accel.ones(8) * v } end
local function save(v, size) return assert(files.save(dir .. "/m", state(v), { max_shard_size = size })) end
assert(table.concat(save(1, 32), " ") == "model-00001-of-00003.safetensors model-00002-of-00003.safetensors "
  .. "model-00003-of-00003.safetensors model.safetensors.index.json")
assert(save(2, 32)[1] == "model-b-00001-of-00003.safetensors" and #accel.listdir(dir .. "/m") == 4)
assert(save(3, 32)[1] == "model-00001-of-00003.safetensors" and #accel.listdir(dir .. "/m") == 4)
assert(save(4)[1] == "model.safetensors" and #accel.listdir(dir .. "/m") == 1)
assert(save(5, 32)[1] == "model-00001-of-00003.safetensors" and #accel.listdir(dir .. "/m") == 4)

do -- a configuration that would be invalid leaves the file as it was
  local write = require "accel.config.write"
  local fields = { distributed_type = "NO", num_processes = 1, mixed_precision = "no" }
  assert(write.file(fields, dir .. "/c.yaml"))
  local before = text "c.yaml"
  fields.mixed_precision = "bf17"
  local ok, why = write.file(fields, dir .. "/c.yaml")
  assert(not ok and why:find("c.yaml was not written", 1, true) and why:find("bf17", 1, true), why)
  assert(text "c.yaml" == before)
end
