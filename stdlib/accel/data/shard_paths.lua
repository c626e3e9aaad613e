--- Names of files for data sets of several files: a path, a list of paths, braces ("train-{000..099}.tar", "{a,b}.jsonl") and
--- patterns ("data/*.parquet") in the last part. Patterns are sorted by name.
local check = require "accel.util.check"
local folders = require "accel.util.folders"
local lfs = require "lfs"
local raise = require "accel.util.raise"

local MOST <const> = 1000000

local function add(who, list, path)
  if #list == MOST then raise("%s: more than %d files", who, MOST) end
  list[#list + 1] = path
end

local function unfold(who, list, path)
  local before, inside, after = path:match "^(.-){([^{}]*)}(.*)$"
  if not before then return add(who, list, path) end
  local first, last = inside:match "^(%d+)%.%.(%d+)$"
  if first then
    local width = first:sub(1, 1) == "0" and #first or 1
    if tonumber(last) < tonumber(first) then raise("%s: {%s} in '%s' counts down", who, inside, path) end
    for i = tonumber(first), tonumber(last) do
      unfold(who, list, before .. ("%0" .. width .. "d"):format(i) .. after)
    end
  elseif inside:find(",", 1, true) then
    for word in (inside .. ","):gmatch "([^,]*)," do unfold(who, list, before .. word .. after) end
  else
    raise("%s: cannot read the braces {%s} in '%s'; write {000..099} or {a,b}", who, inside, path)
  end
end

local function matching(who, list, path)
  local folder, pattern = path:match "^(.*/)([^/]*)$"
  folder, pattern = folder or "", pattern or path
  if folder:find "[*?]" then raise("%s: '%s' has a pattern in a folder's name; use it in the last part", who, path) end
  if not pattern:find "[*?]" then return add(who, list, path) end
  local form = "^" .. pattern:gsub("[%^%$%(%)%%%.%[%]%+%-]", "%%%0"):gsub("%*", ".*"):gsub("%?", ".") .. "$"
  local before = #list
  if lfs.attributes(folder == "" and "." or folder, "mode") == "directory" then
    for _, name in ipairs(folders.names(folder == "" and "." or folder)) do
      if name:find(form) and lfs.attributes(folder .. name, "mode") == "file" then add(who, list, folder .. name) end
    end
  end
  if #list == before then raise("%s: no file matches '%s'", who, path) end
end

--- The files that `paths` names, in order.
---@param who string
---@param paths string|string[]
---@return string[]
return function(who, paths)
  if type(paths) == "string" then paths = { paths } end
  if type(paths) ~= "table" or #paths == 0 then
    raise("%s: expected a path or a list of paths, got %s", who, check.shown(paths))
  end
  local unfolded, list = {}, {}
  for i, path in ipairs(paths) do
    if type(path) ~= "string" then raise("%s: path %d must be a string, got %s", who, i, check.shown(path)) end
    unfold(who, unfolded, path)
  end
  for _, path in ipairs(unfolded) do matching(who, list, path) end
  return list
end
