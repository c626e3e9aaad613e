--- Indices of data sets over indexed files, made once and kept in a folder: index_cache(folder, indexed, who, text, make). Used by
--- gpt_dataset.lua and masked_dataset.lua.
local accel = require "accel"
local open_read = require("accel.file.core").open_read

--- The name of the indices, from all their inputs. The sum of the sequences' starts distinguishes lengths in another
--- order.
local function key_of(indexed, who, text)
  text = ("%s|%d|%d|%d|%s"):format(indexed.prefix:match "[^/]*$", #indexed, indexed.sequence_lengths:sum():item(),
    indexed.sequence_pointers:sum():item(), text)
  local h = 0xcbf29ce484222325 -- FNV-1a
  for i = 1, #text do h = (h ~ text:byte(i)) * 0x100000001b3 end
  return ("%016x-%s"):format(h, who)
end

---@param folder string? nil: made anew each time
---@param indexed accel.data.IndexedDataset
---@param who string the data set
---@param text string the options that the indices follow from
---@param make fun(): table<string, accel.Tensor>
---@return table<string, accel.Tensor>
return function(folder, indexed, who, text, make)
  if not folder then return make() end
  local path = ("%s/%s.safetensors"):format(folder, key_of(indexed, who, text))
  local known = open_read(path)
  if known then
    known:close()
    return accel.load(path)
  end
  local made = make()
  assert(accel.makedirs(folder))
  assert(accel.save(path, made))
  return made
end
