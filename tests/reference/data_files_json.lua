-- JSON Lines and JSON files for data_files.lua: typed values, pairs in the order of the file.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local read_file = require "accel.util.read_file"
local sha256 = require("accel.track.core").sha256

local M = {}

local OPTIONS <const> = { nulls = true, ordered = true }

function M.read(path, row)
  if row.format == "jsonl" then
    local set, out = accel.data.JSONL(path, OPTIONS), { n = 0 }
    for i = 1, #set do out.n, out[i] = i, set:get(i) end
    return out
  end
  local text, message = read_file(path, 1 << 26)
  if not text then return nil, message end
  local ok, value = pcall(accel.json.decode, text:gsub("^\xEF\xBB\xBF", ""), { nulls = true, ordered = true, records = true })
  if not ok then return nil, path .. ": " .. tostring(value) end
  return { n = 1, value }
end

--- Whether a value is what the typed JSON describes. Integers beyond 64 bits are text.
local function same(got, want)
  if want.int then return tostring(got) == want.int and math.type(got) ~= "float" end
  if want.float then
    if want.float == "nan" then return got ~= got end
    if want.float:find "inf" then return got == (want.float:sub(1, 1) == "-" and -math.huge or math.huge) end
    return math.type(got) == "float" and got == tonumber(want.hex)
  end
  if want.str then return got == want.str end
  if want.null ~= nil then return got == accel.json.null end
  if want.bool ~= nil then return got == want.bool end
  if want.str_sha256 or want.sha256 then return type(got) == "string" and sha256(got) == (want.str_sha256 or want.sha256) end
  if want.list then
    if type(got) ~= "table" or #got ~= #want.list then return false end
    for i, w in ipairs(want.list) do
      if not same(got[i], w) then return false end
    end
    return true
  end
  if type(got) ~= "table" or not ordered.is(got) then return false end
  local k = 0
  for name, value in pairs(got) do
    k = k + 1
    local pair = want.dict[k]
    if not pair or pair[1] ~= name or not same(value, pair[2]) then return false end
  end
  return k == #want.dict
end

function M.compare(got, row, report, want)
  local list = row.format == "jsonl" and want.documents or { want.value }
  if got.n ~= #list then return report("documents", got.n, #list) end
  for i, w in ipairs(list) do
    if not same(got[i], w) then report("document " .. i, "another value", accel.json.encode(w):sub(1, 200)) end
  end
end

return M
