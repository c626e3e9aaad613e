-- accel.ckpt: saves of one and of several parts, in place and asynchronous, what is read back, folders of checkpoints, what fails. The
-- protocol's faults are tested with host/ckpt and in tests/fault.
local accel = require "accel"
local ckpt = accel.ckpt

local tmp = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/ckpt"
os.execute("rm -rf '" .. tmp .. "'")

local function fails(part, code, ok, message, got)
  assert(ok == nil and got == code and message:find(part, 1, true), tostring(message) .. " " .. tostring(got))
end
local function raises(part, f, ...)
  local ok, err = pcall(f, ...)
  assert(not ok and tostring(err):find(part, 1, true), tostring(err))
end
local function names(list)
  local out = {}
  for i, x in ipairs(list) do out[i] = type(x) == "table" and ("%s %d %s"):format(x.name, x.number, x.status) or x end
  return table.concat(out, ", ")
end

local w, half, none = accel.randn(300, 70), accel.randn(5):to "bf16", accel.zeros(0, 3)
local large = accel.randn(2500000) -- past the page cache where the file system takes it
local mask = accel.tensor { true, false, true }

local function write(path, opts, start)
  local s = assert(ckpt.create(path, opts))
  s:add_tensors("model.safetensors", { { name = "w", tensor = w }, { name = "none", tensor = none }, { name = "mask", tensor = mask } })
  s:add_tensors("optimizer.safetensors", { { name = "w", tensor = w:t() }, { name = "large", tensor = large }, { name = "half", tensor = half } },
    { step = "7" })
  s:add_bytes("scheduler.bin", "bytes\0of it")
  s:add_bytes("empty.bin", "")
  s:start(start)
  return s
end

-- One part, in place and asynchronous.
for i, asynchronous in ipairs { false, true, true } do
  local s = write(tmp .. "/step-" .. i * 5, nil, { state = { step = i * 5, epoch = 1.5, list = { 1, 2 } }, asynchronous = asynchronous })
  assert(s.folder:find(tmp .. "/step-" .. i * 5 .. ".tmp-", 1, true) == 1)
  assert(s:wait() and s:wait() and s:done())
  local written, all = s:progress()
  assert(written == all and all > 10000000)
end
assert(ckpt.memory() >= 10000000 and ckpt.memory() < 10200000)
assert(ckpt.release() and ckpt.memory() == 0)

