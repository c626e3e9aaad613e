-- Every example twice in one folder, on one rank and on two where it is for several: the second run continues, writes beside or over what the
-- script names, or ends with the error that the folder holds another run's checkpoints and changes no file. No checkpoint of the first run is
-- lost in silence.
--   ACCEL_TEST_EXAMPLES="24_checkpointing train_gpt": these alone
-- tier: slow
local accel = require "accel"
local src, build, tmp = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_BUILD", os.getenv "ACCEL_TEST_TMP"
local rows = dofile(src .. "/tests/examples/rows.lua")
local wanted = os.getenv "ACCEL_TEST_EXAMPLES"

local function run(folder, how, name, args)
  local command = ("cd '%s' && ACCEL_NUM_THREADS=1 '%s/bin/accel-run' %s '%s/examples/%s.lua' %s"):format(folder, build, how, src, name,
    (args:gsub("~", tmp .. "/")))
  if not args:find "<" then command = command .. " </dev/null" end
  local pipe = assert(io.popen(command .. " 2>&1"))
  local text = pipe:read "a"
  local _, _, status = pipe:close()
  return text, status
end

-- { path = checksum } of a folder.
local function tree(folder)
  local files = {}
  local pipe <close> = assert(io.popen(("cd '%s' && find . -type f -exec cksum {} +"):format(folder)))
  for sum, path in pipe:read "a":gmatch "(%d+ %d+) ([^\n]+)" do files[path] = sum end
  return files
end

-- Folders of checkpoints among them, by what accel-run ckpt knows them by.
local function checkpoints(files)
  local found = {}
  for path in pairs(files) do found[#found + 1] = path:match "^(.*)/MANIFEST%.json$" end
  return found
end

local writers, refused, again, wrong = 0, 0, 0, {}
for _, name in ipairs(rows.names) do
  if not wanted or (" " .. wanted .. " "):find(" " .. name .. " ", 1, true) then
    local row = rows.arguments[name]
    local args, ranks, more = row, nil, ""
    if type(row) == "table" then args, ranks, more = row[1], row[2], row[3] or "" end
    args = args .. " " .. (rows.saving[name] or "")
    for _, n in ipairs { 1, ranks } do
      local folder = assert(accel.mkdtemp(tmp .. "/twice"))
      local how, all = n > 1 and "--num-processes " .. n or "", n > 1 and args .. more or args
      local first, status = run(folder, how, name, all)
      assert(status == 0, ("%s, %d ranks: status %d\n%s"):format(name, n, status, first))
      local before = tree(folder)
      local second, code = run(folder, how, name, all)
      local after = tree(folder)
      local function complain(fmt, ...) wrong[#wrong + 1] = ("%s, %d ranks, second run: "):format(name, n) .. fmt:format(...) end
      writers = writers + (next(before) and 1 or 0)
      if code == 0 then
        again = again + 1
        for _, path in ipairs(checkpoints(before)) do
          if not after[path .. "/MANIFEST.json"] then complain("%s of the first run is gone", path) end
        end
      elseif second:find "another run" then
        refused = refused + 1
        local _, times = second:gsub("another run", "")
        if times ~= 1 then complain("told %d times\n%s", times, second) end
        for path, sum in pairs(before) do
          if after[path] ~= sum then complain("%s was changed by a run that was refused", path) end
        end
        for path in pairs(after) do
          if not before[path] then complain("%s was made by a run that was refused", path) end
        end
      else
        complain("status %d\n%s", code, second)
      end
    end
  end
end
print(("%d runs write files; of the second runs %d end well and %d are refused"):format(writers, again, refused))
assert(#wrong == 0, table.concat(wrong, "\n"))
