-- Options of accel.ckpt: each one changes a folder, what is read from it, or which folders stay; or raises (support/option_sweep.lua).
--   accel-run tests/options/ckpt_test.lua [NAME]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local sweep = require "option_sweep"
local ckpt = accel.ckpt
local s = sweep.folder "ckpt"

local root = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/ckpt-")
local n = 0
local function folder()
  n = n + 1
  return root .. "/" .. n
end
local tensor = accel.arange(6, { dtype = "f32" })
local function saved(path, opts)
  local save = assert(ckpt.create(path, opts))
  save:add_tensors("model.safetensors", { { name = "w", tensor = tensor } })
  save:start { state = { step = 1 } }
  assert(save:wait())
  return path
end
local function manifest(path)
  local reader <close> = assert(ckpt.open(path))
  local m = reader.manifest
  return { m.run, m.continues, m.sequence >= 1 << 55, m.parts, m.state }, reader:objects(), reader:tensors "model"
end
local function files(dir)
  local list = accel.listdir(dir)
  if list then table.sort(list) end
  return list
end

local function refused(expected, f, ...)
  local ok, why = pcall(f, ...)
  assert(not ok and tostring(why):find(expected, 1, true), ok and "no error: " .. expected or why)
end

-- ---- writing ----
local CKPT <const> = "tests/bindings/ckpt_test.lua"
s:recipe("accel.ckpt.create", {
  base = function() return { path = folder() } end,
  run = function(call, given)
    if given.replace then saved(given.path) end
    local save = assert(call())
    save:add_tensors("model.safetensors", { { name = "w", tensor = tensor } })
    save:start()
    assert(save:wait())
    local seen, objects, list = manifest(given.path)
    if not given.run then seen[1] = "own" end
    if not given.continues then seen[2] = nil end
    return seen, objects, list, given.replace -- a folder that is there raises without `replace`: below
  end,
  values = { replace = { true }, run = { "other" }, continues = { { "before" } }, after = { 1 << 55 }, part = { 3 }, parts = { 2 },
    folder = { "x" } },
  with = { continues = { run = "other" } },
  raises = { part = "part" },
  elsewhere = { parts = CKPT, folder = CKPT },
})
assert(not ckpt.create(saved(folder())) or error "a second save at one path must fail")
s:recipe("accel.ckpt.Save:add_tensors", {
  base = function() return { file = "model.safetensors", list = { { name = "w", tensor = tensor } } } end,
  run = function(call, given)
    local path = folder()
    local save = assert(ckpt.create(path))
    call(save)
    save:start()
    assert(save:wait())
    local reader <close> = assert(accel.open_safetensors(path .. "/model.safetensors"))
    return reader:keys(), reader:get(reader:keys()[1]), reader:metadata(), manifest(path)
  end,
  passes_on = true, -- the table is the file's metadata
  values = { metadata = { { a = "b" } } },
  elsewhere = { name = CKPT, tensor = CKPT, shape = CKPT, offsets = CKPT },
})
refused("unknown option 'offset'", function()
  local save = assert(ckpt.create(folder()))
  save:add_tensors("model.safetensors", { { name = "w", tensor = tensor, shape = { 9 }, offset = { 1 } } })
end)
refused("'continues' must be a list of strings, got string", ckpt.create, folder(), { run = "a", continues = "before" })
s:recipe("accel.ckpt.Save:start", {
  run = function(call, given)
    local path = folder()
    local save = assert(ckpt.create(path))
    local t = accel.zeros(1 << 20)
    save:add_tensors("model.safetensors", { { name = "w", tensor = t } })
    call(save)
    if given.asynchronous then t:fill_(1) end -- it has a copy of what was
    assert(save:wait())
    local reader <close> = assert(ckpt.open(path))
    local back = accel.empty(1 << 20)
    assert(reader:read("model", "w", back))
    return reader.manifest.state, back:sum():item(), given.asynchronous and back:sum():item() ~= t:sum():item()
  end,
  values = { state = { { step = 7 } }, asynchronous = { true } },
})
s:recipe("accel.ckpt.Save:wait", {
  run = function(call)
    local save = assert(ckpt.create(folder()))
    save:add_tensors("model.safetensors", { { name = "w", tensor = accel.zeros(1 << 22) } })
    save:start()
    local ok, _, code = call(save)
    save:wait()
    return ok, code
  end,
  values = { seconds = { 0 } },
})

-- ---- reading ----
local whole = saved(folder())
s:recipe("accel.ckpt.Reader:read", {
  base = function() return { object = "model", name = "w", tensor = accel.empty(6) } end,
  run = function(call, given)
    local reader <close> = assert(ckpt.open(whole))
    if given.offsets then given.tensor = accel.empty(2) end
    assert(call(reader))
    return given.tensor
  end,
  values = { offsets = { { 3 } } },
})
s:recipe("accel.ckpt.Reader:verify", {
  run = function(call, given)
    local heard = 0
    if given.on_progress == true then given.on_progress = function() heard = heard + 1 end end
    local reader <close> = assert(ckpt.open(whole))
    assert(call(reader))
    return heard > 0
  end,
  values = { on_progress = { true } },
})

-- ---- folders ----
local function several()
  local parent = folder()
  accel.makedirs(parent)
  for i = 1, 3 do saved(parent .. "/checkpoint_" .. i, { run = i == 2 and "other" or nil }) end
  return parent
end
s:recipe("accel.ckpt.newest", {
  base = function() return { parent = several() } end,
  run = function(call, given)
    local skipped, damaged = {}, given.parent .. "/checkpoint_3/model.safetensors"
    if given.on_skip == true then
      given.on_skip = function(entry) skipped[#skipped + 1] = entry.name end
      assert(accel.write_file(damaged, "x"))
    end
    return (call():match "[^/]+$"), skipped
  end,
  values = { accept = { function(entry) return entry.number == 2, "other" end }, on_skip = { true } },
})
s:recipe("accel.ckpt.other_run", {
  base = function() return { path = several() } end,
  run = function(call)
    local path = call()
    return path and path:match "[^/]+$"
  end,
  values = { names = { "_3$" } },
})
s:recipe("accel.ckpt.prune", {
  base = function() return { parent = several(), keep = 1 } end,
  run = function(call, given)
    local gone = assert(call())
    return gone, files(given.parent)
  end,
  values = { runs = { { "other" } }, spare = { "checkpoint_1" }, dry_run = { true } },
})
refused("'runs' must be a list of strings, got string", ckpt.prune, several(), 1, { runs = "other" })
s:finish()
