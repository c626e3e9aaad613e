--- accel.ckpt: checkpoints that are there whole or not at all. A save writes into a temporary folder, brings everything to disk and
--- renames it; several ranks write into one. What is in it is named with sizes and checksums in MANIFEST.json, which is checked before
--- anything is believed. accelerator:save_state and load_state stand on this.
---
---   local save = assert(accel.ckpt.create "runs/a/step-100")
---   save:add_tensors("model.safetensors", { { name = "w", tensor = w } })
---   save:start { state = { step = 100 }, asynchronous = true }     -- training may go on
---   assert(save:wait())                                            -- now it is on disk
---   local c = assert(accel.ckpt.open(assert(accel.ckpt.newest "runs/a")))
---   assert(c:read("model", "w", w))
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.ckpt.core"
local options = require "accel.util.options"
local raise = require "accel.util.raise"

local POLL_SECONDS <const> = 0.05

local M = {}

-- ---- saving ----

--- A checkpoint that is being written, from accel.ckpt.create: add_tensors, add_bytes, start, then wait; or abort.
--- example: local name = os.tmpname() os.remove(name)
---  local save = accel.ckpt.create(name) save:add_bytes("x", "bytes") return save:abort() --> false
---@class accel.ckpt.Save
---@field folder string the temporary folder, which part 0 gives to the others
---@field path string
local Save = class("accel.ckpt.Save")
M.Save = Save

-- The asynchronous save whose copy is in use: the next one waits for it.
local writing

function Save:init(native, path, folder)
  self.native, self.path, self.folder = native, path, folder
end

--- Begins a checkpoint at path: a save to which files are added; or nil, message, code. It is an error when path exists, unless
--- `replace` is set, which removes the old checkpoint once the new one is on disk. Of several ranks that write one checkpoint each is a
--- part; part 0 makes the folder, and the others get its save.folder.
--- example: accel.ckpt.create "/proc/none/x" == nil --> true
---@param path string
---@param opts? {part: integer?, parts: integer?, folder: string?, replace: boolean?}
---@return accel.ckpt.Save? save
---@return string? message
---@return string? code
function M.create(path, opts)
  local native, folder, code = core.create(path, opts)
  if not native then return nil, folder, code end
  return Save(native, path, folder)
end

local function on_host(t)
  if t.device == "cpu" and t:is_contiguous() then return t, false end
  return accel.no_grad(function() return t:detach():to("cpu"):contiguous() end), true
end

--- Adds a safetensors file. What the file's first component names without its ending is the object that it belongs to: "model" of
--- "model.safetensors" and of "model/shard-00001-model-00001-of-00001.safetensors". A part of a larger tensor gives the whole one's
--- shape and the offsets (from 0) at which it begins.
---@param file string relative to the folder; subfolders are made
---@param list {name: string, tensor: accel.Tensor, shape: integer[]?, offsets: integer[]?}[]
---@param metadata? table<string, string>
function Save:add_tensors(file, list, metadata)
  check.object(self, "save", "add_tensors")
  if type(list) ~= "table" then raise("add_tensors: expected a list of tensors, got %s", check.shown(list)) end
  local items = {}
  for i, item in ipairs(list) do
    if type(item) ~= "table" or not accel.is_tensor(item.tensor) then
      raise("add_tensors: item %d is not { name =, tensor = }", i)
    end
    local t, copied = on_host(item.tensor)
    items[i] = { name = item.name, tensor = t, shape = item.shape, offsets = item.offsets, copied = copied }
  end
  self.native:add_tensors(file, items, metadata)
end

--- Adds a small file of any contents.
---@param file string
---@param bytes string
function Save:add_bytes(file, bytes)
  check.object(self, "save", "add_bytes")
  self.native:add_bytes(file, bytes)
end

--- Begins to write. state is the manifest's own part, plain data (part 0). asynchronous: tensors are copied now and may change
--- afterwards; otherwise they must stay as they are until wait has returned. A second asynchronous save waits for the first.
---@param opts? {state: table?, asynchronous: boolean?}
function Save:start(opts)
  check.object(self, "save", "start")
  local o = options.check("start", opts, { state = options.none, asynchronous = false })
  if o.asynchronous then
    while writing and writing:poll(POLL_SECONDS) == nil do end
    writing = nil
  end
  self.native:start(o.state and accel.json.encode(o.state), o.asynchronous)
  if o.asynchronous then writing = self.native end
end

--- Bytes of this part that were written, and all of them.
---@return integer written
---@return integer all
function Save:progress() return self.native:progress() end

--- Keeps what the save came to, where it is over.
local function poll(self, seconds)
  if self.over then return true end
  local ok, message, code = self.native:poll(seconds)
  if ok == nil then return false end
  self.over, self.ok, self.message, self.code = true, ok, message, code
  if writing == self.native then writing = nil end
  return true
end

--- Whether it is over, well or not: wait tells which at once.
---@return boolean
function Save:done()
  return poll(self, 0)
end

--- Waits until the checkpoint is committed and on disk, which all parts learn at once: true; or nil, message, code when it failed, of
--- which nothing is left then. Other work of the host is served meanwhile: interrupts, and the end of the world of ranks.
---@param seconds? number at most; nil, message, "timeout" when it is not over by then
---@return boolean? ok
---@return string? message
---@return string? code
function Save:wait(seconds)
  local ends = accel.clock() + (seconds or math.huge)
  while not poll(self, math.min(POLL_SECONDS, seconds or POLL_SECONDS)) do
    if accel.clock() >= ends then return nil, self.path .. ": the save is under way", "timeout" end
  end
  if self.ok then return true end
  return nil, self.message, self.code
