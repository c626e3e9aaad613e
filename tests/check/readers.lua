-- Files that others name are opened for reading by host/base/open_read.c alone (accel.file.core.open_read for Lua), which takes regular files
-- only and never waits. Any other place that opens a file by fopen or io.open has a row below: what it reads.
-- Usage: lua readers.lua <source tree>. Prints one line per finding and exits 1 if there is one. A row that matches nothing is a finding.
local root = assert(arg[1], "usage: readers.lua <source tree>")

local PATTERNS <const> = { c = { "%f[%w_]fopen%s*%(", "luaL_loadfilex?%s*%(", "luaL_dofile%s*%(" },
  lua = { "%f[%w_]io%.open%f[^%w_]", "io%.lines%s*%(.*[%w\"']" } }
local KERNEL <const>, OWN <const> = "files of the kernel", "a file that accel itself made"

local allowed = {
  ["host/app/options.c"] = "a script, a regular file",
  ["host/base/sysinfo.c"] = KERNEL, ["host/comm/record.c"] = "writes the flight recorder", ["host/launch/cause.c"] = KERNEL,
  ["host/launch/supervise.c"] = KERNEL, ["host/launch/topology.c"] = KERNEL, ["host/ops/core/fuse_cc.c"] = KERNEL,
  ["host/ops/core/gen/out.c"] = "the build",
  ["host/track/system.c"] = KERNEL,
  ["host/text/gen/unicode.lua"] = "the tables of Unicode, made by hand",
  ["host/text/gen/unicode_scripts.lua"] = "the tables of Unicode, made by hand",
  ["bindings/embed/host_run.c"] = "scripts, which may come from a pipe",
  ["bindings/embed/init.c"] = "the library's own init.lua", ["bindings/track/lac_rest.c"] = "whether a file of accel's own is there",
  ["stdlib/accel/util/model_folder.lua"] = "asks whether a folder is there", ["stdlib/accel/config/machine.lua"] = KERNEL,
  ["stdlib/accel/dist/worker.lua"] = OWN, ["stdlib/accel/cli/dry_run_rank.lua"] = "writes", ["stdlib/accel/cli/doctor.lua"] = KERNEL,
  ["stdlib/accel/track/environment.lua"] = KERNEL, ["stdlib/accel/track/ui/page.lua"] = "the library's own page",
  ["stdlib/accel/track/store.lua"] = KERNEL,
}

local findings, used = 0, {}
local function finding(file, line, text)
  findings = findings + 1
  io.write(("%s:%d: %s\n"):format(file, line, text))
end

local n = 0
for file in assert(io.popen(([[cd '%s' && find host bindings stdlib -type f \( -name "*.c" -o -name "*.lua" \) | sort]]):format(root))):lines() do
  n = n + 1
  local kind, number = file:match "%.(%a+)$", 0
  for line in io.lines(root .. "/" .. file) do
    number = number + 1
    local code = kind == "lua" and line:gsub("%-%-.*$", "") or line:gsub("/%*.*$", ""):gsub("^%s+%*.*$", "")
    for _, pattern in ipairs(PATTERNS[kind]) do
      if code:find(pattern) then
        used[file] = true
        if not allowed[file] then
          finding(file, number, "opens a file by itself; use aci_open_read or accel.file.core.open_read: " .. code:match "^%s*(.-)%s*$")
        end
        break
      end
    end
  end
end
assert(n > 0, "no sources found below " .. root)
for file in pairs(allowed) do
  if not used[file] then finding(file, 1, "has a row in tests/check/readers.lua, but opens nothing by itself; remove the row") end
end
io.write(("%d files, %d findings\n"):format(n, findings))
os.exit(findings == 0)
