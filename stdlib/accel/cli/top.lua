--- accel-run top [JOB]: a live table of the ranks of a job: step and step time, logged loss and tokens per second, memory, and each rank's
--- current wait and its duration. Stragglers are marked. Read from the ranks' status pages: the job does nothing for it.
local accel = require "accel"
local command = require "accel.cli.command"
local terminal = require "accel.util.terminal"
local jobs = accel.host_chunk "attach/jobs"
local fit = require "accel.cli.fit"

local columns = { { "RANK", 4, 9 }, { "STEP", 8, 8 }, { "TIME", 8, 7 }, { "LOSS", 9, 6 }, { "TOKENS/S", 8, 4 }, { "MEM", 7, 5 }, { "AT" } }

local function memory(kib)
  if not kib then return "" end
  if kib >= 1 << 20 then return ("%.1fG"):format(kib / 2 ^ 20) end
  return ("%dM"):format(kib // 1024)
end

local function time(seconds)
  if not seconds then return "" end
  if seconds < 1e-3 then return ("%.0fus"):format(seconds * 1e6) end
  if seconds < 1 then return ("%.1fms"):format(seconds * 1e3) end
  return ("%.2fs"):format(seconds)
end

local function place(at) return at and at:match "[^/]*$" or "?" end

local function doing(page)
  if page.held then return ("%s at %s"):format(page.held:find "debugger" and "in a debugger" or "stopped (SIGSTOP)", place(page.at)) end
  if page.prompt then return "at a prompt: " .. place(page.at) end
  if page.waits and page.seconds > 0.05 then
    local what = page.waits:gsub(" %([^)]*%)", ""):gsub(" at %S*/", " at ")
    return ("%.1fs in %s%s"):format(page.seconds, what, #page.missing > 0 and " for " .. table.concat(page.missing, ",") or "")
  end
  return page.at and place(page.at) or ""
end

-- The table, of at most so many lines.
local function lines(job, pages, width, most)
  local read_pages, abort = pages:read()
  local any = false
  for _, page in ipairs(read_pages) do any = any or page.state == "running" and page.memory ~= nil end
  local columns_shown = fit.choose(columns, width)
  local title = ("%s  %s  %s"):format(job.id, os.date "%H:%M:%S", job.script:match "[^/]*$")
  local out = { fit.cut(title, width), fit.head(columns, columns_shown, width) }
  local below = {}
  for _, page in ipairs(read_pages) do
    if page.late then
      below[#below + 1] = fit.cut(("! rank %d: at %s for %.1f s; the median step takes %.3g s"):format(page.rank, place(page.at),
        page.late, page.usual), width)
    end
  end
  if abort then below[#below + 1] = fit.cut(abort, width) end
  local room = math.max(1, most - #out - #below)
  for i, page in ipairs(read_pages) do
    if i == room and #read_pages > room then -- the terminal is too low
      out[#out + 1] = fit.cut(("... and %d more ranks"):format(#read_pages - i + 1), width)
      break
    end
    local alive = page.state == "running"
    out[#out + 1] = fit.line(columns, columns_shown, { (page.late and "!" or "") .. page.rank, ("%d"):format(page.step), time(page.step_seconds),
      page.loss and ("%.4g"):format(page.loss) or "", page.tokens_per_s and ("%.0f"):format(page.tokens_per_s) or "",
      memory(page.memory),
      alive and doing(page) or page.ended or page.state }, width)
  end
  return table.move(below, 1, #below, #out + 1, out), any
end

-- Waits for the next look. Whether the user leaves.
local function left(keys, seconds)
  local limit = accel.clock() + seconds
  repeat
    local what = accel.console.poll({}, math.max(0, limit - accel.clock()), keys ~= nil)
    if what == "break" then return true end
    if what == "input" then
      local key = keys:read()
      if key == "q" or key == "Q" or key == "break" or key == "eof" then return true end
      if key == "redraw" then return false end
    end
  until accel.clock() >= limit
  return false
end

return function(...)
  local o, words, given = command.parse({
    name = "accel-run top", usage = "[options] [JOB]",
    summary = "Shows a live table of a job's ranks; q or Ctrl-C leaves. In a pipe it prints one table.",
    { "interval", "number", 1, "S", "seconds between updates", least = 0.05 },
    { "count", "int", nil, "N", "leave after N updates", least = 1 },
    { "hosts", "string", nil, "A,B", "the job's other machines [those that its ranks know of]" },
  }, 0, 1, ...)
  local job, why = jobs.find_everywhere(words[1], o.hosts)
  if not job then return command.refuse("accel-run top", "%s", why) end
  local pages
  pages, why = jobs.pages(job)
  if not pages then return command.refuse("accel-run top", "%s: %s", job.id, why) end
  local live = terminal.interactive(1)
  local _ <close> = accel.console.session()
  local keys <close> = live and accel.isatty(0) and accel.console.keys() or nil
  local looks = o.count or (live and math.huge or 1)
  if given.interval and looks == 1 then command.no_effect("accel-run top", "--interval", "with a single sample; add --count") end
  local drawn, drawn_width = 0, nil
  while looks > 0 do
    local width, most = terminal.width(), math.huge
    if live then
      width, most = width - 1, math.max(4, (select(2, accel.term_width()) or 24) - 1) -- a full line would wrap in some terminals
    elseif not os.getenv "COLUMNS" then
      width = 200
    end
    local shown, running = lines(job, pages, width, most)
    -- the terminal was resized: the drawn lines have been wrapped in an unknown way
    if live and drawn_width and drawn_width ~= width then io.stdout:write "\27[2J\27[H"
    elseif live and drawn > 0 then io.stdout:write(("\27[%dA\27[J"):format(drawn)) end
    io.stdout:write(table.concat(shown, "\n"), "\n")
    io.stdout:flush()
    drawn, drawn_width = #shown, width
    looks = looks - 1
    if not running then break end
    if looks > 0 and left(keys, o.interval) then break end
  end
  return true
end