do
  local path, skipped = ckpt.newest(tmp)
  assert(path == tmp .. "/step-15" and #skipped == 0)
  local c <close> = assert(ckpt.open(path))
  assert(c.path == path and c.manifest.state.step == 15 and c.manifest.state.epoch == 1.5 and c.manifest.parts == 1)
  assert(names(c:objects()) == "model, optimizer")
  local all = {}
  for _, t in ipairs(c:tensors "optimizer") do all[t.name] = t end
  assert(all.w.dtype == "f32" and all.w.shape[1] == 70 and all.w.shape[2] == 300 and all.w.bytes == 84000)
  local back = accel.empty(300, 70)
  assert(c:read("model", "w", back) and accel.equal(back, w))
  local part = accel.empty(3, 4)
  assert(c:read("optimizer", "w", part, { 10, 20 }) and accel.equal(part, w:t():narrow(1, 11, 3):narrow(2, 21, 4)))
  local view = accel.zeros(70, 300)
  assert(c:read("model", "w", view:t()) and accel.equal(view, w:t()))
  local flags = accel.tensor { false, false, false }
  assert(c:read("model", "mask", flags) and accel.equal(flags, mask))
  assert(c:read("model", "none", accel.empty(0, 3)))
  local h = accel.empty(5, { dtype = "bf16" })
  assert(c:read("optimizer", "half", h) and accel.equal(h, half))
  assert(c:bytes "scheduler.bin" == "bytes\0of it" and c:bytes "empty.bin" == "")
  local last
  assert(c:verify(function(done, whole) last = done / whole end) and last == 1)
  fails("no tensor 'v'", "not_found", c:read("model", "v", back))
  fails("no object 'm'", "not_found", c:read("m", "v", back))
  fails("no object 'm'", "not_found", c:tensors "m")
  fails("no file 'f'", "not_found", c:bytes "f")
  fails("has 2 dims", "shape", c:read("model", "w", accel.empty(4)))
  assert(c:read("model", "w", accel.empty(300, 71)) == nil)
  -- the same file by accel.load
  local t, meta = accel.load(path .. "/optimizer.safetensors"), accel.open_safetensors(path .. "/optimizer.safetensors"):metadata()
  assert(accel.equal(t.large, large) and meta.step == "7")
  c:close()
  raises("closed", c.objects, c)
end

-- What exists is not overwritten, unless asked for.
fails("already exists", "state", ckpt.create(tmp .. "/step-5"))
assert(write(tmp .. "/step-5", { replace = true }, { state = { again = true } }):wait())
assert(assert(ckpt.open(tmp .. "/step-5")).manifest.state.again)

-- The copy of an asynchronous save does not see later writes; the next save waits for it.
do
  local x = accel.ones(1000000)
  local saves = {}
  for i = 1, 3 do
    saves[i] = assert(ckpt.create(tmp .. "/moving-" .. i))
    saves[i]:add_tensors("x.safetensors", { { name = "x", tensor = x } })
    saves[i]:start { asynchronous = true }
    x:add_(1)
  end
  for i = 1, 3 do
    assert(saves[i]:wait())
    local back = accel.empty(1000000)
    assert(assert(ckpt.open(tmp .. "/moving-" .. i)):read("x", "x", back))
    assert(back:min():item() == i and back:max():item() == i)
  end
  assert(ckpt.memory() == 4000000 or ckpt.memory() == 4000064)
end

-- Several parts: each writes its range of rows, all learn of the commit.
do
  local path, parts, saves = tmp .. "/wide-1", 3, {}
  for r = 0, parts - 1 do
    local s = assert(ckpt.create(path, { part = r, parts = parts, folder = r > 0 and saves[0].folder or nil }))
    s:add_tensors(("model/shard-%05d-model-00001-of-00001.safetensors"):format(r + 1),
      { { name = "w", tensor = w:narrow(1, r * 100 + 1, 100), shape = { 300, 70 }, offsets = { r * 100, 0 } } })
    s:add_bytes("random_states_" .. r .. ".bin", "r" .. r)
    saves[r] = s
  end
  for r = parts - 1, 0, -1 do
    assert(not saves[r].over and ckpt.open(path) == nil)
    saves[r]:start { state = r == 0 and { step = 1 } or nil }
  end
  for r = 0, parts - 1 do assert(saves[r]:wait()) end
  local c = assert(ckpt.open(path))
  assert(c.manifest.parts == 3 and #c.manifest.files == 6 and names(c:objects()) == "model")
  local back = accel.empty(300, 70)
  assert(c:read("model", "w", back) and accel.equal(back, w) and c:verify())
  local across = accel.empty(120, 7)
  assert(c:read("model", "w", across, { 90, 60 }) and accel.equal(across, w:narrow(1, 91, 120):narrow(2, 61, 7)))
  assert(c:bytes "random_states_2.bin" == "r2")
  -- torch's reader looks for these
  local f = assert(accel.open_safetensors(path .. "/model/shard-00002-model-00001-of-00001.safetensors"))
  local meta = f:metadata()
  assert(meta.format == "pt" and meta.DCP_VERSION == "1.0" and meta.DCP_SHARDING_INFO == '{"w":{"saved_offsets":[100,0]}}')
end

-- One part fails, by the same name in two parts: all are told, nothing is left.
do
  local path, saves = tmp .. "/bad-1", {}
  for r = 0, 2 do
    saves[r] = assert(ckpt.create(path, { part = r, parts = 3, folder = r > 0 and saves[0].folder or nil }))
    saves[r]:add_bytes("part" .. r, "x")
  end
  saves[0]:start()
  saves[1]:start()
  saves[2]:abort()
  fails("part 2", "io", saves[0]:wait())
  fails("bad-1", "io", saves[1]:wait())
  fails("given up", "interrupted", saves[2]:wait())
  assert(not io.open(saves[0].folder .. "/part0"))
end

-- Given up: nothing is left.
do
  local s = assert(ckpt.create(tmp .. "/gone-1"))
  s:add_tensors("x.safetensors", { { name = "large", tensor = large } })
  s:start { asynchronous = true }
  if not s:abort() then fails("given up", "interrupted", s:wait()) end
  local folder = s.folder
  s = assert(ckpt.create(tmp .. "/gone-2"))
  s:add_bytes("x", "x")
  assert(s:abort() == false)
  for _, x in ipairs(ckpt.scan(tmp)) do assert(x.status == "ok", x.name .. " " .. x.reason) end
  assert(not io.open(folder .. "/x.safetensors"))
end

-- What goes wrong while it is written comes out of done and wait, the message of the first fault with its path. A save under way is left
-- alone by others that commit beside it.
do
  local second = assert(ckpt.create(tmp .. "/same-1"))
  local first = assert(ckpt.create(tmp .. "/same-1", { replace = true }))
  first:add_bytes("a", "1")
  second:add_bytes("a", "2")
  first:start { asynchronous = true }
  assert(first:wait())
  assert(io.open(second.folder .. "/owner-0.lock")):close()
  second:start { asynchronous = true }
  while not second:done() do end
  fails("same-1: already exists", "io", second:wait())
  fails("same-1: already exists", "io", second:wait())
  assert(not io.open(second.folder .. "/a") and assert(ckpt.open(tmp .. "/same-1")):bytes "a" == "1")
end

-- Misuse.
do
  local s = assert(ckpt.create(tmp .. "/misuse-1"))
  raises("not relative", s.add_bytes, s, "/etc/x", "")
  raises("..", s.add_bytes, s, "a/../x", "")
  raises("themselves", s.add_bytes, s, "MANIFEST.json", "")
  raises("is not { name =, tensor = }", s.add_tensors, s, "m.safetensors", { { name = "x", tensor = 1 } })
  raises("two tensors are named 'x'", s.add_tensors, s, "m.safetensors", { { name = "x", tensor = w }, { name = "x", tensor = w } })
  raises("range ends at 301", s.add_tensors, s, "m.safetensors", { { name = "x", tensor = w, shape = { 300, 70 }, offsets = { 1, 0 } } })
  raises("list of 2 integers", s.add_tensors, s, "m.safetensors", { { name = "x", tensor = w, offsets = { 1 } } })
  s:add_bytes("x", "")
  raises("two files are named 'x'", s.add_bytes, s, "x", "")
  raises("NaN", s.start, s, { state = { x = 0 / 0 } })
  raises("unknown option", s.start, s, { async = true })
  s:start()
  raises("started", s.start, s)
  assert(s:wait())
  raises("part 1 needs the folder", ckpt.create, tmp .. "/m", { part = 1, parts = 2 })
  raises("part 2 of 2", ckpt.create, tmp .. "/m", { part = 2, parts = 2, folder = "x" })
end

-- Folders: what is foreign, unfinished, damaged; which are removed.
do
  local dir = tmp .. "/many"
  for _, n in ipairs { 2, 9, 10, 100 } do
    local s = assert(ckpt.create(dir .. "/checkpoint_" .. n))
    s:add_bytes("x", ("x"):rep(n))
    s:start { state = { n = n } }
    assert(s:wait())
  end
  assert(accel.makedirs(dir .. "/logs") and accel.makedirs(dir .. "/checkpoint_11.tmp-0123456789abcdef"))
  assert(accel.write_file(dir .. "/checkpoint_100/x", "xy"))
  assert(accel.write_file(dir .. "/checkpoint_12", "a file"))
  local list = assert(ckpt.scan(dir))
  assert(names(list) == "logs -1 foreign, checkpoint_2 2 ok, checkpoint_9 9 ok, checkpoint_10 10 ok, "
    .. "checkpoint_11.tmp-0123456789abcdef 11 unfinished, checkpoint_100 100 damaged", names(list))
  assert(list[3].state.n == 9 and list[3].bytes == 9 and list[6].reason:find "'x' has 2 bytes, not the 100")
  local path, skipped = ckpt.newest(dir)
  assert(path == dir .. "/checkpoint_10" and #skipped == 2 and skipped[1].name == "checkpoint_100")
  assert(names(ckpt.prune(dir, 2)) == "checkpoint_2" and names(ckpt.prune(dir, 2)) == "")
  assert(names(ckpt.prune(dir, 1)) == "checkpoint_9" and ckpt.newest(dir) == path)
  raises("1 or more", ckpt.prune, dir, 0)
  fails("no whole checkpoint", "not_found", ckpt.newest(dir .. "/logs"))
  fails("none", "not_found", ckpt.scan(dir .. "/none"))
  fails("not a checkpoint", "not_found", ckpt.open(dir .. "/logs"))
end

-- Age is the order of saving: not the number in a name, nor the time of a file, nor the clock.
do
  local dir = tmp .. "/age"
  local function save(name, opts)
    local s = assert(ckpt.create(dir .. "/" .. name, opts))
    s:add_bytes("x", name)
    s:start()
    assert(s:wait())
    return s.sequence
  end
  local first = save "checkpoint_7"
  assert(save "checkpoint_3" > first and save "best" > first)
  local far = save("checkpoint_5", { after = (os.time() + 10 * 365 * 86400) * 1000000 }) -- the clock stood ten years ahead
  local last = save "checkpoint_0"
  assert(last == far + 1, "behind the clock the sequence goes on by one")
  local elsewhere = save "../elsewhere_1"
  assert(elsewhere == last + 1, "a process's checkpoints are in order wherever they lie")
  local list = assert(ckpt.scan(dir))
  assert(names(list) == "checkpoint_7 7 ok, checkpoint_3 3 ok, best -1 ok, checkpoint_5 5 ok, checkpoint_0 0 ok", names(list))
  assert(ckpt.newest(dir) == dir .. "/checkpoint_0" and list[5].sequence == last and #list[5].run == 16)
  assert(ckpt.newest(dir, { accept = function(entry) return entry.name == "best" end }) == dir .. "/best")
  assert(names(ckpt.prune(dir, 1, { dry_run = true })) == "checkpoint_7, checkpoint_3, checkpoint_5")
  assert(names(ckpt.prune(dir, 1, { spare = "checkpoint_7" })) == "checkpoint_3, checkpoint_5")
  save("checkpoint_1", { run = "other", continues = { "a", "b" } })
  list = assert(ckpt.scan(dir))
  assert(list[#list].run == "other" and table.concat(list[#list].continues, " ") == "a b")
  assert(names(ckpt.prune(dir, 1, { runs = { "other" } })) == "" and names(ckpt.prune(dir, 1, { runs = {} })) == "")
  assert(names(ckpt.prune(dir, 1, { runs = { "other", list[1].run } })) == "checkpoint_7, checkpoint_0")
  raises("cannot be the name of a run: it has more than 64 bytes", ckpt.create, dir .. "/y", { run = ("r"):rep(65) })
  raises("control character", ckpt.create, dir .. "/y", { run = "r", continues = { "a\n" } })
end

-- Of two saves of one name that are under way the second is refused at once; with replace it is not.
do
  local path = tmp .. "/taken/a_1"
  local first = assert(ckpt.create(path))
  fails("another save is writing it", "state", ckpt.create(path))
  local beside = assert(ckpt.create(tmp .. "/taken/a_10"))
  local over = assert(ckpt.create(path, { replace = true }))
  for _, s in ipairs { beside, over, first } do s:abort() end
  assert(#accel.listdir(tmp .. "/taken") == 0, "a refused save leaves nothing")
  assert(ckpt.create(path)):abort()
end

-- A save whose handle is dropped goes on; this one is waited for when the state closes.
do
  local s = write(tmp .. "/dropped-1", nil, { asynchronous = true })
  local path = s.path
  s = nil
  collectgarbage()
  for _ = 1, 1000 do
    if ckpt.open(path) then break end
    os.execute "sleep 0.02"
  end
  assert(ckpt.open(path))
  write(tmp .. "/last-1", nil, { asynchronous = true })
end

do -- a save that ends between two looks at it: asked over and over, some end there
  for i = 1, 150 do
    local path = ("%s/looks-%d"):format(tmp, i)
    local save = assert(ckpt.create(path))
    save:add_bytes("x", "bytes")
    save:start {}
    local ok, message, code
    repeat ok, message, code = save:wait(0) until ok or code ~= "timeout" or save.over
    assert(ok, message)
    os.execute(("rm -rf '%s'"):format(path))
  end
end
