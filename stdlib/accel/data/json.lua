--- data.JSON(path, options): the elements of a JSON file's list as samples. The list is the whole value, or the field that `field` names.
--- The file is read as a whole, and may be compressed. For a value a line use data.JSONL.
local accel = require "accel"
local core = require "accel.file.core"
local check = require "accel.util.check"
local copy_sample = require "accel.data.copy_sample"
local Dataset = require "accel.data.dataset"
local fingerprint = require "accel.data.fingerprint"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- example: return (pcall(accel.data.JSON, "no such file")) --> false
---@class accel.data.JSON : accel.data.Dataset
---@field path string
local JSON = Dataset:extend("accel.data.JSON")

---@param path string
---@param opts? table
---  field string: the field of the top object that holds the list (default: the value itself)
---  columns string[]: the names that samples keep (default: all)
---  nulls boolean = false: keep null in objects, as accel.json.null
---  limit integer = 0: bytes that the file may have, unpacked if it is compressed. 0: 128 MiB and 64 times the size of the file
function JSON:init(path, opts)
  local o = options("JSON", opts, { field = options.none, columns = options.none, nulls = false, limit = 0 })
  if type(path) ~= "string" then raise("JSON: path must be a string, got %s", check.shown(path)) end
  local file <close>, message = core.open_unpacked(path, { limit = o.limit, whole = true })
  if not file then raise("JSON: %s", message) end
  local text = file:read "a":gsub("^\xEF\xBB\xBF", "")
  local ok, value = pcall(accel.json.decode, text, { records = true, nulls = o.nulls })
  if not ok then raise("JSON: %s: %s", path, tostring(value):match "JSON: (.*)" or tostring(value)) end
  if o.field ~= nil then
    value = type(value) == "table" and value[o.field] or nil
    if value == nil then raise("JSON: %s has no field '%s'", path, tostring(o.field)) end
  end
  if type(value) ~= "table" or rawlen(value) == 0 and next(value) ~= nil then
    raise("JSON: %s holds %s, not a list; name the field that holds it (field = \"data\"), or use data.JSONL for a value a line", path,
      type(value) == "table" and "an object" or check.shown(value))
  end
  self.path, self.given, self.rows, self.columns = path, opts, value, o.columns
end

function JSON:len() return #self.rows end

--- The file, for states of loaders: accel.data.fingerprint.
---@return string
function JSON:fingerprint() return fingerprint.files { self.path } end

function JSON:worker_spec() return { module = "accel.data.json", args = { self.path, self.given, n = 2 } } end

---@param i integer
function JSON:get(i)
  self:check_position(i)
  local row = self.rows[i]
  if not self.columns or type(row) ~= "table" then return copy_sample(row) end
  local out = {}
  for _, name in ipairs(self.columns) do out[name] = copy_sample(row[name]) end
  return out
end

return JSON
