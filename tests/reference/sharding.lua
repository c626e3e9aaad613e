-- How data is cut over ranks: every row of a table made by make/make_sharding.py, through prepared loaders on as many
-- ranks as the row says. Rows on one rank go through data.BatchSamplerShard and data.IterableDatasetShard, given to a
-- loader by the script, since a prepared loader has nothing to make even there. The length that a loader reports must
-- be the number of batches it yields; the lengths in the file, some of which are wrong, are not looked at.
--   accel-run tests/reference/sharding.lua FILE
-- The script starts itself once for each number of ranks. It prints the first failures and ends with "N passed, M
-- failed", counted in rows; exit status 1 if anything failed.
local accel = require "accel"
local data = accel.data

local SHOWN <const>, TIME_LIMIT <const> = 20, 300
local path, as_rank = arg[1], arg[2] == "--as-rank"
if not path then
  io.stderr:write "usage: accel-run tests/reference/sharding.lua FILE\n"
  os.exit(2)
end

local function read(name)
  local file, why = io.open(name, "rb")
  local text = file and file:read "a"
  if file then file:close() end
  if not text then return nil, why end
  local ok, decoded, message = pcall(accel.json.decode, text)
  if ok and type(decoded) == "table" then return decoded end
  return nil, name .. ": " .. tostring(ok and message or decoded)
end

local SECTIONS <const> = { "batch_sampler", "iterable", "skip_first_batches" }
local tables, why = read(path)
if not tables then
  print(("FAIL %s"):format(why))
  print "0 passed, 1 failed"
  os.exit(1, true)
end

-- ---- the parent: one launch for each number of ranks ----

local function ranks_of(row) return row.num_processes or 1 end

