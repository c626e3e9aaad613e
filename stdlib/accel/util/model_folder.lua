--- The folder of a model, as from_pretrained of models and tokenizers takes it: what to say when it is not there.

local M = {}

local ENOENT <const>, ENOTDIR <const> = 2, 20

--- The message of a file of the folder that cannot be read; where there is no such folder, or it is a file, that.
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
  return ("%s: no such folder; nothing is downloaded: give the folder of a model, as save_pretrained writes it"):format(dir)
end

return M
