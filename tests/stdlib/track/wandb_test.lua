-- The wandb tracker: its transaction log read back by its form (blocks, checksums, records over several blocks), rows of steps, images and
-- tables as files, what is left of a killed run, options and variables.  tier: every change, memory
--   accel-run tests/stdlib/track/wandb_test.lua
local accel = require "accel"
local case = dofile((arg[0]:match "^.*/" or "") .. "../../support/case.lua")
local core = require "accel.track.core"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local says = ranks.fails
local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/wandb-"))
local stderr, said = io.stderr, {}
io.stderr = { write = function(_, ...) said[#said + 1] = table.concat { ... } end } -- luacheck: ignore
warn = function(...) said[#said + 1] = table.concat { ... } end -- luacheck: ignore 121

-- FIPS 180-4's examples, and lengths on both sides of where the padding takes another block
assert(core.sha256 "abc" == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
assert(core.sha256 "" == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
assert(core.sha256 "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"
  == "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1")
assert(core.sha256(("a"):rep(1000000)) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0")

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "a"
  file:close()
  return text
end

-- ---- a reader of logs, by their form ----

local crcs = {}
for i = 0, 255 do
  local c = i
  for _ = 1, 8 do c = c & 1 == 1 and c >> 1 ~ 0xedb88320 or c >> 1 end
  crcs[i] = c
end
local function crc32(s)
  local c = 0xffffffff
  for i = 1, #s do c = crcs[(c ~ s:byte(i)) & 255] ~ c >> 8 end
  return c ~ 0xffffffff
end

--- The records of a log, until it ends or is torn; how many were cut into pieces.
local function records_of(log)
  assert(log:sub(1, 7) == ":W&B\xe1\xbe\0", "the head of the file")
  local at, out, pieces, cut = 8, {}, {}, 0
  while true do
    local room = 32768 - (at - 1) % 32768
    if room < 7 then
      assert(log:sub(at, at + room - 1) == ("\0"):rep(math.min(room, #log - at + 1)), "zeros at the end of a block")
      at = at + room
    end
    if at + 6 > #log then return out, cut end
    local crc, n, kind = ("<I4I2B"):unpack(log, at)
    assert(kind >= 1 and kind <= 4 and (at - 1) % 32768 + 7 + n <= 32768, "a piece is in one block")
    if at + 6 + n > #log then return out, cut end
    local data = log:sub(at + 7, at + 6 + n)
    assert(crc32(string.char(kind) .. data) == crc, "checksum")
    assert((#pieces == 0) == (kind <= 2), "the order of pieces")
    pieces[#pieces + 1] = data
    if kind == 1 or kind == 4 then
      cut = cut + (kind == 4 and 1 or 0)
      out[#out + 1], pieces = table.concat(pieces), {}
    end
    at = at + 7 + n
  end
end

--- Fields of a message: number -> list of values.
local function fields(s)
  local out, at = {}, 1
  local function varint()
    local n, shift = 0, 0
    while true do
      local b = s:byte(at)
      n, shift, at = n | (b & 127) << shift, shift + 7, at + 1
      if b < 128 then return n end
    end
  end
  while at <= #s do
    local key = varint()
    local list = out[key >> 3] or {}
    out[key >> 3] = list
    if key & 7 == 0 then
      list[#list + 1] = varint()
    else
      assert(key & 7 == 2)
      local n = varint()
      list[#list + 1], at = s:sub(at, at + n - 1), at + n
    end
  end
  return out
end

local HISTORY <const>, SUMMARY <const>, CONFIG <const>, FILES <const>, RUN <const>, EXIT <const>, HEADER <const> = 2, 3, 5, 6, 17, 18, 21

local function decoded(text)
  if text == "NaN" then return "nan" elseif text == "Infinity" then return "inf" elseif text == "-Infinity" then return "-inf" end
  return accel.json.decode(text)
end
local function items(message, field, key)
  local out = {}
  for _, item in ipairs(fields(message)[field] or {}) do
    local f = fields(item)
    out[f[key][1]] = decoded(f[16][1])
  end
  return out
end

--- What a run's folder holds: rows, summary, config, files, run and exit.
local function run_of(folder)
  local name
  for _, file in ipairs(assert(accel.listdir(folder))) do name = file:match "^run%-.*%.wandb$" or name end
  local list, cut = records_of(read(folder .. "/" .. name))
  local out = { rows = {}, summary = {}, config = {}, files = {}, cut = cut, n = #list }
  for i, text in ipairs(list) do
    local f = fields(text)
    assert(f[1][1] == i, "records are numbered")
    if f[HISTORY] then
      local row, step = items(f[HISTORY][1], 1, 2), fields(fields(f[HISTORY][1])[2][1])
      assert((step[1] and step[1][1] or 0) == row._step)
      out.rows[#out.rows + 1] = row
    elseif f[SUMMARY] then for k, v in next, items(f[SUMMARY][1], 1, 2) do out.summary[k] = v end
    elseif f[CONFIG] then for k, v in next, items(f[CONFIG][1], 1, 1) do out.config[k] = v end
    elseif f[FILES] then out.files[#out.files + 1] = fields(fields(f[FILES][1])[1][1])[1][1]
    elseif f[RUN] then out.run = fields(f[RUN][1])
    elseif f[EXIT] then out.exit = fields(f[EXIT][1])
    else assert(f[HEADER] and i == 1) end
  end
  return out
end

local function folder_of(dir)
  local names = assert(accel.listdir(dir .. "/wandb"))
  assert(#names == 1 and names[1]:find "^offline%-run%-%d+_%d+%-%w+", names[1])
  case "offline runs"
  return dir .. "/wandb/" .. names[1]
end

-- ---- a run ----

local a = accel.Accelerator { log_with = "wandb" }
a:init_trackers("proj", { lr = 0.5, opt = { name = "adam" }, list = { 1, 2 } }, { wandb = { dir = root .. "/a", name = "nm", entity = "team",
  tags = { "x", "y" }, notes = "n", group = "g", job_type = "j", config = { seed = 3 }, save_code = true } })
local tracker = a:get_tracker "wandb"
assert(tracker == a:get_tracker("wandb", true))
for i = 0, 1999 do
  a:log({ loss = 1 / (i + 1), both = { a = i }, word = "w", yes = true, t = accel.tensor { 2.5 } }, i)
  if i % 500 == 0 then a:log({ more = i }, i) end -- to the same step: one row
end
a:log({ lost = 1 }, 7)
tracker:log { bad = 0 / 0, up = 1 / 0, down = -1 / 0, long = ("z"):rep(100000) }
local picture = accel.rand(2, 3, 4, 5)
tracker:log_images({ pic = picture }, 3000)
tracker:log_table("tab", { columns = { "x", "y" }, data = { { 1, "a|b" }, { 0 / 0, true } }, step = 3001 })
a:end_training()
local folder = folder_of(root .. "/a")
local r = run_of(folder)
assert(#r.rows == 2003 and r.cut > 10, #r.rows)
for i = 0, 1999 do
  local row = r.rows[i + 1]
  assert(row._step == i and row.loss == 1 / (i + 1) and row.both.a == i and row.word == "w" and row.yes == true and row.t == 2.5)
  assert(row.more == (i % 500 == 0 and i or nil) and row._timestamp > 1.7e9 and row._runtime >= 0)
end
assert(r.rows[2001]._step == 2000 and r.rows[2001].bad == "nan" and r.rows[2001].up == "inf" and r.rows[2001].down == "-inf")
assert(r.rows[2001].long == ("z"):rep(100000))
local pic = r.rows[2002].pic
assert(r.rows[2002]._step == 3000 and pic._type == "images/separated" and pic.width == 5 and pic.height == 4 and pic.count == 2)
local images = require "accel.track.image".images("test", picture)
for i, path in ipairs(pic.filenames) do
  local data = read(folder .. "/files/" .. path)
  assert(data == images[i].data and path:find(core.sha256(data):sub(1, 20), 1, true) and r.files[i] == path)
end
local tab = r.rows[2003].tab
local text = read(folder .. "/files/" .. tab.path)
assert(text == '{"columns":["x","y"],"data":[[1,"a|b"],[NaN,true]]}' and tab.sha256 == core.sha256(text) and tab.size == #text)
assert(tab.ncols == 2 and tab.nrows == 2 and r.files[3] == tab.path and r.summary.loss == 1 / 2000 and r.summary._step == 3001)
assert(r.config.lr == 0.5 and r.config.opt.name == "adam" and r.config.list[2] == 2 and r.exit)
assert(r.run[1][1] == tracker.id and r.run[2][1] == "team" and r.run[3][1] == "proj" and r.run[6][1] == "g" and r.run[7][1] == "j")
assert(r.run[8][1] == "nm" and r.run[9][1] == "n" and r.run[10][2] == "y" and items(r.run[4][1], 1, 1).seed == 3)
local all = table.concat(said)
assert(all:find("send it with wandb sync '" .. folder .. "'", 1, true), all)
assert(all:find("accel.track.WandBTracker: save_code has no effect", 1, true) and all:find("step 7 after step 1999 are left out", 1, true))

-- ---- cut anywhere, what was whole is read ----
local log = read(assert(folder .. "/run-" .. tracker.id .. ".wandb"))
local whole = records_of(log)
for _, at in ipairs { 7, 8, 13, 14, 1000, 32767, 32768, 32770, 32775, 40000, #log - 1 } do
  local part = records_of(log:sub(1, at))
  assert(#part < #whole)
  for i, x in ipairs(part) do assert(x == whole[i]) end
end

-- ---- a run that is killed: what was logged a second before is there ----
local script = root .. "/killed.lua"
assert(accel.write_file(script, ([[local accel = require "accel"
local a = accel.Accelerator { log_with = "wandb" }
a:init_trackers("p", nil, { wandb = { dir = "%s/k" } })
for i = 1, 500 do a:log({ x = i }, i) end
require "accel.track.core".pause(2) -- twice what is promised, for machines that are busy
os.execute("kill -9 $PPID")]]):format(root)))
os.execute(("'%s' '%s' >/dev/null 2>&1"):format(accel.process.program(), script))
r = run_of(folder_of(root .. "/k"))
assert(#r.rows >= 499 and r.rows[499].x == 499 and not r.exit, #r.rows)

-- ---- options ----
says("unknown option 'entityy'; did you mean 'entity'?", function()
  accel.Accelerator { log_with = "wandb" }:init_trackers("p", nil, { wandb = { entityy = 1 } })
end)
says("mode must be offline, online or disabled, got 'on'", function()
  accel.Accelerator { log_with = "wandb" }:init_trackers("p", nil, { wandb = { mode = "on" } })
end)
says("an id is letters", function() accel.Accelerator { log_with = "wandb" }:init_trackers("p", nil, { wandb = { id = "../x" } }) end)
local b = accel.Accelerator { log_with = "wandb" }
b:init_trackers("p", { lr = 1 }, { wandb = { mode = "disabled", dir = root .. "/d" } })
b:log({ loss = 1 }, 1)
b:end_training()
assert(not accel.listdir(root .. "/d"))
local pipe = assert(io.popen(("WANDB_DIR='%s/e' WANDB_PROJECT=other WANDB_RUN_ID=abc WANDB_TAGS=q,w WANDB_NAME=env '%s' -e %s 2>&1"):format(root,
  accel.process.program(), [['local a = require "accel".Accelerator { log_with = "wandb" } a:init_trackers("p") a:log { x = 1 } a:end_training()']])))
text = pipe:read "a"
assert(pipe:close(), text)
r = run_of(folder_of(root .. "/e"))
assert(r.run[1][1] == "abc" and r.run[3][1] == "other" and r.run[8][1] == "env" and r.run[10][2] == "w" and r.rows[1].x == 1)
io.stderr = stderr -- luacheck: ignore
os.execute(("rm -rf '%s'"):format(root))
