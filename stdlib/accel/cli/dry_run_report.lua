--- Output of accel-run --dry-run: tables for people, or JSON.
local accel = require "accel"

local CATEGORIES <const> = { "parameters", "gradients", "states", "activations", "temporaries", "others" }

local bytes = require("accel.util.sizes").text

local function flops(n)
  for _, unit in ipairs { { 1e15, "PFLOP" }, { 1e12, "TFLOP" }, { 1e9, "GFLOP" }, { 1e6, "MFLOP" } } do
    if n >= unit[1] then return ("%.2f %s"):format(n / unit[1], unit[2]) end
  end
  return ("%d FLOP"):format(n)
end

local function seconds(s)
  if not (s >= 0 and s < math.huge) then return "unknown" end
  if s < 1e-3 then return ("%.0f us"):format(s * 1e6) end
  if s < 1 then return ("%.1f ms"):format(s * 1e3) end
  return ("%.2f s"):format(s)
end

--- Columns, the first one to the left, the others to the right.
local function aligned(rows)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, cell in ipairs(row) do widths[i] = math.max(widths[i] or 0, #cell) end
  end
  local out = {}
  for _, row in ipairs(rows) do
    local cells = {}
    for i, cell in ipairs(row) do cells[i] = (i == 1 and "%-" .. widths[i] .. "s" or "%" .. widths[i] .. "s"):format(cell) end
    out[#out + 1] = "  " .. table.concat(cells, "   ")
  end
  return table.concat(out, "\n")
end

--- Collectives of one kind, dtype and group in a row: calls, payload, bytes sent.
local function collectives(list)
  local rows, by = {}, {}
  for _, c in ipairs(list) do
    local key = ("%s %s of %d ranks"):format(c.kind, c.kind ~= "barrier" and c.dtype or "", c.ranks):gsub("  ", " ")
    local row = by[key]
    if not row then
      row = { key = key, n = 0, payload = 0, sent = 0 }
      by[key], rows[#rows + 1] = row, row
    end
    row.n, row.payload, row.sent = row.n + 1, row.payload + c.payload, row.sent + c.sent
  end
  return rows
end

local function memory(t)
  local rows, head = {}, { "memory of" }
  for _, r in ipairs(t.ranks) do head[#head + 1] = "rank " .. r.rank end
  rows[1] = head
  for _, name in ipairs(CATEGORIES) do
    local row = { name }
    for _, r in ipairs(t.ranks) do row[#row + 1] = bytes(r.peak[name]) end
    rows[#rows + 1] = row
  end
  local row = { "peak" }
  for _, r in ipairs(t.ranks) do row[#row + 1] = bytes(r.peak.total) end
  rows[#rows + 1] = row
  return aligned(rows)
end

--- t: script, size, machines, device, plan, ranks (reports of accel.cli.dry_run_rank), limit, whose, fits, suggestions, time (of the slowest
--- rank), slowest, rates, rates_file (nil: measured).
return function(t, as_json)
  if as_json then
    t.ranks, t.suggestions = accel.json.array(t.ranks), accel.json.array(t.suggestions)
    io.stdout:write(accel.json.encode(t, { pretty = true }), "\n")
    return
  end
  local first, most = t.ranks[1], 0
  for _, r in ipairs(t.ranks) do most = math.max(most, r.peak.total) end
  local function put(fmt, ...) io.stdout:write(fmt:format(...), "\n") end
  put("%s as %d rank%s on %d machine%s, %s%s\n", t.script, t.size, t.size == 1 and "" or "s", t.machines, t.machines == 1 and "" or "s",
    t.device, t.plan and ", " .. t.plan or "")
  put("%s\n", memory(t))
  if t.fits then
    put("fits: %s of %s (%s)\n", bytes(most), bytes(t.limit), t.whose)
  else
    put("does not fit: %s of %s (%s)", bytes(most), bytes(t.limit), t.whose)
    for _, s in ipairs(t.suggestions) do put("  %s: %s %s", s.fits and "try" or "not even", s.label, bytes(s.peak)) end
    put("  or smaller batches with gradient_accumulation_steps; gradient checkpointing keeps fewer activations (%s here)\n",
      bytes(first.peak.activations))
  end
  if first.steps == 0 then put "no optimizer made a step: this is the whole script" end
  put("step %d of rank %d: %s", math.max(first.steps, 1), first.rank, flops(first.flops))
  local rows = { { "collective", "calls", "payload", "sent by the rank" } }
  for _, row in ipairs(collectives(first.collectives)) do
    rows[#rows + 1] = { row.key, tostring(row.n), bytes(row.payload), bytes(row.sent) }
  end
  if #rows > 1 then put("%s", aligned(rows)) end
  local e = first.experts
  if e then
    put("experts: assuming balanced routers: %d rows of tokens for the %d experts of a rank, in each forward of a layer; at most %d,\n"
      .. "  which all-to-all and memory go up with", e.rows, e.experts // e.ranks, e.most)
  end
  if t.time then
    put("time: %s of rank %d, of which ops %s, Lua and dispatch %s,\n  communication %s%s\n(rates %s%s)", seconds(t.time.total),
      t.slowest, seconds(t.time.ops), seconds(t.time.dispatch), seconds(t.time.communication),
      t.time.idle > 0 and (", waiting in the pipeline " .. seconds(t.time.idle)) or "",
      t.rates_file and "of " .. t.rates_file or "measured here",
      t.machines > 1 and "; between machines by --bandwidth" or "")
    if #t.ranks > 1 then
      local rows_ = { { "time of" } }
      for _, r in ipairs(t.ranks) do table.insert(rows_[1], "rank " .. r.rank) end
      for _, key in ipairs { "ops", "dispatch", "communication", "idle", "total" } do
        local row = { key }
        for _, r in ipairs(t.ranks) do row[#row + 1] = seconds(r.time[key]) end
        rows_[#rows_ + 1] = row
      end
      put("%s", aligned(rows_))
    end
  else
    put "time: unknown, because no rates of this device are measured; give a file with --rates FILE"
  end
  if #first.asked > 0 then
    put "\nanswered with 0, as tensors have no values here:"
    for _, line in ipairs(first.asked) do put("  %s", line) end
  end
  if #first.unwritten > 0 then
    put "\nnot written, as in any dry run:"
    for _, path in ipairs(first.unwritten) do put("  %s", path) end
  end
end
