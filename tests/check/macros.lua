-- Macros of C have at most 20 lines, so that a debugger can step through what they contain. A kernel for several types is a template: a
-- header that its file includes once for each type, with the types' names as macros (host/base/cat.h).
-- Usage: lua macros.lua <source tree>. Prints one line per finding and exits 1 if there is one. It finds what is planted.
local root, MOST <const> = assert(arg[1], "usage: macros.lua <source tree>"), 20

local LIST <const> = "a list of names"
local EXPRESSION <const> = "statements inside of a function, which take other macros"
local ALLOWED <const> = {
  ["host/comm/nccl/library.h:ACI_NCCL_CALLS"] = LIST, ["host/include/accel/base.h:AC_STATUS_LIST"] = LIST,
  ["host/ops/conv/dnn.h:ACI_DNN_CALLS"] = LIST, ["host/track/sqlite.h:ACI_SQLITE_FUNCTIONS"] = LIST,
  ["host/ops/reduce/lanes.h:ACI_LANES_RUN"] = EXPRESSION, ["host/ops/reduce/lanes.h:ACI_LANES_SUM2"] = EXPRESSION,
  ["host/ops/reduce/reduction.h:ACI_REDUCTION_ONE"] = EXPRESSION,
  ["host/device/cpu/kernels/conv_direct.c:DOT_VECTORS"] = EXPRESSION,
  ["host/device/cpu/gemm_few.c:DOT"] = "48 functions: each kind of weight, number of rows and instruction set",
  ["host/device/cpu/gemm_few.c:ADD_ROWS"] = "as DOT",
}

--- Names of too long macros in a text, with their lines.
local function long(text)
  local found, name, first, n = {}, nil, nil, 0
  for line in (text .. "\n"):gmatch "(.-)\n" do
    n = n + 1
    if not name and line:find "\\$" then name, first = line:match "^%s*#%s*define%s+([%w_]+)", n end
    if name and not line:find "\\$" then
      if n - first + 1 > MOST then found[#found + 1] = { name = name, line = first, lines = n - first + 1 } end
      name = nil
    end
  end
  return found
end

local planted = "#define SHORT(x) \\\n  x\n#define PLANTED(x)" .. (" \\\n  x;"):rep(MOST)
local caught = long(planted)
assert(#caught == 1 and caught[1].name == "PLANTED" and caught[1].line == 3, "the planted macro was not found")

local findings, files, used = 0, 0, {}
for path in assert(io.popen(("cd '%s' && find host bindings -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort"):format(root))):lines() do
  files = files + 1
  local file <close> = assert(io.open(root .. "/" .. path))
  for _, macro in ipairs(long(file:read "a")) do
    local key = path .. ":" .. macro.name
    used[key] = true
    if not ALLOWED[key] then
      findings = findings + 1
      print(("%s:%d: %s has %d lines, %d at most; make it a template"):format(path, macro.line, macro.name, macro.lines, MOST))
    end
  end
end
for key in next, ALLOWED do
  if not used[key] then
    findings = findings + 1
    print(key .. " is not too long any more; remove it from the list")
  end
end
print(("%d files, %d findings"):format(files, findings))
os.exit(findings == 0)
