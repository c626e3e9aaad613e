--- accel.ckpt: checkpoints that are there whole or not at all. A save writes into a temporary folder, flushes everything to disk and
--- renames it. Several ranks write into one. MANIFEST.json lists its content with sizes and checksums, which are checked before the
--- content is used. accelerator:save_state and load_state are built on this.
---
--- The manifest names the run that wrote it (run.lua) and a sequence, which is the age of a checkpoint: scan sorts by it, and newest and
--- prune follow that order. Numbers in names and the times of files do not count. Checkpoints of releases before 0.2 have no sequence:
--- their age is the second in which they were written, and the number in the name within one second.
---
---   local save = assert(accel.ckpt.create "runs/a/step-100")
---   save:add_tensors("model.safetensors", { { name = "w", tensor = w } })
---   save:start { state = { step = 100 }, asynchronous = true }     -- training can continue
---   assert(save:wait())                                            -- now it is on disk
---   local c = assert(accel.ckpt.open(assert(accel.ckpt.newest "runs/a")))
---   assert(c:read("model", "w", w))
local accel = require "accel"
local check = require "accel.util.check"
local class = require "accel.util.class"
local core = require "accel.ckpt.core"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local run = require "accel.ckpt.run"

local POLL_SECONDS <const> = 0.05
local ITEM <const> = { name = options.none, tensor = options.none, shape = options.none, offsets = options.none }

local M = {}

-- ---- saving ----

--- A checkpoint that is being written, from accel.ckpt.create: add_tensors, add_bytes, start, then wait, or abort.
--- example: local name = os.tmpname() os.remove(name)
---  local save = accel.ckpt.create(name) save:add_bytes("x", "bytes") return save:abort() --> false
---@class accel.ckpt.Save
---@field folder string the temporary folder, which part 0 gives to the others
---@field path string
---@field sequence integer? its age, once it is committed. 0 in parts above 0
local Save = class("accel.ckpt.Save")
M.Save = Save

-- The asynchronous save whose copy is in use: the next one waits for it.
local writing

---@param native userdata the object of C
---@param path string folder of the checkpoint
---@param folder string temporary folder
function Save:init(native, path, folder)
  self.native, self.path, self.folder = native, path, folder
end

--- The options of the core: a checkpoint is of this process's run unless another one is given.
local function with_run(opts)
  if opts ~= nil and type(opts) ~= "table" then return opts end -- the core raises the error
  local o = {}
  for key, value in next, opts or {} do o[key] = value end
  if o.run == nil then o.run, o.continues = run.id(), o.continues or run.continues() end
  o.after = math.max(math.tointeger(o.after) or 0, run.last())
  return o
end

--- Begins a checkpoint at path: a save to which you add files. On failure returns nil, message, code. It is an error when path exists,
--- or another save is writing it (code "state"), unless `replace` is set, which removes the old checkpoint once the new one is on disk.
--- If several ranks write one checkpoint, each is a part. Part 0 makes the folder, and the others get its save.folder.
--- example: accel.ckpt.create "/proc/none/x" == nil --> true
---@param path string
---
--- The checkpoint belongs to this process's run (ACCEL_RUN_ID, otherwise a generated name) and is newer than all others in its
--- folder.
---@param opts? {part: integer?, parts: integer?, folder: string?, replace: boolean?, run: string?, continues: string[]?, after: integer?}
---  run, continues: another run, and the runs that it has taken over. after: a sequence that this checkpoint must exceed
---@return accel.ckpt.Save? save
---@return string? message
---@return string? code
function M.create(path, opts, ...)
  check.surplus("create", ...)
  local native, folder, code = core.create(path, with_run(opts))
  if not native then return nil, folder, code end
  return Save(native, path, folder)
end

local function on_host(t)
  if t.device == "cpu" and t:is_contiguous() then return t, false end
  return accel.no_grad(function() return t:detach():to("cpu"):contiguous() end), true
end

--- Adds a safetensors file. The first component of the file, without its ending, names its object: "model" for "model.safetensors"
--- and "model/shard-00001-model-00001-of-00001.safetensors". A part of a larger tensor gives the whole one's shape and the offsets
--- (from 0) at which it begins.
---@param file string relative to the folder. Missing subfolders are created
---@param list {name: string, tensor: accel.Tensor, shape: integer[]?, offsets: integer[]?}[]
---@param metadata? table<string, string>
function Save:add_tensors(file, list, metadata, ...)
  check.object(self, "save", "add_tensors")
  if type(list) ~= "table" then raise("add_tensors: expected a list of tensors, got %s", check.shown(list)) end
  check.surplus("add_tensors", ...)
  local items = {}
  for i, item in ipairs(list) do
    if type(item) ~= "table" or not accel.is_tensor(item.tensor) then
      raise("add_tensors: item %d is not { name =, tensor = }", i)
    end
    options.check(("add_tensors: item %d"):format(i), item, ITEM)
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
--- afterwards. Otherwise they must not change until wait has returned. A second asynchronous save waits for the first.
---@param opts? {state: table?, asynchronous: boolean?}
function Save:start(opts, ...)
  check.object(self, "save", "start")
  local o = options.check("start", opts, { state = options.none, asynchronous = false }, ...)
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

