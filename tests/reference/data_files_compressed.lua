-- Compressed files for data_files.lua: the size and SHA-256 of the content, read as a stream.
local core = require "accel.file.core"
local sha256 = require("accel.track.core").sha256
local values = require "data_values"

local M = {}

--- The content is hashed up to 8 MiB, which files of the set that are to be equal do not reach. The rest is only counted.
function M.read(path, row)
  local stream, message = core.open_stream(path)
  if not stream then return nil, message end
  if row.format ~= "lzma" and not stream:codec() then return nil, path .. ": not compressed" end
  local size, parts = 0, {}
  while true do
    local piece
    piece, message = stream:read(1 << 16)
    if not piece then break end
    size, parts[#parts + 1] = size + #piece, piece
    if size >= 8 << 20 then
      local rest
      rest, message = stream:skip(1 << 40)
      size = size + (rest or 0)
      break
    end
  end
  stream:close()
  if message then return nil, message end
  return { size = size, sha256 = sha256(table.concat(parts)) }
end

function M.compare(got, _, report, want) values.tree(report, "content", got, want) end

return M
