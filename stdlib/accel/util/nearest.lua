--- The known name nearest to a misspelt one, for error messages. nil if none is close.

--- Edits (insert, delete, replace, swap of neighbours) between two short strings.
local function distance(a, b)
  local n, m = #a, #b
  local before, last = nil, {}
  for j = 0, m do last[j] = j end
  for i = 1, n do
    local row = { [0] = i }
    local ca = a:byte(i)
    for j = 1, m do
      local cb = b:byte(j)
      local d = math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (ca == cb and 0 or 1))
      if before and j > 1 and ca == b:byte(j - 1) and a:byte(i - 1) == cb then
        d = math.min(d, before[j - 2] + 1)
      end
      row[j] = d
    end
    before, last = last, row
  end
  return last[m]
end

local function plain(s) return s:lower():gsub("[_%-]", "") end

---@param word string
---@param known table a list of names, or a table whose string keys are the names
---@return string? name
return function(word, known)
  local best, at, first = nil, math.max(2, #word // 3) + 1, word:sub(1, 1):lower()
  --- Of two equally near names, the one with the same beginning, then the first in order.
  local function closer(name)
    local a, b = name:sub(1, 1):lower() == first, best:sub(1, 1):lower() == first
    if a ~= b then return a end
    return name < best
  end
  local function try(name)
    if type(name) ~= "string" then return end
    local d = distance(plain(word), plain(name))
    if d < at or (d == at and best and closer(name)) then best, at = name, d end
  end
  for key, value in next, known do
    if type(key) == "string" then try(key) else try(value) end
  end
  return best
end
