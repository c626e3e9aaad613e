-- :diff EXPR: a tensor, or the tensors of a table or module, compared between ranks, and :diff alone: all parameters and gradients of the
-- modules among the variables: which ranks are equal, how far the
-- others differ and at which elements. Values travel in pieces, and only of tensors that differ. Used by front.lua.
local accel = ...
local answers = accel.host_chunk "repl/answers"

local M = {}

local PIECE, MOST_SHOWN = 1 << 18, 20

local function dims(shape)
  local list = {}
  for i, n in ipairs(shape) do list[i] = ("%d"):format(n) end
  return "(" .. table.concat(list, ", ") .. ")"
end

local function numel(shape)
  local n = 1
  for _, d in ipairs(shape) do n = n * d end
  return n
end

-- Position i (from 0) of a tensor of this shape, as t[...] counts.
local function position(shape, i)
  local list = {}
  for k = #shape, 1, -1 do
    list[k] = ("%d"):format(i % shape[k] + 1)
    i = i // shape[k]
  end
  return #shape > 0 and "[" .. table.concat(list, ", ") .. "]" or ""
end

local function shown(x)
  if type(x) == "boolean" then return tostring(x) end
  return math.type(x) == "integer" and ("%d"):format(x) or ("%.9g"):format(x)
end

-- Elements of two ranks' pieces: {count, greatest difference and its position, first difference and its position},
-- added to d.
local function add_piece(d, a, b, at)
  local both_nan = a:ne(a):mul(b:ne(b)):to "bool"
  local differs = a:ne(b):logical_and(both_nan:logical_not())
  local count = differs:to("i64"):sum():item()
  if count == 0 then return end
  if d.count == 0 then
    local first = differs:to("i64"):argmax():item()
    d.first, d.first_a, d.first_b = at + first, a[first + 1]:item(), b[first + 1]:item()
  end
  d.count = d.count + count
  local x, y = a:to "f64", b:to "f64"
  local far = (x - y):abs()
  local nan = far:ne(far):logical_and(differs)
  if nan:to("i64"):sum():item() > 0 then
    d.most = d.most or 0
    d.nan = true
  end
  far = far:masked_fill(far:ne(far), 0)
  local most = far:max():item()
  if not d.most or most > d.most then
    local i = far:argmax():item()
    d.most, d.where, d.most_a, d.most_b = most, at + i, a[i + 1]:item(), b[i + 1]:item()
  end
end

local function compare(front, line, index, entry, one, other)
  local n, d = numel(entry.shape), { count = 0 }
  for at = 0, n - 1, PIECE do
    local request = { op = "part", index = index, first = at + 1, count = math.min(PIECE, n - at) }
    local got = front:ask(request, line, { one, other })
    if not got or not got[one].part or not got[other].part then return nil, "the ranks did not answer" end
    local a, b = got[one].part, got[other].part
    if a.dtype == "bool" then a, b = a:to "u8", b:to "u8" end
    add_piece(d, a, b, at)
  end
  return d
end