--- Stores the save's result, if it has ended.
local function poll(self, seconds)
  if self.over then return true end
  local ok, message, code = self.native:poll(seconds)
  if ok == nil then return false end
  self.over, self.ok, self.message, self.code = true, ok, message, code
  if writing == self.native then writing = nil end
  if ok then
    self.sequence = self.native:sequence()
    run.last(self.sequence)
  end
  return true
end

--- Whether the save has ended, with or without success. wait then returns at once.
---@return boolean
function Save:done()
  return poll(self, 0)
end

--- Waits until the checkpoint is committed and on disk, which all parts learn at once. Returns true. On failure it returns nil,
--- message, code, and no files remain. Other work of the host is served meanwhile: interrupts, and the end of the world of ranks.
---@param seconds? number at most. nil, message, "timeout" if the save is still running then
---@return boolean? ok
---@return string? message
---@return string? code
function Save:wait(seconds, ...)
  check.surplus("wait", ...)
  local ends = accel.clock() + (seconds or math.huge)
  while not poll(self, math.min(POLL_SECONDS, seconds or POLL_SECONDS)) do
    if accel.clock() >= ends then return nil, self.path .. ": the save is under way", "timeout" end
  end
  if self.ok then return true end
  return nil, self.message, self.code
end

--- Aborts the save, on all parts, and waits until all its files are removed. One that was committed meanwhile stays: true
--- then.
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
---@field manifest {version: string, accel: string, id: string, created: string, run: string?, sequence: integer?, continues: string[]?,
---  parts: integer, files: table[], state: table}
local Reader = class("accel.ckpt.Reader")
M.Reader = Reader

---@param native userdata the object of C
---@param path string folder of the checkpoint
---@param manifest table decoded MANIFEST.json
function Reader:init(native, path, manifest)
  self.native, self.path, self.manifest = native, path, manifest
end

--- Opens a committed checkpoint and checks its manifest and all sizes. On failure returns nil, message, code: "not_found" if there
--- is none, "parse" if it is damaged, "unsupported" if a later release wrote it.
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

--- Names of the saved objects: "model", "optimizer", "model_1".
---@return string[]
function Reader:objects() return self.native:objects() end

--- The whole tensors of an object, regardless of the parts that wrote them. On failure returns nil, message, code.
---@param object string
---@return {name: string, dtype: accel.DType, shape: integer[], bytes: integer}[]?
---@return string? message
---@return string? code
function Reader:tensors(object) return self.native:tensors(object) end

--- Reads a tensor, or the part of it that has the destination's shape and begins at `offsets` (from 0), into a tensor of the same
--- dtype. Returns true. On failure returns nil, message, code, and the destination's values are undefined.
---@param object string
---@param name string
---@param tensor accel.Tensor
---@param offsets? integer[]
---@return boolean? ok
---@return string? message
---@return string? code
function Reader:read(object, name, tensor, offsets, ...)
  check.surplus("read", ...)
  if tensor.device == "cpu" and tensor:is_contiguous() then return self.native:read(object, name, tensor, offsets) end
  return accel.no_grad(function()
    local host = accel.empty(tensor.shape, { dtype = tensor.dtype, device = "cpu" })
    local ok, message, code = self.native:read(object, name, host, offsets)
    if not ok then return nil, message, code end
    tensor:copy_(host)
    return true
  end)
end

--- A whole file of the checkpoint, its checksum compared. On failure returns nil, message, code.
---@param file string
---@return string?
---@return string? message
---@return string? code
function Reader:bytes(file) return self.native:bytes(file) end

--- Compares the checksums of all files, on all cores, except tensors that this reader has already read whole. True, or nil,
--- message, code: the message names the file and the tensor.
---@param on_progress? fun(done: integer, all: integer)
---@return boolean? ok
---@return string? message
---@return string? code
function Reader:verify(on_progress, ...)
  check.surplus("verify", ...)
  local again = true
  repeat
    local done, all, code = self.native:verify_some(again)
    if not done then return nil, all, code end
    again = false
    if on_progress then on_progress(done, all) end
  until done >= all
  return true
