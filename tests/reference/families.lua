-- Runs folders of Transformers' models through accel.models.from_pretrained and compares with what Transformers computed: outputs, losses,
-- gradients, one step of AdamW, decoding with a cache, generated ids, and the folder that save_pretrained writes. The README of
-- shared/reference/families describes the files.
--   accel-run tests/reference/families.lua DIR [--only NAME[,NAME]] [--quiet]
-- DIR has a manifest.json whose `rows` name folders. One line per failing quantity: row, quantity, distance, bar. A row whose class accel
-- does not have is left out by name, with the library's reason. The last line is "N rows, P passed, L left out"; exit status 0 only if
-- every row that is not left out passed, 77 if DIR has no manifest.
local accel = require "accel"
local lfs = require "lfs"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local quantities = require "families_quantities"

local dir, only, quiet
do
  local i = 1
  while arg[i] do
    if arg[i] == "--only" then
      only, i = {}, i + 1
      for name in (arg[i] or ""):gmatch "[^,]+" do only[name] = true end
    elseif arg[i] == "--quiet" then quiet = true
    else dir = arg[i] end
    i = i + 1
  end
end
if not dir then
  io.stderr:write("usage: accel-run tests/reference/families.lua DIR [--only NAME[,NAME]] [--quiet]\n")
  os.exit(2)
end
local file = io.open(dir .. "/manifest.json", "rb")
if not file then
  print(("skipped: %s/manifest.json is not there"):format(dir))
  os.exit(77)
end
local manifest = accel.json.decode(file:read "a")
file:close()

local function read_json(path)
  local f <close> = assert(io.open(path, "rb"))
  return accel.json.decode(f:read "a")
end

--- A folder whose config.json is config_old.json, with links to everything else.
local function old_folder(path)
  if path:sub(1, 1) ~= "/" then path = lfs.currentdir() .. "/" .. path end -- links are followed from their own folder
  local old = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/families-")
  for name in lfs.dir(path) do
    if name ~= "." and name ~= ".." and name ~= "config.json" and name ~= "config_old.json" then
      assert(lfs.link(path .. "/" .. name, old .. "/" .. name, true))
    end
  end
  assert(lfs.link(path .. "/config_old.json", old .. "/config.json", true))
  return old
end

local passed, failed, left = 0, 0, 0
for _, row in ipairs(manifest.rows) do
  if not only or only[row.name] then
    local path = dir .. "/" .. row.name
    local warned, wrong = {}, {}
    local function report(quantity, distance, bar) wrong[#wrong + 1] = ("FAIL %s: %s: %s (bar %s)"):format(row.name, quantity, distance, bar) end
    local ok, why = xpcall(function()
      local model, message, code = accel.models.from_pretrained(path, { dtype = "f64" })
      if not model then return { code = code, message = message } end
      quantities.check(model, message, path, read_json(path .. "/meta.json"), report)
      if lfs.attributes(path .. "/config_old.json") then quantities.check_old(old_folder(path), path, report) end
    end, debug.traceback)
    if not ok then report("run", tostring(why), "no error") end
    if ok and why and why.code == "unsupported" then
      left = left + 1
      print(("left out %s: %s"):format(row.name, why.message:gsub("^.*config%.json: ", "")))
    else
      if ok and why then report("load", ("%s (%s)"):format(why.message, tostring(why.code)), "loads") end
      for _, line in ipairs(warned) do report("warning", line, "none") end
      for _, line in ipairs(wrong) do print(line) end
      if #wrong == 0 then passed = passed + 1 else failed = failed + 1 end
      if #wrong == 0 and not quiet then print("ok   " .. row.name) end
    end
  end
end
print(("%d rows, %d passed, %d left out"):format(passed + failed + left, passed, left))
os.exit(failed > 0 and 1 or 0, true)