local function describe(front, line, index, entry, groups, lines)
  local name = entry.name ~= "" and entry.name or "the tensor"
  local base = groups[1]
  lines[#lines + 1] = ("%s: %s %s; from rank%s %s%s"):format(name, entry.dtype, dims(entry.shape),
    #base.ranks > 1 and "s" or "", front.names(base.ranks), #base.ranks > 1 and ", where it is the same," or "")
  for i = 2, #groups do
    local g = groups[i]
    local who = ("  rank%s %s: "):format(#g.ranks > 1 and "s" or "", front.names(g.ranks))
    if g.entry.dtype ~= entry.dtype or dims(g.entry.shape) ~= dims(entry.shape) then
      lines[#lines + 1] = who .. ("%s %s"):format(g.entry.dtype, dims(g.entry.shape))
    else
      local d, why = compare(front, line, index, entry, base.ranks[1], g.ranks[1])
      if not d then
        lines[#lines + 1] = who .. why
      elseif d.count == 0 then
        lines[#lines + 1] = who .. "equal in value, other bits (signs of zeros, NaNs)"
      else
        local most = d.where and ("max abs difference %s at %s (%s, here %s)"):format(shown(d.most),
          position(entry.shape, d.where), shown(d.most_a), shown(d.most_b)) or "only NaN against numbers"
        lines[#lines + 1] = who .. most
        lines[#lines + 1] = ("    %d of %d differ%s, the first at %s (%s, here %s)"):format(d.count, numel(entry.shape),
          d.nan and ", NaN against numbers among them" or "", position(entry.shape, d.first), shown(d.first_a),
          shown(d.first_b))
      end
    end
  end
end

-- Ranks grouped by their values of tensor `index`, the largest group first.
local function groups_of(got, targets, index)
  local groups, by_key = {}, {}
  for _, rank in ipairs(targets) do
    local e = got[rank].tensors[index]
    local key = e.dtype .. dims(e.shape) .. e.digest
    if not by_key[key] then
      by_key[key] = { ranks = {}, entry = e }
      groups[#groups + 1] = by_key[key]
    end
    table.insert(by_key[key].ranks, rank)
  end
  table.sort(groups, function(a, b)
    if #a.ranks ~= #b.ranks then return #a.ranks > #b.ranks end
    return a.ranks[1] < b.ranks[1]
  end)
  return groups
end

--- Whether it worked (also when the tensors differ).
function M.run(front, text, line, targets)
  for _, rank in ipairs(targets) do
    if front.ranks[rank].job then
      front:complain(("rank %d is busy; Ctrl-C interrupts it, @0,2 :diff %s uses other ranks"):format(rank, text))
      return false
    end
  end
  local got, job = front:ask({ op = "tensors", text = text }, line, targets)
  if not got then
    job.quiet, job.background, front.open[job.id] = nil, true, job
    front:report_missing(job)
    return false
  end
  local errors, first = {}, nil
  for _, rank in ipairs(targets) do
    local a = got[rank]
    if not a then return false end
    if not a.ok then
      if not errors[a.message] then errors[#errors + 1] = { text = a.message, ranks = {} } end
      errors[a.message] = errors[a.message] or errors[#errors]
      table.insert(errors[a.message].ranks, rank)
    end
    first = first or a
  end
  for i, err in ipairs(errors) do errors[i] = answers.label(front, err.ranks) .. err.text end
  if #errors > 0 then
    front:complain(table.concat(errors, "\n"))
    return false
  end
  for _, rank in ipairs(targets) do
    local list = got[rank].tensors
    local same = #list == #first.tensors
    for i, e in ipairs(list) do same = same and first.tensors[i] and e.name == first.tensors[i].name end
    if not same then
      front:complain(("rank %d has %d tensors, rank %d has %d, or others by name"):format(targets[1], #first.tensors,
        rank, #list))
      return false
    end
  end
  if #first.tensors == 0 then
    front:complain(("it has no tensor, but %s"):format(first.kind))
    return false
  end
  local lines, different = {}, 0
  for i, entry in ipairs(first.tensors) do
    local groups = groups_of(got, targets, i)
    if #groups > 1 then
      different = different + 1
      if different <= MOST_SHOWN then describe(front, line, i, groups[1].entry, groups, lines) end
    end
  end
  if different > MOST_SHOWN then lines[#lines + 1] = ("... and %d more that differ"):format(different - MOST_SHOWN) end
  local who = ("rank%s %s"):format(#targets > 1 and "s" or "", front.names({ table.unpack(targets) }))
  if #first.tensors == 1 and different == 0 then
    local e = first.tensors[1]
    lines[1] = ("%s %s: the same on %s"):format(e.dtype, dims(e.shape), who)
  elseif #first.tensors > 1 then
    lines[#lines + 1] = ("%d of %d tensors differ between %s"):format(different, #first.tensors, who)
  end
  front:say(lines)
  return true
end

return M
