-- What users keep is written by host/file/io.c and host/file/set.c alone (accel.util.writer for Lua), which bring it to disk and replace the
-- files of before at once. Any other call that creates, cuts or renames a file has a row below: what it opens, and why it needs no writer.
-- Usage: lua writers.lua <source tree>. Prints one line per finding and exits 1 if there is one. A row that matches nothing is a finding.
local root = assert(arg[1], "usage: writers.lua <source tree>")

local C <const> = { "%f[%w_]rename%s*%(", "%f[%w_]renameat2?%s*%(", "SYS_rename", "O_TRUNC", "O_CREAT", "O_TMPFILE", "%f[%w_]creat%s*%(",
  "%f[%w_]mkstemps?%s*%(", "%f[%w_]freopen%s*%(" }
local LUA <const> = { "os%.rename", "io%.output%s*%([^)]" }

--- Whether the line opens a file in a mode that is not, by its own words, reading.
local function opens_to_write(code, is_lua)
  if not is_lua then
    return code:find "%f[%w_]fd?open%s*%(" and not code:find '"r[be]*"'
  end
  for call in code:gmatch "io%.open%s*(%b())" do
    local mode = call:sub(2, -2):gsub("%b()", "()"):match ",%s*(.-)%s*$"
    if mode and not mode:find "^[\"']rb?[\"']$" then return true end
  end
  return code:find "io%.open%s*,%s*[^,]+,%s*[\"'][wa]" ~= nil -- pcall(io.open, path, "w")
end

-- Appending: records go to the end of a file that is kept open, each with one write. A kill loses the record under way and none before
-- it. The next writer ends a torn last record, on a full disk the part that was written goes again, and a file that is closed is on disk
-- (host/track/append.c).
local APPENDS <const> = "appended record by record, so that a kill loses no earlier one; the next writer ends a torn record"
local BUILD <const> = "a program of the build, whose output is made again"

local allowed = {
  ["host/file/io.c"] = "the writer of one file",
  ["host/file/set.c"] = "the writer of sets of files",
  ["host/file/set_note.c"] = "the switch of a set of files",
  ["lua/rights.lua"] = "os.rename of scripts, with the paths that the program of a host wants",
  ["host/ckpt/write.c"] = "files of a checkpoint, in a folder that the commit renames",
  ["host/ckpt/commit.c"] = "the commit of a checkpoint: folders, exchanged or renamed after all files are on disk",
  ["host/ckpt/owner.c"] = "locks of a checkpoint's temporary folder, and folders on their way to be removed",
  ["host/track/events.c"] = "TensorBoard events: " .. APPENDS .. "; every run has a file of its own",
  ["host/track/lines.c"] = "lines of the trackers' journals, outboxes and tables: " .. APPENDS,
  ["host/track/wandb.c"] = "records of an offline run of Weights & Biases: " .. APPENDS,
  ["host/profile/trace_file.c"] = "ranks add to one trace under a lock; the first replaces it with the writer",
  ["host/offload/store.c"] = "tensors of a running process, a file that ends with it; offload folders are written by accel.util.writer",
  ["host/comm/record.c"] = "the flight recorder of a rank that failed, written once; host/comm stands before host/file",
  ["host/ops/core/fuse_cc.c"] = "kernels that are compiled again where their file is missing or damaged; host/ops stands before host/file",
  ["host/attach/folder.c"] = "description and lock of a running job below /tmp, which end with it",
  ["host/launch/spawn.c"] = "logs of the ranks of a running job, to which it appends",
  ["host/ops/core/gen/out.c"] = BUILD,
  ["bindings/file/lac_open.c"] = "files of others that are read; its descriptors are read-only",
  ["lua/gen/embed.c"] = BUILD,
  ["lua/gen/config_stub.lua"] = BUILD,
  ["lua/gen/reference.lua"] = BUILD,
  ["bindings/attach/lac_console.c"] = "lines that prompts append to their log: " .. APPENDS,
  ["stdlib/accel/cli/dry_run_rank.lua"] = "files without values, which the dry run removes at its end",
  ["stdlib/accel/dist/worker.lua"] = "memory of the process that waits for the result (accel.launch)",
}

local findings, used = 0, {}
local function finding(file, line, text)
  findings = findings + 1
  io.write(("%s:%d: %s\n"):format(file, line, text))
end

local function without_comment(line, is_lua)
  if is_lua then return (line:gsub("%-%-.*$", "")) end
  return line:find "^%s*/?%*" and "" or (line:gsub("/%*.-%*/", ""):gsub("/%*.*$", ""))
end

local function check(file)
  local is_lua, number = file:find "%.lua$" ~= nil, 0
  for line in io.lines(root .. "/" .. file) do
    number = number + 1
    local code = without_comment(line, is_lua)
    local hit = opens_to_write(code, is_lua)
    for _, pattern in ipairs(is_lua and LUA or C) do hit = hit or code:find(pattern) end
    if hit then
      used[file] = true
      if not allowed[file] then
        finding(file, number, "writes or renames a file by itself; use host/file/io.h, host/file/set.h or accel.util.writer: "
          .. code:match "^%s*(.-)%s*$")
      end
    end
  end
end

local n = 0
for file in assert(io.popen(([[cd '%s' && find host bindings lua stdlib -type f \( -name "*.[ch]" -o -name "*.cu" -o -name "*.cuh"
  -o -name "*.lua" \) | sort]]):gsub("\n", " "):format(root))):lines() do
  n = n + 1
  check(file)
end
assert(n > 0, "no sources found below " .. root)
for file in pairs(allowed) do
  if not used[file] then finding(file, 1, "has a row in tests/check/writers.lua, but writes nothing by itself; remove the row") end
end
io.write(("%d files, %d findings\n"):format(n, findings))
os.exit(findings == 0)
