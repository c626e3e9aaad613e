-- The health of a prompt's ranks: each one's current wait or activity, how one ended, the state of their collectives,
-- which start again if possible. The part of ranks.lua that reads the ranks' status pages.
local accel = ...
local answers = accel.host_chunk "repl/answers"

local Health = {}

local function names(list)
  table.sort(list)
  local parts, i = {}, 1
  while i <= #list do
    local k = i
    while list[k + 1] == list[k] + 1 do k = k + 1 end
    parts[#parts + 1] = k > i and ("%d%s%d"):format(list[i], k > i + 1 and "-" or ", ", list[k]) or tostring(list[i])
    i = k + 1
  end
  return table.concat(parts, ", ")
end
--- "0, 2-4". Sorts the list.
Health.names = names

--- " for ranks 0, 2": the ranks that a rank waits for. "" if they are on other machines, whose ranks its page does not
--- name.
function Health.for_whom(missing)
  return #missing == 0 and "" or (" for rank%s %s"):format(#missing > 1 and "s" or "", names(missing))
end

--- A rank's page, from a list of pages:read(). A prompt's rank knows its number in the job if that is different.
function Health:page_of(pages, rank)
  local number = self.ranks[rank].rank
  for _, page in ipairs(pages) do
    if page.rank == number then return page end
  end
  return not number and pages[rank + 1] or { state = "absent", pid = 0, step = 0, missing = {} }
end

local function page_of(self, rank)
  local pages, abort_reason = self.pages:read()
  return self:page_of(pages, rank), abort_reason
end

-- "waits in barrier at stdin:4 for ranks 0, 2": the activity of a rank that has not answered.
function Health:activity(rank)
  local r, page = self.ranks[rank], page_of(self, rank)
  local at = r.job and ("%s:%d"):format(r.job.request.name or "stdin", r.job.line) or page.at or "?"
  if page.stopped then return ("is stopped (SIGSTOP) at %s; kill -CONT %d lets it continue"):format(at, page.pid) end
  if page.waits then
    local idle = {}
    for _, other in ipairs(page.missing) do
      local o = self.ranks[other]
      if o and not o.job and not o.dead then idle[#idle + 1] = other end
    end
    return ("waits in %s%s%s"):format(page.waits, Health.for_whom(page.missing),
      #idle > 0 and (", which %s at the prompt"):format(#idle > 1 and "are" or "is") or ""), #idle > 0
  end
  local seen = page.at and page.at ~= at and ", last seen at " .. page.at or ""
  return ("still runs %s%s"):format(at, seen)
end

function Health:report_missing(job)
  local list = {}
  for rank in accel.pairs(job.left) do list[#list + 1] = rank end
  local by_text, order = {}, {}
  for _, rank in ipairs(list) do
    local text = self:activity(rank)
    if not by_text[text] then
      by_text[text] = {}
      order[#order + 1] = text
    end
    table.insert(by_text[text], rank)
  end
  for _, text in ipairs(order) do self:say(answers.label(self, by_text[text]) .. text) end
  if not self.told_interrupt then
    self.told_interrupt = true
    self:say("the answer will be shown; Ctrl-C interrupts")
  end
end

-- Whether none of the missing ranks will answer by itself. Each waits for one that stands at the prompt.
function Health:is_stuck(job)
  for rank in next, job.left do
    local _, hopeless = self:activity(rank)
    if not hopeless then return false end
  end
  return true
end

-- "rank 1 (pid 7) was killed by signal 9 (Killed), at stdin:3". The launcher may need a moment to notice.
function Health:epitaph(rank)
  local page
  for _ = 1, 50 do
    page = page_of(self, rank)
    if page.state == "dead" or page.ended or page.state == "left" then break end
    accel.console.poll({}, 0.01)
  end
  local r = self.ranks[rank]
  r.left = page.state == "left" and not page.ended -- by itself, with status 0
  local how = page.ended or "has ended"
  if how:find "^killed" then how = "was " .. how
  elseif how:find "^exit with" then how = how:gsub("^exit", "exited")
  elseif page.state == "failed" and page.ended then how = "failed: " .. how end
  local at = r.job and ("%s:%d"):format(r.job.request.name or "stdin", r.job.line) or page.at
  return ("rank %d (pid %d) %s%s"):format(rank, page.pid, how, at and ", at " .. at or "")
end

-- ---- collectives ----

-- Whether an answer has just reported this.
local function is_said(job, reason)
  for _, a in next, job and job.answers or {} do
    local text = a.message or table.concat(a.lines or {}, "\n")
    if text:find(reason:sub(1, 100), 1, true) then return true end
  end
end

-- Collectives start again: every rank resets, then the abort reason is cleared, then all continue. nil, reason: they
-- cannot.
function Health:renew()
  local next_group, all = 0, self:alive()
  local got = self:ask({ op = "reset" }, 0, all)
  for _, rank in ipairs(all) do
    local a = got and got[rank]
    if not a or not a.ok then return nil, a and a.message or ("rank %d does not answer"):format(rank) end
    next_group = math.max(next_group, a.next_group)
  end
  self.pages:renew()
  got = self:ask({ op = "resume", next_group = next_group }, 0, all)
  return got ~= nil, "not all ranks answer"
end

--- After an error that ended the world of the ranks (mismatched calls, an interrupted wait): it starts again once all of
--- them are at the prompt, or one message reports that it cannot. job: the job whose answers were shown last.
function Health:mend(job)
  local _, abort_reason = self.pages:read()
  if not abort_reason or self.lost == abort_reason then return end
  local reason = abort_reason:gsub("^stopped: ", "")
  local known = self.pending == abort_reason or is_said(job, reason)
  local why
  if #self:alive() == self.size then
    if #self:busy() > 0 then
      if self.pending ~= abort_reason then
        self:say("collectives do not work until all ranks are at the prompt" .. (known and "" or " (" .. reason .. ")"))
      end
      self.pending = abort_reason
      return
    end
    local done
    done, why = self:renew()
    if done then
      self:say(known and "collectives work again" or ("collectives were stopped (%s) and work again"):format(reason))
      self.pending = nil
      return
    end
  else
    local gone = {}
    for rank = 0, self.size - 1 do
      if self.ranks[rank].dead then gone[#gone + 1] = rank end
    end
    why = ("rank%s %s gone"):format(#gone > 1 and "s" or "", names(gone) .. (#gone > 1 and " are" or " is"))
  end
  self.lost = abort_reason
  if #self:alive() == 0 then return end
  self:say(("collectives no longer work: %s%s"):format(why, self.interactive
    and "; :save FILE keeps the inputs for a new session, :quit ends this one" or ""))
end

return Health
