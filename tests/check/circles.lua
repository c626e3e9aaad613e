-- No circle between the files of a folder: file A calls or reads something of B, and B, over any number of files, of A.
--   lua circles.lua <nm> <object>...
-- Prints each circle with the symbols that close it and exits 1, or says how much was checked. A table that the build generates
-- (openers.c) names files so that no file has to, and is not a part of the graph.

local nm = assert(arg[1], "usage: circles.lua <nm> <object>...")
local GENERATED = { ["openers.c.o"] = true }

local home, needs, names = {}, {}, {} -- symbol -> object; object -> symbols that others have; objects in order
for object in table.concat(arg, ";", 2):gmatch "[^;]+" do -- CMake's lists have semicolons
  if not GENERATED[object:match "[^/]*$"] then
    names[#names + 1], needs[object] = object, {}
    for line in assert(io.popen(("'%s' -g '%s'"):format(nm, object))):lines() do
      local kind, symbol = line:match "(%a) ([%w_.]+)$"
      if kind == "U" then
        needs[object][#needs[object] + 1] = symbol
      elseif kind then
        home[symbol] = object
      end
    end
  end
end
assert(#names > 0, "no objects")

local edges, n_edges = {}, 0 -- object -> object -> a symbol
for _, object in ipairs(names) do
  edges[object] = {}
  for _, symbol in ipairs(needs[object]) do
    local to = home[symbol]
    if to and to ~= object and not edges[object][to] then
      edges[object][to], n_edges = symbol, n_edges + 1
    end
  end
end

-- Tarjan: components of more than one object are circles.
local index, low, stack, on_stack, count, circles = {}, {}, {}, {}, 0, {}
local function visit(v)
  count = count + 1
  index[v], low[v], stack[#stack + 1], on_stack[v] = count, count, v, true
  for w in pairs(edges[v]) do
    if not index[w] then
      visit(w)
      low[v] = math.min(low[v], low[w])
    elseif on_stack[w] then
      low[v] = math.min(low[v], index[w])
    end
  end
  if low[v] ~= index[v] then return end
  local members = {}
  repeat
    local w = table.remove(stack)
    on_stack[w], members[#members + 1] = nil, w
  until w == v
  if #members > 1 then circles[#circles + 1] = members end
end
for _, object in ipairs(names) do
  if not index[object] then visit(object) end
end

local function short(object) return (object:gsub("^.*%.dir/", ""):gsub("%.o$", "")) end
for _, members in ipairs(circles) do
  table.sort(members)
  local within = {}
  for _, v in ipairs(members) do within[v] = true end
  print(("a circle of %d files:"):format(#members))
  for _, v in ipairs(members) do
    local list = {}
    for w, symbol in pairs(edges[v]) do
      if within[w] then list[#list + 1] = ("%s (%s)"):format(short(w), symbol) end
    end
    table.sort(list)
    print(("  %s needs %s"):format(short(v), table.concat(list, ", ")))
  end
end
if #circles > 0 then os.exit(1) end
print(("%d files need %d others, and none itself"):format(#names, n_edges))
