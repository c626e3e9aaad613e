--- Which ranks of a job are late, from their status pages: what accel-run top marks, and what a rank's watch says once in the log.
local M = {}

local SLACK <const> = 1.0 -- seconds beyond twice the median step

local function median(list)
  table.sort(list)
  local n = #list
  if n == 0 then return nil end
  return n % 2 == 1 and list[(n + 1) // 2] or (list[n // 2] + list[n // 2 + 1]) / 2
end

--- Ranks that have been at one step for longer than twice the median step and a second while another rank is further or waits for them:
--- text by rank. All ranks slow alike (a busy machine) are none late.
---@param pages table[] as accel.console.pages reads them
---@return table<integer, string>
function M.late(pages)
  local steps, furthest, waited = {}, 0, {}
  for _, page in ipairs(pages) do
    if page.state == "running" then
      if page.step_seconds then steps[#steps + 1] = page.step_seconds end
      furthest = math.max(furthest, page.step)
      if page.waits and page.seconds > SLACK then
        for _, rank in ipairs(page.missing) do waited[rank] = math.max(waited[rank] or 0, page.seconds) end
      end
    end
  end
  local usual, late = median(steps), {}
  if not usual then return late end
  for _, page in ipairs(pages) do
    local behind = page.step < furthest or waited[page.rank]
    if page.state == "running" and not page.waits and not page.prompt and page.stepped and behind and page.stepped > 2 * usual + SLACK then
      late[page.rank] = ("at %s for %.1f s; the median step takes %.3g s"):format(page.at or "a line not known", page.stepped, usual)
    end
  end
  return late
end

return M
