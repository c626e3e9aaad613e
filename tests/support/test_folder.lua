--- A folder of a test that starts programs: files in it, a port for machines that are processes of this one, and a check of texts.
---   local folder = dofile((arg[0]:match "^.*/" or "") .. "../../support/test_folder.lua") "secret"
local accel = require "accel"

---@param name string beginning of the folder's name
---@return {root: string, program: string?, port: integer, write: fun(name: string, text: string), read: (fun(name: string): string),
---  has: fun(text: string, part: string)}
return function(name)
  local root = assert(accel.mkdtemp(("%s/%s-"):format(os.getenv "ACCEL_TEST_TMP" or "/tmp", name)))
  local pid <close> = assert(io.open "/proc/self/stat")
  return {
    root = root, program = accel.process.program(), port = 20000 + accel.util.Random((pid:read "n")):below(9000),
    write = function(file_name, text)
      local file <close> = assert(io.open(root .. "/" .. file_name, "w"))
      file:write(text)
    end,
    read = function(file_name) -- "" where it is missing
      local file <close> = io.open(root .. "/" .. file_name, "rb")
      return file and file:read "a" or ""
    end,
    has = function(text, part) assert(text:find(part, 1, true), ("lacks %q:\n%s"):format(part, text)) end,
  }
end
