--- Time of a recording's collectives, and the part the script waited for: Profile:communication. A collective started with async_op
--- runs on a separate thread. Its time outside the waits for it (spans comm::wait) overlaps with other work.

--- Time of [from, to) that lies in waits, which are in order and apart from each other.
local function waited(waits, from, to)
  local sum = 0
  for _, w in ipairs(waits) do
    if w.start >= to then break end
    sum = sum + math.max(0, math.min(w.stop, to) - math.max(w.start, from))
  end
  return sum
end

---@param events accel.profiler.Event[]
---@return {count: integer, total: number, hidden: number, share: number, sent: integer}
return function(events)
  local waits, out = {}, { count = 0, total = 0, hidden = 0, sent = 0 }
  for _, e in ipairs(events) do
    if e.name == "comm::wait" then waits[#waits + 1] = e end
  end
  for _, e in ipairs(events) do
    if e.kind == "collective" then
      local span = e.stop - e.start
      out.count, out.total, out.sent = out.count + 1, out.total + span, out.sent + (e.sent or 0)
      if e.thread == 1 then out.hidden = out.hidden + span - waited(waits, e.start, e.stop) end
    end
  end
  out.share = out.total > 0 and out.hidden / out.total or 0
  out.total, out.hidden = out.total / 1e9, out.hidden / 1e9
  return out
end
