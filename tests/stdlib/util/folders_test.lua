-- util/folders: trees are removed with all that is in them, links are removed and not followed; LuaFileSystem is preloaded in a host.
local accel = require "accel"
local folders = require "accel.util.folders"
local lfs = require "lfs"

assert(type(package.preload.lfs) == "function" and lfs.attributes(".", "mode") == "directory")

local root = assert(accel.mkdtemp((os.getenv "TMPDIR" or "/tmp") .. "/accel-folders."))
local function write(path) assert(accel.write_file(path, "x")) end

assert(accel.makedirs(root .. "/tree/a/b") and accel.makedirs(root .. "/kept"))
write(root .. "/tree/a/b/it's one.lua")
write(root .. "/tree/z.lua")
write(root .. "/tree/a/other.txt")
write(root .. "/kept/file.lua")
assert(lfs.link("../kept", root .. "/tree/link", true) and lfs.link("nowhere", root .. "/tree/dangling", true))

local found = folders.files(root .. "/tree", ".lua")
assert(#found == 2 and found[1] == root .. "/tree/a/b/it's one.lua" and found[2] == root .. "/tree/z.lua")
assert(table.concat(folders.names(root .. "/tree"), " ") == "a dangling link z.lua")
local ok, why = pcall(folders.names, root .. "/missing")
assert(not ok and why:find("missing", 1, true), why)

assert(folders.remove(root .. "/tree") == true)
assert(lfs.symlinkattributes(root .. "/tree") == nil)
assert(lfs.attributes(root .. "/kept/file.lua", "mode") == "file", "the target of a link must stay")
local gone, message = folders.remove(root .. "/tree")
assert(not gone and message:find("tree", 1, true))
assert(folders.remove(root))