local function launch(ranks, rows, failures)
  local command = ("timeout %d '%s' --num_processes %d --num_threads 1 '%s' '%s' --as-rank"):format(TIME_LIMIT,
    accel.process.program(), ranks, arg[0], path)
  local passed
  local job <close> = assert(io.popen(command))
  for line in job:lines() do
    local failure = line:match "^FAIL (.*)"
    if failure then failures[#failures + 1] = failure end
    passed = passed or math.tointeger(line:match "^passed (%d+)$")
  end
  if not passed then
    failures[#failures + 1] = ("the launch of %d ranks did not end well: %s"):format(ranks, command)
  end
  return passed or 0, rows - (passed or 0)
end

if not as_rank then
  local count, order = {}, {}
  for _, section in ipairs(SECTIONS) do
    for _, row in ipairs(tables[section] or {}) do
      local P = ranks_of(row)
      if not count[P] then order[#order + 1] = P end
      count[P] = (count[P] or 0) + 1
    end
  end
  table.sort(order)
  local passed, failed, failures = 0, 0, {}
  for _, P in ipairs(order) do
    local good, bad = launch(P, count[P], failures)
    passed, failed = passed + good, failed + bad
  end
  for i = 1, math.min(SHOWN, #failures) do print("FAIL " .. failures[i]) end
  if #failures > SHOWN then print(("... and %d more"):format(#failures - SHOWN)) end
  if #order == 0 then failed = 1 end
  print(("%d passed, %d failed"):format(passed, failed))
  os.exit(failed == 0 and 0 or 1, true)
end

-- ---- a rank ----

local dist = accel.dist
local R, P = dist.get_rank(), dist.get_world_size()

local function text(x)
  if type(x) ~= "table" then return ("%g"):format(x) end
  local parts = {}
  for i, v in ipairs(x) do parts[i] = text(v) end
  return "[" .. table.concat(parts, ",") .. "]"
end

local accelerators = {}
local function accelerator(split, even)
  local key = tostring(split) .. tostring(even)
  accelerators[key] = accelerators[key] or accel.Accelerator {
    dataloader_config = accel.accelerator.DataLoaderConfiguration {
      split_batches = split, even_batches = even, dispatch_batches = false,
    },
  }
  return accelerators[key]
end

local function numbers(n) return data.TensorDataset(accel.arange(n)) end

local Count = data.IterableDataset:extend "Count"
function Count:init(n) self.n = n end
function Count:len() return self.n end
function Count:iterate()
  local i = -1
  return function()
    i = i + 1
    return i < self.n and i or nil
  end
end

--- Raises unless a loader yields these batches and says how many they are, in two epochs.
local function yields(loader, want, values)
  for _ = 1, 2 do
    local reported, got = loader:len(), {}
    for batch in loader() do got[#got + 1] = values(batch) end
    if text(got) ~= text(want) then error(("%s, not %s"):format(text(got), text(want)), 0) end
    if reported ~= #got then error(("reports %d batches and yields %d"):format(reported, #got), 0) end
  end
end

local function first_tensor(batch) return batch[1]:tolist() end

local run = {}

function run.batch_sampler(row)
  local split, even, n, b = row.split_batches, row.even_batches, row.n, row.batch_size
  local loader
  if P == 1 then
    local all = data.BatchSampler(data.SequentialSampler(n), b, { drop_last = row.drop_last })
    loader = data.DataLoader(numbers(n), {
      batch_sampler = data.BatchSamplerShard(all, 1, 0, { split_batches = split, even_batches = even }),
    })
  else
    loader = data.DataLoader(numbers(n), { batch_size = b, drop_last = row.drop_last })
  end
  yields(accelerator(split, even):prepare(loader), row.process[R + 1], first_tensor)
end

function run.iterable(row)
  local split, b, want = row.split_batches, row.batch_size, row.process[R + 1]
  local set = Count(row.n)
  if P == 1 then
    set = data.IterableDatasetShard(set, { batch_size = b, drop_last = row.drop_last, split_batches = split })
  end
  local loader = accelerator(split, true):prepare(data.DataLoader(set, { batch_size = b, drop_last = row.drop_last }))
  local size, batches = split and b // P or b, {}
  for i, x in ipairs(want) do -- the file lists samples
    local k = (i - 1) // size + 1
    batches[k] = batches[k] or {}
    table.insert(batches[k], x)
  end
  yields(loader, batches, function(batch) return batch:tolist() end)
end

function run.skip_first_batches(row)
  local function rest(loader)
    local seen = accel.accelerator.skip_first_batches(loader, row.skip)
    local reported, got = seen:len(), {}
    for batch in seen() do got[#got + 1] = first_tensor(batch) end
    if text(got) ~= text(row.batches) then error(("%s, not %s"):format(text(got), text(row.batches)), 0) end
    if reported ~= #got then error(("reports %d batches and yields %d"):format(reported, #got), 0) end
    return loader
  end
  local function plain() return data.DataLoader(numbers(row.n), { batch_size = row.batch_size }) end
  rest(plain())
  local loader = rest(accelerator(false, true):prepare(plain()))
  local whole = {} -- the loader itself is as it was
  for i = 0, row.n - 1 do
    local k = i // row.batch_size + 1
    whole[k] = whole[k] or {}
    table.insert(whole[k], i)
  end
  yields(loader, whole, first_tensor)
end

local failures, rows = {}, 0
for _, section in ipairs(SECTIONS) do
  for i, row in ipairs(tables[section] or {}) do
    if ranks_of(row) == P then
      rows = rows + 1
      local ok, message = pcall(run[section], row)
      if row.error then ok, message = not ok, "no error, there is one in the file: " .. row.error end
      if not ok then
        local fmt = "%s[%d] n=%d batch_size=%d split=%s even=%s drop=%s skip=%s: rank %d of %d: %s"
        failures[rows] = fmt:format(section, i - 1, row.n, row.batch_size, tostring(row.split_batches), tostring(row.even_batches),
          tostring(row.drop_last), tostring(row.skip), R, P, tostring(message))
      end
    end
  end
end

local everywhere = dist.all_gather_object(failures)
if R == 0 then
  local passed = rows
  for i = 1, rows do
    local failure
    for r = 1, P do failure = failure or everywhere[r][i] end
    if failure then
      passed = passed - 1
      print("FAIL " .. failure)
    end
  end
  print(("passed %d"):format(passed))
end
