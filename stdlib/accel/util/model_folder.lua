--- The folder of a model, as from_pretrained of models and tokenizers takes it: the message if it is missing.

local M = {}

local ENOENT <const>, ENOTDIR <const> = 2, 20

--- The message for an unreadable file of the folder, or for a missing folder, or for a file in its place.
---@param dir string
---@param message string?
---@return string
function M.missing(dir, message)
  local folder, _, errno = io.open(dir .. "/.", "rb")
  if folder then folder:close() end
  if errno == ENOTDIR then
    return ("%s: is a file; give the folder of a model%s"):format(dir, dir:find "%.gguf$" and " (accel-run gguf import makes one of it)" or "")
  end
  if errno ~= ENOENT then return message or dir end
  return ("%s: no such folder, and nothing is downloaded; give the folder of a model, as save_pretrained writes it"):format(dir)
end

return M
