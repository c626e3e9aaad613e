--- The spans of a recorder as tables, with fields that follow from their nesting.

---@class accel.profiler.Event
---@field name string
---@field kind string op, backward, collective, user_annotation, module, optimizer, loader, step, offload
---@field start integer ns of the machine's monotonic clock
---@field stop integer
---@field parent integer index of the span around it. 0: none
---@field thread integer 0: the script's, 1: the thread that runs asynchronous collectives, 2: the thread that moves
---  bytes between tiers
---@field flops integer? floating-point operations, with with_flops and if the op has a count
---@field self_memory integer bytes allocated less bytes freed in it, but not in spans inside
---@field memory integer the same, with spans inside
---@field self_time integer ns, without spans inside
---@field shapes string?
---@field dtypes string?
---@field site string? "train.lua:12"
---@field bytes integer of a collective: its payload. Of offload: the bytes moved, or waited for
---@field sent integer of a collective: the bytes sent by this rank
---@field moved integer bytes of an op's arguments and results, with with_flops
---@field ranks integer of a collective: the size of its group

---@param recorder userdata
---@return accel.profiler.Event[]
return function(recorder)
  local list, n = {}, recorder:count()
  for i = 1, n do
    local name, kind, start, stop, parent, thread, flops, memory, shapes, dtypes, site, bytes, sent, ranks, moved = recorder:span(i)
    list[i] = { name = name, kind = kind, start = start, stop = stop, parent = parent, thread = thread, flops = flops,
      self_memory = memory, memory = memory, self_time = stop - start, shapes = shapes, dtypes = dtypes, site = site,
      bytes = bytes, sent = sent, ranks = ranks, moved = moved }
  end
  for i = n, 1, -1 do -- a span follows the one around it
    local e = list[i]
    local around = list[e.parent]
    if around then
      around.memory = around.memory + e.memory
      around.self_time = around.self_time - (e.stop - e.start)
    end
  end
  return list
end
