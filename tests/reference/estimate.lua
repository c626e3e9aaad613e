-- What estimate-memory says: every row of estimate.json, for the configurations in DIR/<model>/config.json or, where the rows are those of
-- the committed models, MODELS/<model>/config.json.
--   accel-run tests/reference/estimate.lua DIR [MODELS]
-- Prints the first failures and ends with "N passed, M failed"; exit status 1 if anything failed. Columns of the recorded table are as wide
-- as the maker's path made its title, so that cells are compared, not blanks. Names of layers are Transformers' of today; where a folder of an
-- older one differs (ViT), the number of largest layers is.
local accel = require "accel"
local estimate = require "accel.models.estimate"
local here = arg[0]:match "^.*/" or ""
local tools = dofile(here .. "trees.lua")
local convert_bytes = accel.accelerator.convert_bytes

local SHOWN <const> = 20
local dir = arg[1]
if not dir then
  io.stderr:write "usage: accel-run tests/reference/estimate.lua DIR [MODELS]\n"
  os.exit(2)
end

local passed, failures = 0, {}
local function check(name, made, wanted)
  if tools.equal(made, wanted) then
    passed = passed + 1
  else
    failures[#failures + 1] = ("%s: made %s, wanted %s"):format(name, accel.inspect(made), accel.inspect(wanted))
  end
end

local function exists(path)
  local f = io.open(path, "rb")
  if f then f:close() end
  return f ~= nil
end

local function folder_of(name)
  for _, root in ipairs { dir, arg[2] or here .. "files", dir .. "/../files" } do
    if exists(root .. "/" .. name .. "/config.json") then return root .. "/" .. name end
  end
end

local function cells(line)
  local out = {}
  for cell in line:gmatch "[^│|]+" do out[#out + 1] = cell:match "^%s*(.-)%s*$" end
  return out
end

local function run(row)
  local folder = folder_of(row.model)
  if not folder then
    failures[#failures + 1] = row.model .. ": its config.json is not there"
    return
  end
  local made, message = estimate.of_folder(folder)
  if not made then
    failures[#failures + 1] = ("%s: %s"):format(row.model, message)
    return
  end
  check(row.model .. " class", made.class, row.class)
  check(row.model .. " total", made.total, row.total_bytes)
  check(row.model .. " largest layer", made.largest_layer, row.largest_layer[1])
  check(row.model .. " layers", #made.layers, #row.largest_layer[2])
  check(row.model .. " parameters", made.parameters, row.parameters)
  for dtype, wanted in accel.pairs(row.estimate) do
    local name = row.model .. " " .. dtype
    local layer, total, training = estimate.in_dtype(made.largest_layer, dtype), estimate.in_dtype(made.total, dtype),
      estimate.training(made.total, dtype)
    check(name .. " largest layer", layer, wanted.largest_layer)
    check(name .. " total", total, wanted.total)
    check(name .. " training", training or { model = -1, gradients = -1, optimizer = -1, step = -1 }, wanted.training)
  end
  local pipe = assert(io.popen(("LC_ALL=C.UTF-8 '%s' estimate-memory '%s'"):format(accel.process.program(), folder)))
  local lines = {}
  for line in pipe:lines() do lines[#lines + 1] = line end
  pipe:close()
  check(row.model .. " table's lines", #lines, #row.table)
  local width = utf8.len(lines[1] or "")
  for i, wanted in ipairs(row.table) do
    local line = lines[i] or ""
    check(("%s table, width of line %d"):format(row.model, i), utf8.len(line), width)
    if wanted:find "│" then
      check(("%s table, line %d"):format(row.model, i), cells((line:gsub(folder, row.model, 1))), cells(wanted))
    else
      check(("%s table, rule %d"):format(row.model, i), (line:gsub("─", "")), (wanted:gsub("─", "")))
    end
  end
end

local loaded, data = pcall(function()
  local file <close> = assert(io.open(dir .. "/estimate.json", "rb"))
  return accel.json.decode(file:read "a")
end)
if loaded then
  for _, row in ipairs(data.rows) do run(row) end
  for _, pair in ipairs(data.convert_bytes) do check("convert_bytes " .. pair[1], convert_bytes(pair[1]), pair[2]) end
else
  failures[1] = tostring(data)
end
for i = 1, math.min(SHOWN, #failures) do print("FAIL " .. failures[i]) end
if #failures > SHOWN then print(("... and %d more"):format(#failures - SHOWN)) end
print(("%d passed, %d failed"):format(passed, #failures))
os.exit(#failures == 0 and 0 or 1, true)
