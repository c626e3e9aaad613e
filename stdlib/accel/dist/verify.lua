--- verify(who, lines, group): raises, on every rank of the group, unless all of them have the same list of lines. If they do,
--- it costs one small collective. Otherwise the error names the first line that differs and the ranks' values, with the line
--- of the script on each. Used for parameter lists, which have to agree before anything is averaged.
local accel = require "accel"
local dist = require "accel.dist"
local caller = require "accel.util.caller"
local raise = require "accel.util.raise"

--- FNV-1a, 64 bits.
local function hash(text)
  local h = 0xcbf29ce484222325
  for i = 1, #text, 64 do
    for k, byte in ipairs { text:byte(i, i + 63) } do h = (h ~ byte) * 0x100000001b3 + k end
  end
  return h
end

--- Every rank's value, an integer or several of them, as one list per rank.
local function gather(values, group)
  local P, n = dist.get_world_size(group), #values
  local all = accel.empty(P * n, { dtype = "i64", device = "cpu" })
  dist.all_gather_into_tensor(all, accel.tensor(values, { dtype = "i64", device = "cpu" }), { group = group })
  local flat, out = all:tolist(), {}
  for r = 1, P do out[r] = table.move(flat, (r - 1) * n + 1, r * n, 1, {}) end
  return out
end

--- The text of every rank.
local function gather_text(text, group)
  local P, longest, lengths = dist.get_world_size(group), 0, gather({ #text }, group)
  for r = 1, P do longest = math.max(longest, lengths[r][1]) end
  local bytes = {}
  for i = 1, #text do bytes[i] = text:byte(i) end
  for i = #text + 1, longest do bytes[i] = 0 end
  local all = accel.empty(P * longest, { dtype = "u8", device = "cpu" })
  dist.all_gather_into_tensor(all, accel.tensor(bytes, { dtype = "u8", device = "cpu" }), { group = group })
  local joined, texts = all:to_bytes(), {}
  for r = 1, P do texts[r] = joined:sub((r - 1) * longest + 1, (r - 1) * longest + lengths[r][1]) end
  return texts
end

--- "rank 0", "ranks 0, 2"
local function named(ranks) return (#ranks == 1 and "rank " or "ranks ") .. table.concat(ranks, ", ") end

--- The script's line that called the library, "train.lua:12".
local function script_line()
  local info = caller()
  return info and ("%s:%d"):format(info.short_src:match "[^/]*$", info.currentline) or "?"
end

--- Reports the ranks' values at the first difference, and the lines in the script.
local function difference(texts, sites, group)
  local ranks, lists, at = dist.get_process_group_ranks(group), {}, 0
  for r, text in ipairs(texts) do
    lists[r] = {}
    for line in text:gmatch "([^\n]*)\n" do lists[r][#lists[r] + 1] = line end
  end
  repeat
    at = at + 1
    local same = true
    for r = 2, #lists do same = same and lists[r][at] == lists[1][at] end
  until not same
  local groups, order = {}, {}
  for r, list in ipairs(lists) do
    local what = ("%s (%s)"):format(list[at] or ("nothing, after %d of them"):format(#list), sites[r])
    if not groups[what] then
      groups[what] = {}
      order[#order + 1] = what
    end
    table.insert(groups[what], ranks[r])
  end
  for k, what in ipairs(order) do
    order[k] = ("%s %s %s"):format(named(groups[what]), #groups[what] == 1 and "has" or "have", what)
  end
  return at, table.concat(order, "; ")
end

---@param who string begins the message
---@param what string one of the listed things: "parameter"
---@param lines string[] without newlines
---@param advice string ends the message
---@param group? any
return function(who, what, lines, advice, group)
  if dist.get_world_size(group) == 1 then return end
  local text = #lines > 0 and table.concat(lines, "\n") .. "\n" or ""
  local all, same = gather({ hash(text), #lines }, group), true
  for r = 2, #all do same = same and all[r][1] == all[1][1] and all[r][2] == all[1][2] end
  if same then return end
  local at, who_has = difference(gather_text(text, group), gather_text(script_line(), group), group)
  raise("%s: the ranks have different %ss; at %s %d %s; %s", who, what, what, at, who_has, advice)
end