end

--- Gives the save up, on all parts, and waits until nothing of it is left. One that was committed meanwhile stays: true then.
---@return boolean committed
function Save:abort()
  self.native:abort()
  while not poll(self, POLL_SECONDS) do end
  return self.ok
end

-- ---- reading ----

--- A checkpoint that is whole, from accel.ckpt.open: its manifest, its tensors by object and name, its small files.
--- example: accel.ckpt.open "/nowhere" --> nil, "/nowhere: cannot open the checkpoint: No such file or directory", "not_found"
---@class accel.ckpt.Reader
---@field path string
---@field manifest {version: string, accel: string, id: string, created: string, parts: integer, files: table[], state: table}
local Reader = class("accel.ckpt.Reader")
M.Reader = Reader

function Reader:init(native, path, manifest)
  self.native, self.path, self.manifest = native, path, manifest
end

--- Opens a committed checkpoint, its manifest and all sizes checked; or nil, message, code: "not_found" where there is none, "parse"
--- where it is damaged, "unsupported" where a later release wrote it.
--- example: select(3, accel.ckpt.open "/nowhere") --> "not_found"
---@param path string
---@return accel.ckpt.Reader? checkpoint
---@return string? message
---@return string? code
function M.open(path)
  local native, text, code = core.open(path)
  if not native then return nil, text, code end
  return Reader(native, path, accel.json.decode(text))
end

--- Names of what was saved: "model", "optimizer", "model_1".
---@return string[]
function Reader:objects() return self.native:objects() end

--- The whole tensors of an object, whatever parts wrote them; or nil, message, code.
---@param object string
---@return {name: string, dtype: accel.DType, shape: integer[], bytes: integer}[]?
---@return string? message
---@return string? code
function Reader:tensors(object) return self.native:tensors(object) end

--- Reads a tensor, or the part of it that has the destination's shape and begins at `offsets` (from 0), into a tensor of the same
--- dtype; true, or nil, message, code: the destination then holds anything.
---@param object string
---@param name string
---@param tensor accel.Tensor
---@param offsets? integer[]
---@return boolean? ok
---@return string? message
---@return string? code
function Reader:read(object, name, tensor, offsets)
  if tensor.device == "cpu" and tensor:is_contiguous() then return self.native:read(object, name, tensor, offsets) end
  return accel.no_grad(function()
    local host = accel.empty(tensor.shape, { dtype = tensor.dtype, device = "cpu" })
    local ok, message, code = self.native:read(object, name, host, offsets)
    if not ok then return nil, message, code end
    tensor:copy_(host)
    return true
  end)
end

--- A whole file of the checkpoint, its checksum compared; or nil, message, code.
---@param file string
---@return string?
---@return string? message
---@return string? code
function Reader:bytes(file) return self.native:bytes(file) end

--- Compares the checksums of all files, on all cores; tensors that this reader has read whole are compared already. True, or nil,
--- message, code: the message names the file and the tensor.
---@param on_progress? fun(done: integer, all: integer)
---@return boolean? ok
---@return string? message
---@return string? code
function Reader:verify(on_progress)
  local again = true
  repeat
    local done, all, code = self.native:verify_some(again)
    if not done then return nil, all, code end
    again = false
    if on_progress then on_progress(done, all) end
  until done >= all
  return true
end

--- Closes its files; reading raises afterwards.
function Reader:close() self.native:close() end
Reader.__close = Reader.close

-- ---- folders of checkpoints ----

--- What is in a folder, by number (the digits that a name ends with; -1: none); or nil, message, code. "ok": whole by manifest and
--- sizes; "unfinished": being written, or never committed; "damaged"; "foreign": no checkpoint. reason says why.
---@param parent string
---@return {name: string, path: string, number: integer, status: string, reason: string, bytes: integer, state: table?}[]?
---@return string? message
---@return string? code
function M.scan(parent)
  local list, message, code = core.scan(parent)
  for _, entry in ipairs(list or {}) do
    entry.state = entry.state and accel.json.decode(entry.state)
  end
  return list, message, code
end

--- The path of the newest checkpoint in a folder that is whole, and what was skipped before it: entries of scan with their reasons. Or
--- nil, message, code.
--- example: select(3, accel.ckpt.newest "/nowhere") --> "not_found"
---@param parent string
---@return string? path
---@return table|string skipped
---@return string? code
function M.newest(parent)
  local list, message, code = M.scan(parent)
  if not list then return nil, message, code end
  local skipped, why = {}, {}
  for i = #list, 1, -1 do
    local entry = list[i]
    if entry.status == "ok" then return entry.path, skipped end
    if entry.status ~= "foreign" then
      skipped[#skipped + 1] = entry
      why[#why + 1] = ("%s: %s"):format(entry.name, entry.reason)
    end
  end
  return nil, ("%s: no whole checkpoint%s"):format(parent, #why > 0 and " (" .. table.concat(why, "; ") .. ")" or ""), "not_found"
end

--- Removes the checkpoints with the smallest numbers but for the last `keep`: their names; or nil, message, code. Only whole ones count
--- and are removed, so that what is left can always be loaded.
---@param parent string
---@param keep integer 1 or more
---@return string[]? removed
---@return string? message
---@return string? code
function M.prune(parent, keep) return core.prune(parent, keep) end

--- Bytes of host memory that asynchronous saves keep for their copies: as many as the largest save had.
---@return integer
function M.memory() return core.memory() end

--- Gives that memory back, unless a save uses it; whether it is free.
---@return boolean
function M.release() return core.release() end

return M
