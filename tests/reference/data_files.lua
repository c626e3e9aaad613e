-- Reads the files that people have (pictures, sound, arrays, tables, shards) and compares with what the libraries of reference read. The
-- README of shared/reference/data_files describes rows, forms and tolerances.
--   accel-run tests/reference/data_files.lua DIR [--only KIND[,KIND]] [--file TEXT] [--quiet]
-- DIR has a manifest.json whose `rows` name files. A row's reader, or its format where it has none, gives its kind by the table below.
-- `data_files_KIND.lua` beside this file returns a table with
--   read(path, row, dir)             the values of the file: raises, or returns nil and a message, for a file that it refuses
--   compare(got, row, report, want)  calls report(quantity, distance, bar) for each value that differs. `want` is the expected JSON, or a
--                                    table of tensors by name. data_values.lua has the usual comparisons
--   left_out(row)                    optional: the reason why a row is left out
-- Rows with `must` are refused by an error that names the file, within 10 s and 256 MiB. One line per failing quantity: file, quantity,
-- distance, bar. The last line is "N rows, P passed, L left out"; exit status 0 only if every row that is not left out passed, 77 if DIR
-- has no manifest.
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$" or "."
package.path = here .. "/?.lua;" .. package.path
local values = require "data_values"

local KINDS <const> = { -- kind = readers and formats
  pictures = "pil torchvision_png16 tifffile bmp gif image jpeg png pnm tiff webp",
  transforms = "pil_op torchvision_pil torchvision_u8 torchvision_f64 timm timm_eval mix transform",
  image_processors = "hf_image_processor image_processor",
  sound = "soundfile aiff au flac mp3 ogg wav",
  audio_features = "torchaudio_f64 torch_stft scipy_polyphase hf_audio audio_feature feature_extractor",
  numpy = "npy npz idx",
  parquet = "parquet",
  arrow = "arrow_file arrow_stream feather",
  saved_datasets = "hf_disk",
  folders = "image_folder hf_folder hf_imagefolder hf_audiofolder",
  hub_layouts = "hf_hub_layout",
  json = "json jsonl",
  csv = "csv tsv",
  compressed = "decompress bz2 gz lz4 lzma xz zst",
  tar = "tar webdataset",
  tfrecord = "tfrecord",
  mds = "mds",
}
local SECONDS <const>, MIB <const> = 10, 256 -- limits of a row with `must`

local kind_of = {}
for kind, words in pairs(KINDS) do
  for word in words:gmatch "%S+" do kind_of[word] = kind end
end

local dir, only, text, quiet
do
  local i = 1
  while arg[i] do
    if arg[i] == "--only" then only, i = "," .. (arg[i + 1] or "") .. ",", i + 1
    elseif arg[i] == "--file" then text, i = arg[i + 1] or "", i + 1
    elseif arg[i] == "--quiet" then quiet = true
    else dir = arg[i] end
    i = i + 1
  end
end
if not dir then
  io.stderr:write("usage: accel-run tests/reference/data_files.lua DIR [--only KIND[,KIND]] [--file TEXT] [--quiet]\n")
  os.exit(2)
end
local file = io.open(dir .. "/manifest.json", "rb")
if not file then
  print(("skipped: %s/manifest.json is missing"):format(dir))
  os.exit(77)
end
local manifest = accel.json.decode(file:read "a")
file:close()

--- The module of a kind, or nil and the reason why there is none.
local function module_of(kind)
  if not kind then return nil, "unknown reader and format" end
  if not package.searchpath("data_files_" .. kind, package.path) then return nil, "no reader yet" end
  return (require("data_files_" .. kind)) -- its file name comes second
end

--- The result of read with its error, time and growth of the process's peak memory.
local function measured(module, row)
  collectgarbage()
  local clear = io.open("/proc/self/clear_refs", "w") -- "5" sets the peak to the present size
  if clear then clear:write "5"; clear:close() end
  local before, start = values.status "VmRSS", accel.clock()
  local ok, got, why = xpcall(module.read, function(e) return tostring(e) end, dir .. "/" .. row.file, row, dir)
  if ok and got == nil then ok, got = false, tostring(why) end
  return ok, got, accel.clock() - start, (values.status "VmHWM" - before) / 1024
end

--- Whether a message is a refusal for a reader: it names the file, and is not a fault of the code.
local function is_refusal(message, row)
  local name = row.file:match "[^/]+$"
  if not message:find(name, 1, true) then return false, "an error that names the file" end
  if message:find "attempt to " or message:find "stack traceback" or message:find "module '" then return false, "a refusal, not a fault" end
  return true
end

local function check(module, row, report)
  local ok, got, seconds, mib = measured(module, row)
  if row.must then
    if seconds > SECONDS then report("time", ("%.1f s"):format(seconds), SECONDS .. " s") end
    if mib > MIB then report("memory", ("%.0f MiB"):format(mib), MIB .. " MiB") end
    if rawget(_G, "ACCEL_PWNED") then report("code", "it ran", "none runs") end
    if not ok then
      local right, bar = is_refusal(got, row)
      if not right then report("message", got, bar) end
      return
    end
    if row.must == "refuse" then report("refuse", "it was read", row.why) end
    if row.must ~= "refuse_or_equal" then return end
  elseif not ok then
    return report("read", got, "it is read")
  end
  module.compare(got, row, report, values.expected(dir, row))
end

local passed, failed, left, reasons = 0, 0, 0, {}
for _, row in ipairs(manifest.rows) do
  local kind = kind_of[row.format == "hf_hub_layout" and row.format or row.reader or row.format] -- one reader has two forms
  local module, why = module_of(kind)
  why = why or module.left_out and module.left_out(row)
  if only and not only:find("," .. (kind or "") .. ",", 1, true) or text and not (row.file .. " " .. (row.key or "")):find(text, 1, true) then
    goto continue -- another row is asked for
  end
  if why then
    left = left + 1
    local group = ("left out %s: %s"):format(kind or row.reader or row.format, why)
    if not reasons[group] then reasons[#reasons + 1] = group end
    reasons[group] = (reasons[group] or 0) + 1
  else
    local wrong, name = {}, row.file .. (row.key and " " .. row.key or "")
    local function report(quantity, distance, bar)
      wrong[#wrong + 1] = ("FAIL %s: %s: %s (bar %s)"):format(name, quantity, tostring(distance), tostring(bar))
    end
    local ok, e = xpcall(check, debug.traceback, module, row, report)
    if not ok then report("run", e, "no error") end
    for _, line in ipairs(wrong) do print(line) end
    if #wrong > 0 then failed = failed + 1 else passed = passed + 1 end
    if #wrong == 0 and not quiet then print("ok   " .. name) end
  end
  ::continue::
end
for _, group in ipairs(reasons) do print(("%s (%d rows)"):format(group, reasons[group])) end
print(("%d rows, %d passed, %d left out"):format(passed + failed + left, passed, left))
os.exit(failed > 0 and 1 or 0, true)
