--- data.DatasetFolder: files in one folder for each class, as torchvision.datasets.DatasetFolder: root/cat/1.bin, root/dog/sub/2.bin. The base of
--- vision.ImageFolder and audio.AudioFolder, which decode the files.
---
---   local set = accel.data.DatasetFolder("root", { extensions = { "txt" } })
---   set:get(1)                                      -- { path of a file, number of its class, from 0 }
---
--- Classes and files are sorted by the bytes of their names. Files in deeper folders and hidden files count. Files with other extensions do not.
local accel = require "accel"
local check = require "accel.util.check"
local Dataset = require "accel.data.dataset"
local fingerprint = require "accel.data.fingerprint"
local lfs = require "lfs"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

--- example: local dir = accel.mkdtemp "/tmp/example-" require "lfs".mkdir(dir .. "/a") accel.write_file(dir .. "/a/1.txt", "x")
---   return accel.data.DatasetFolder(dir):get(1)[2] --> 0
---@class accel.data.DatasetFolder : accel.data.Dataset
---@field root string
---@field classes string[]
---@field class_to_idx table<string, integer> number of a class, from 0
---@field samples table[] { path, number of the class } each
---@field targets integer[] numbers of classes
local DatasetFolder = Dataset:extend("accel.data.DatasetFolder")

local MAX_DEPTH <const> = 64 -- of folders: links may lead in circles

--- Folders below `path`, itself first, as text in order, and files of one folder.
local function walk(path, depth, out)
  if depth > MAX_DEPTH then raise("%s: folders are nested more than %d deep; does a link lead back?", path, MAX_DEPTH) end
  local names, message = accel.listdir(path)
  if not names then raise("%s", message) end
  local files = {}
  for _, name in ipairs(names) do
    local mode = lfs.attributes(path .. "/" .. name, "mode")
    if mode == "directory" then walk(path .. "/" .. name, depth + 1, out)
    elseif mode == "file" then files[#files + 1] = name end
  end
  out[#out + 1] = { path = path, files = files }
  return out
end

local function has_extension(name, extensions)
  if not extensions then return true end
  local extension = name:match "%.([^.]*)$"
  return extension ~= nil and extensions[extension:lower()] ~= nil
end

local function find_classes(who, root)
  local names, message = accel.listdir(root)
  if not names then raise("%s: %s", who, message) end
  local classes = {}
  for _, name in ipairs(names) do
    if lfs.attributes(root .. "/" .. name, "mode") == "directory" then classes[#classes + 1] = name end
  end
  table.sort(classes)
  if #classes == 0 then raise("%s: %s has no folder; expected one for each class", who, root) end
  return classes
end

--- Fills classes and samples from the folder. For subclasses.
---@param who string for messages
---@param root string
---@param extensions? string[]
---@param allow_empty? boolean
function DatasetFolder:scan(who, root, extensions, allow_empty)
  local known = extensions and {}
  for _, e in ipairs(extensions or {}) do known[e:lower():gsub("^%.", "")] = true end
  self.root, self.classes, self.class_to_idx, self.samples, self.targets = root, find_classes(who, root), {}, {}, {}
  for k, class in ipairs(self.classes) do
    self.class_to_idx[class] = k - 1
    local folders, before = walk(root .. "/" .. class, 1, {}), #self.samples
    table.sort(folders, function(a, b) return a.path < b.path end)
    for _, folder in ipairs(folders) do
      table.sort(folder.files)
      for _, name in ipairs(folder.files) do
        if has_extension(name, known) then
          self.samples[#self.samples + 1] = { folder.path .. "/" .. name, k - 1 }
          self.targets[#self.targets + 1] = k - 1
        end
      end
    end
    if #self.samples == before and not allow_empty then
      raise("%s: %s/%s has no file%s; set allow_empty to accept that", who, root, class,
        extensions and " with an extension of " .. table.concat(extensions, ", ") or "")
    end
  end
end

--- - extensions: those that count, without their dot. The default is all
--- - transform: a function of the loaded file
--- - target_transform: a function of the class's number
--- - allow_empty: accept classes without files
---@param root string
---@param opts? {extensions: string[]?, transform: function?, target_transform: function?, allow_empty: boolean?}
function DatasetFolder:init(root, opts)
  local o = options("DatasetFolder", opts, { extensions = options.none, transform = options.none, target_transform = options.none,
    allow_empty = false })
  if type(root) ~= "string" then raise("DatasetFolder: root must be a string, got %s", check.shown(root)) end
  self:scan("DatasetFolder", root, o.extensions, o.allow_empty)
  self.transform, self.target_transform, self.plain = o.transform, o.target_transform, { extensions = o.extensions, allow_empty = o.allow_empty }
  self.maker = "accel.data.dataset_folder:make"
end

--- The value of a file. Subclasses decode it here.
---@param path string
---@return any
function DatasetFolder:load(path) return path end -- luacheck: ignore self

function DatasetFolder:len() return #self.samples end

--- The names of the files, for states of loaders: accel.data.fingerprint.
---@return string
function DatasetFolder:fingerprint()
  local paths = {}
  for i, sample in ipairs(self.samples) do paths[i] = sample[1] end
  return fingerprint.files(paths, true)
end

function DatasetFolder:get(i)
  self:check_position(i)
  local path, class = self.samples[i][1], self.samples[i][2]
  local value = self:load(path)
  if self.transform then value = self.transform(value) end
  if self.target_transform then class = self.target_transform(class) end
  return { value, class }
end

--- For workers: transforms travel by their own worker_spec.
function DatasetFolder:worker_spec()
  return { module = self.maker, args = { self.root, self.plain, self.transform or false, self.target_transform or false, n = 4 } }
end

--- The constructor as workers call it.
local function maker(class)
  return function(root, plain, transform, target_transform)
    local o = { transform = transform or nil, target_transform = target_transform or nil }
    for key, value in next, plain do o[key] = value end
    return class(root, o)
  end
end

return { DatasetFolder = DatasetFolder, maker = maker, make = maker(DatasetFolder) }