end

--- Closes its files. Reading raises afterwards.
function Reader:close() self.native:close() end
Reader.__close = Reader.close

-- ---- folders of checkpoints ----

--- The entries of a folder, the oldest first. On failure returns nil, message, code. status is "ok": complete by manifest and sizes;
--- "unfinished": being written, or never committed; "damaged"; or "foreign": not a checkpoint. reason explains it. number: the trailing
--- digits of a name, or -1. sequence is the age, nil without a readable manifest. Entries without an age are sorted by their numbers.
---@param parent string
---@return {name: string, path: string, number: integer, status: string, reason: string, bytes: integer, state: table?, sequence: integer?,
---  run: string?, continues: string[]?}[]?
---@return string? message
---@return string? code
function M.scan(parent)
  local list, message, code = core.scan(parent)
  for _, entry in ipairs(list or {}) do
    entry.state = entry.state and accel.json.decode(entry.state)
    entry.continues = entry.continues and accel.json.decode(entry.continues)
  end
  return list, message, code
end

--- The path of the newest complete checkpoint in a folder, and the skipped newer ones: entries of scan with their reasons. Or nil,
--- message, code.
--- example: select(3, accel.ckpt.newest "/nowhere") --> "not_found"
---@param parent string
---@param opts? {accept: fun(entry: table): boolean?, string?; on_skip: fun(entry: table)}
---  accept: returns true to take a complete checkpoint, false to pass over it, nil and a reason to skip it;
---  on_skip: is called with every entry that is skipped
---@return string? path
---@return table|string skipped
---@return string? code
function M.newest(parent, opts, ...)
  local o = options.check("newest", opts, { accept = options.none, on_skip = options.none }, ...)
  local list, message, code = M.scan(parent)
  if not list then return nil, message, code end
  local skipped, why = {}, {}
  for i = #list, 1, -1 do
    local entry, ok, reason = list[i], list[i].status == "ok", nil
    if ok and o.accept then ok, reason = o.accept(entry) end
    if ok then return entry.path, skipped end
    if entry.status == "ok" and ok == nil or entry.status == "damaged" or entry.status == "unfinished" then
      entry.reason = reason or entry.reason
      skipped[#skipped + 1] = entry
      why[#why + 1] = ("%s: %s"):format(entry.name, entry.reason)
      if o.on_skip then o.on_skip(entry) end
    end
  end
  return nil, ("%s: no whole checkpoint%s"):format(parent, #why > 0 and " (" .. table.concat(why, "; ") .. ")" or ""), "not_found"
end

--- The path of a checkpoint of another run, which this run does not continue: `path` itself, or one of those in the folder `path`. nil
--- if there is none. A script that names its checkpoints itself asks before it replaces somebody's. A dry run, which writes nothing,
--- finds none.
--- example: accel.ckpt.other_run "/nowhere" --> nil
---@param path string
---@param names? string a pattern of the names that count in the folder. Without it, folders checkpoint_<number> of other programs also count
---@return string?
function M.other_run(path, names, ...)
  check.surplus("other_run", ...)
  local native, text, code = core.open(path)
  if native then
    native:close()
    return not run.is_mine(accel.json.decode(text).run or "") and path or nil
  elseif code ~= "not_found" then -- damaged, or of a later release
    return path
  end
  for _, entry in ipairs(M.scan(path) or {}) do
    local is = entry.status == "ok" or entry.status == "damaged" or entry.status == "foreign" and entry.name:find "^checkpoint_%d+$"
    if is and (not names or entry.name:find(names)) and not run.is_mine(entry.run) then return entry.path end
  end
  return nil
end

--- Removes the oldest checkpoints and keeps the last `keep`. Returns their names. On failure returns nil, message, code. Only complete
--- ones with a number at the end of their names count and are removed, so that every remaining one can be loaded. The newest one always
--- stays.
---@param parent string
---@param keep integer 1 or more
---@param opts? {runs: string[]?, spare: string?, dry_run: boolean?}
---  runs: count and remove checkpoints of these runs only ("": those without a run). spare: the name of one to keep
---  dry_run: remove nothing, and return the names of those that would go
---@return string[]? removed
---@return string? message
---@return string? code
function M.prune(parent, keep, opts, ...)
  check.surplus("prune", ...)
  return core.prune(parent, keep, opts)
end

--- Bytes of host memory that asynchronous saves keep for their copies: as many as the largest save had.
---@return integer
function M.memory() return core.memory() end

--- Frees that memory, unless a save uses it. Returns whether it is free.
---@return boolean
function M.release() return core.release() end

return M
