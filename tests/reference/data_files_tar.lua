-- tar archives for data_files.lua: members, and samples by WebDataset's conventions.
local accel = require "accel"
local core = require "accel.file.core"
local sha256 = require("accel.track.core").sha256
local values = require "data_values"

local M = {}

local function content(bytes) return { size = #bytes, sha256 = sha256(bytes) } end

local function members(path)
  local names <const> = { file = "file", folder = "dir", link = "link", symlink = "symlink", other = "other" }
  local tar, message = core.open_tar(path)
  if not tar then return nil, message end
  local out = {}
  while true do
    local name, kind = tar:next()
    if not name then
      if kind then return nil, kind end
      return { members = out }
    end
    local member = { name = name:gsub("/$", ""), type = names[kind] }
    if kind == "file" then
      local bytes, why = tar:read()
      if not bytes then return nil, why end
      member.content = content(bytes)
    end
    out[#out + 1] = member
  end
end

function M.read(path, row, dir)
  if row.format == "tar" then return members(path) end
  local set = accel.data.WebDataset(row.url and dir .. "/" .. row.url or path)
  local out = {}
  for sample in set:iterate(0, 0) do
    local fields = {}
    for name, bytes in pairs(sample) do
      if name ~= "__key__" then fields[name] = content(bytes) end
    end
    out[#out + 1] = { key = sample.__key__, fields = fields }
  end
  return { samples = out }
end

function M.compare(got, _, report, want)
  for _, sample in ipairs(want.samples or {}) do
    local fields = {}
    for _, pair in ipairs(sample.fields) do
      fields[pair[1]] = pair[2]
      pair[2].text = nil
    end
    sample.fields = fields
  end
  for _, member in ipairs(want.members or {}) do
    if member.content then member.content.text = nil end
  end
  values.tree(report, "archive", got, want)
end

return M
