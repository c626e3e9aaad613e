--- accel.util.writer: the one way to write files that a user keeps. file(path, bytes) replaces one file. create(path) is the same in
--- pieces. set(folder) replaces several files of a folder at once: weights, their index and the configuration. Each file is written
--- under a temporary name, brought to disk and renamed, and the folder is brought to disk afterwards. After a kill or on a full disk
--- the folder holds the files of before or the new ones. After a kill or on a full disk the folder holds the old files or the new
--- ones. The next writer removes a killed process's remains. Readers call recover(folder) first, which completes a switch that a
--- kill interrupted.
local accel = require "accel"
local core = require "accel.file.core"

--- A file that is being written, from create or set:create.
---@class accel.util.writer.File
---@field write fun(self: accel.util.writer.File, ...: string): boolean?, string?, string?
---@field commit fun(self: accel.util.writer.File): boolean?, string?, string? a file of a set takes its name with the set
---@field close fun(self: accel.util.writer.File) gives the file up unless it was committed

--- Files of one folder that switch together when the set is committed, in the order in which they were given: a file that names others
--- comes last.
---@class accel.util.writer.Set
---@field create fun(self: accel.util.writer.Set, name: string): accel.util.writer.File?, string?, string?
---@field write fun(self: accel.util.writer.Set, name: string, bytes: string): boolean?, string?, string?
---@field remove fun(self: accel.util.writer.Set, name: string): boolean?, string?, string? the new set has no such file
---@field commit fun(self: accel.util.writer.Set): boolean?, string?, string? closes the set as well
---@field close fun(self: accel.util.writer.Set) gives all files up unless the set was committed

local M = {}

--- Replaces a file. Returns true. On failure returns nil, message, code.
---@param path string
---@param bytes string
---@param opts? {private: boolean?} private: mode 0600
---@return boolean?, string?, string?
function M.file(path, bytes, opts) return accel.write_file(path, bytes, opts) end

--- Begins a file that is written in pieces. On failure returns nil, message, code.
--- example: local w = require "accel.util.writer".create(accel.mkdtemp "/tmp/example-" .. "/x") w:write("a", "b") return w:commit() --> true
---@param path string
---@param opts? {private: boolean?}
---@return accel.util.writer.File?, string?, string?
function M.create(path, opts) return core.create_file(path, opts) end

--- Begins a set of files in a folder, which is made. accel.save(name, tensors, metadata, set) writes tensors into it.
--- example: local dir = accel.mkdtemp "/tmp/example-" local set = require "accel.util.writer".set(dir) set:write("a", "1") set:write("b", "2")
---   set:commit() return accel.listdir(dir) --> { "a", "b" }
---@param folder string
---@param opts? {private: boolean?}
---@return accel.util.writer.Set?, string?, string?
function M.set(folder, opts) return core.create_set(folder, opts) end

--- Completes the switch of a set that a killed process began in this folder. Returns true if there is nothing to do. nil, message, code
--- if the folder cannot be written.
---@param folder string
---@return boolean?, string?, string?
function M.recover(folder) return core.recover(folder) end

return M
