--- The origin of a run: command, folder, revision of the sources, versions, variables. Used by run.lua. It starts no process except one
--- `git status`, with a limit of two seconds.
local accel = require "accel"
local core = require "accel.track.core"
local open_read = require("accel.file.core").open_read

local M = {}

local function read(path)
  local file = open_read(path)
  if not file then return nil end
  local text = file:read "a"
  file:close()
  return text
end
local function line_of(path)
  local text = read(path)
  return text and text:match "^[^\r\n]*"
end

--- The folder of git's data for a folder, and the one that all its worktrees share.
local function git_folder(dir)
  local at = dir
  for _ = 1, 64 do
    local file = line_of(at .. "/.git")
    local pointer = file and file:match "^gitdir: (.+)$"
    if pointer then
      local git = pointer:sub(1, 1) == "/" and pointer or at .. "/" .. pointer
      local common = line_of(git .. "/commondir")
      return at, git, common and (common:sub(1, 1) == "/" and common or git .. "/" .. common) or git
    end
    if line_of(at .. "/.git/HEAD") then return at, at .. "/.git", at .. "/.git" end
    local up = at:match "^(.+)/[^/]+$"
    if not up then return nil end
    at = up
  end
end

local function resolve(git, common, ref)
  for _, folder in ipairs { git, common } do
    local hash = line_of(folder .. "/" .. ref)
    if hash and hash:match "^%x+$" then return hash end
  end
  for hash, name in (read(common .. "/packed-refs") or ""):gmatch "(%x+) ([^\r\n]+)" do
    if name == ref then return hash end
  end
end

local function quoted(s) return "'" .. s:gsub("'", "'\\''") .. "'" end

--- Revision, branch and whether files differ from it, of the sources in a folder. nil if it is not under git.
---@param dir string absolute
---@return {revision: string?, branch: string?, dirty: boolean?, folder: string}?
function M.git(dir)
  local top, git, common = git_folder(dir)
  if not top then return nil end
  local head = line_of(git .. "/HEAD") or ""
  local ref = head:match "^ref: (.+)$"
  local out = { folder = top, branch = ref and (ref:match "^refs/heads/(.+)$" or ref) }
  out.revision = ref and resolve(git, common, ref) or head:match "^%x+$"
  local pipe = io.popen("timeout 2 git -C " .. quoted(top) .. " status --porcelain --untracked-files=no 2>/dev/null && echo =")
  local text = pipe and pipe:read "a"
  if pipe then pipe:close() end
  if text and text:sub(-2) == "=\n" then out.dirty = text ~= "=\n" end
  return out
end

local wanted <const> = { "^ACCEL_", "^ACCELERATE_", "^CUDA_VISIBLE_DEVICES$", "^NCCL_", "^OMP_NUM_THREADS$", "^SLURM_JOB_", "^FSDP_",
  "^WORLD_SIZE$", "^MASTER_" }
local secret <const> = { "KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH" }

--- Environment variables that configure a run, except those whose names suggest secrets.
---@return table<string, string>
function M.variables()
  local out = {}
  for entry in (read "/proc/self/environ" or ""):gmatch "[^%z]+" do
    local name, value = entry:match "^([^=]+)=(.*)$"
    local take = false
    for _, pattern in ipairs(wanted) do take = take or name ~= nil and name:find(pattern) ~= nil end
    for _, word in ipairs(secret) do take = take and not name:upper():find(word, 1, true) end
    if take then out[name] = value end
  end
  return out
end

--- The folder that relative paths begin from.
---@return string
function M.folder() return core.current_folder() or os.getenv "PWD" or "." end

--- The name of this machine.
---@return string?
function M.host() return line_of "/proc/sys/kernel/hostname" end

--- All of it.
---@return table
function M.describe()
  local features, words = accel.features(), {}
  for i = 0, arg and #arg or -1 do words[#words + 1] = tostring(arg[i]) end
  local dir = M.folder()
  return { command = #words > 0 and words or nil, directory = dir, git = M.git(dir), accel = accel._VERSION, lua = _VERSION,
    cpus = features.cpus, isa = features.isa, memory = features.memory, threads = accel.num_threads(),
    num_processes = require("accel.dist").get_world_size(), variables = M.variables(), started = os.date "!%Y-%m-%dT%H:%M:%SZ" }
end

--- n random characters of 0-9 a-z, from the system's generator.
---@param n integer
---@return string
function M.random_id(n)
  local letters, out = "0123456789abcdefghijklmnopqrstuvwxyz", {}
  local file <close> = assert(io.open("/dev/urandom", "rb"))
  file:setvbuf "no"
  while #out < n do
    local byte = file:read(1):byte()
    if byte < 252 then
      local at = byte % 36 + 1
      out[#out + 1] = letters:sub(at, at)
    end
  end
  return table.concat(out)
end

return M
