--- What a data set reads, as a short text. Loaders keep it in their state, so that a pass over other data is not continued as if it were
--- the same one. Used by accel.data.dataloader and accel.accelerator.loader.
---
--- A data set names what it reads in the method fingerprint(). Files count by their order, their names below the folder that they share,
--- and their sizes: the same files in another folder, or on another machine, are the same data. Functions of map and filter cannot be
--- compared and do not count. Data in memory counts by a sample of its text, integers and shapes, without fractions, whose last bits may
--- differ between machines. Any other data set with len counts by its length, with a warning, and other streams are not compared.
local accel = require "accel"
local core = require "accel.file.core"
local lfs = require "lfs"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local M = {}

local MOST_SIZES <const> = 10000 -- beyond it, names alone count: to ask for a size takes milliseconds on some network disks
local MOST_TEXT <const> = 200

--- The part of all paths up to the last slash that they share.
local function common(paths)
  local folder = paths[1] and paths[1]:match "^.*/" or ""
  for _, path in ipairs(paths) do
    while folder ~= "" and path:sub(1, #folder) ~= folder do folder = folder:sub(1, -2):match "^.*/" or "" end
  end
  return folder
end

--- A checksum of a list of texts or numbers, as 8 digits.
---@param list (string|number)[]
---@return string
function M.hash(list) return ("%08x"):format(core.crc32(table.concat(list, "\0"))) end

--- "3 files, 1f0a22c7".
---@param paths string[]
---@param names_only? boolean
---@return string
function M.files(paths, names_only)
  local from, parts = #common(paths) + 1, {}
  for i, path in ipairs(paths) do
    parts[2 * i - 1] = path:sub(from)
    parts[2 * i] = not names_only and #paths <= MOST_SIZES and lfs.attributes(path, "size") or -1
  end
  return ("%d file%s, %s"):format(#paths, #paths == 1 and "" or "s", M.hash(parts))
end

local SAMPLED <const>, MOST_PARTS <const>, MOST_DEPTH <const> = 64, 4096, 8

local function positions(n)
  local list = {}
  for k = 1, math.min(n, SAMPLED) do list[k] = n <= SAMPLED and k or 1 + (k - 1) * (n - 1) // (SAMPLED - 1) end
  return list
end

--- The bytes of the tensor of integers or booleans that `choose` returns. nil for others, and if there are no values.
local function whole_bytes(t, choose)
  local whole = t.dtype:find "^[iu]%d+$" or t.dtype == "bool"
  if not whole or t:numel() == 0 or tostring(t.device):find "meta" then return nil end
  return choose(t:detach()):to "cpu":contiguous():to_bytes()
end

local function beginning(t) return t:reshape(-1):narrow(1, 1, math.min(t:numel(), SAMPLED)) end

--- Appends what does not depend on the machine: the structure, text, integers, shapes.
local function describe(parts, v, depth)
  if #parts > MOST_PARTS then return end
  local kind = math.type(v) or type(v)
  parts[#parts + 1] = kind
  if kind == "string" or kind == "integer" or kind == "boolean" then parts[#parts + 1] = tostring(v)
  elseif tensors.is_tensor(v) then
    parts[#parts + 1] = v.dtype .. tensors.shape_string(v)
    parts[#parts + 1] = whole_bytes(v, beginning)
  elseif kind == "table" and depth < MOST_DEPTH then
    for key, x in accel.pairs(v) do
      parts[#parts + 1] = tostring(key)
      describe(parts, x, depth + 1)
    end
  end
end

--- "5 values, 1f0a22c7": the entries of a list.
---@param list any[]
---@return string
function M.values(list)
  local parts = {}
  for k, i in ipairs(positions(#list)) do
    parts[#parts + 1] = tostring(k)
    describe(parts, list[i], 0)
  end
  return ("%d values, %s"):format(#list, M.hash(parts))
end

--- "100 rows, 1f0a22c7": dtypes and shapes of tensors with equal first dimensions, and rows of those of integers.
---@param list accel.Tensor[]
---@return string
function M.tensors(list)
  local parts, n = {}, list[1].shape[1]
  local at = {}
  for k, i in ipairs(positions(n)) do at[k] = i - 1 end
  for _, t in ipairs(list) do
    parts[#parts + 1] = t.dtype .. tensors.shape_string(t)
    parts[#parts + 1] = whole_bytes(t, function(x) return x:index_select(1, accel.tensor(at, { dtype = "i64", device = x.device })) end)
  end
  return ("%d rows, %s"):format(n, M.hash(parts))
end

--- The text of a data set that is made from another one, or from several. nil if one of them has none.
---@param what string
---@param ... table
---@return string?
function M.over(what, ...)
  local parts = {}
  for i, source in ipairs { ... } do
    parts[i] = M.of(source)
    if not parts[i] then return nil end
  end
  local text = ("%s of (%s)"):format(what, table.concat(parts, "; "))
  if #text <= MOST_TEXT then return text end
  return ("%s of %d sources, %s"):format(what, #parts, M.hash { text })
end

local told = false -- once for the process: a loader may be restored often

local known = setmetatable({}, { __mode = "k" }) -- a state is saved often, and there may be a million files

--- The text of a data set. nil: unknown.
---@param dataset table
---@return string?
function M.of(dataset)
  if type(dataset.fingerprint) == "function" then
    if known[dataset] == nil then known[dataset] = dataset:fingerprint() or false end
    return known[dataset] or nil
  end
  if dataset.iterate == nil and dataset.len then return ("%d samples"):format(dataset:len()) end
  return nil
end

--- Raises if a state is from the middle of a pass over other data.
---@param state table result of a loader's state_dict
---@param dataset table
function M.check(state, dataset)
  local saved = state.data
  if saved == nil then return end -- of a stream that is not known, or of an older version
  local own = M.of(dataset)
  if own == saved then
    local count = own:match "%f[%d](%d+) samples%f[^%a]"
    if count and not told then
      told = true
      warn(("DataLoader: the pass continues over a data set that is known by its length alone (%s samples), so other data of this length \z
        would not be noticed; give the data set a method fingerprint() that returns a text, such as its version"):format(count))
    end
    return
  end
  if type(saved) == "string" and saved:find "^%d+ samples$" and dataset.len and saved == ("%d samples"):format(dataset:len()) then
    return -- of a version that knew this data set by its length
  end
  if own == nil then
    raise("DataLoader: the state is from a pass over %s; the data set of this loader does not tell what it reads (a method fingerprint(), \z
      which returns a text); give it the same data set, or set_epoch(%d) to begin the pass anew", tostring(saved), state.epoch)
  end
  raise("DataLoader: the state is from a pass over other data: %s; this loader reads %s; give it the same files (names, sizes, order) \z
    and the same steps, or set_epoch(%d) to begin the pass anew", tostring(saved), own, state.epoch)
end

return M
