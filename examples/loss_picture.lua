--- Draws the picture of the README: the loss curves of the quickstart, and text that its model writes.
---
---   sh examples/quickstart.sh
---   accel-run examples/loss_picture.lua build/quickstart/checkpoint build/quickstart/gpt examples/quickstart.svg
local accel = require "accel"
local plot = accel.util.plot

local checkpoint, model_folder, out = arg[1], arg[2], arg[3]
if not out then
  io.stderr:write "usage: accel-run examples/loss_picture.lua CHECKPOINT MODEL OUT.svg\n"
  os.exit(2)
end

local PROMPT <const>, TEMPERATURE <const>, SEED <const> = "To be", 0.6, 5
local WIDTH <const>, HEIGHT <const>, PLOT <const>, COLUMNS <const> = 860, 330, 470, 52

local c = assert(accel.ckpt.open(checkpoint))
local progress = accel.decode(assert(c:bytes "custom_checkpoint_0.accel"))
c:close()
local history = progress.history
-- The last one is over the whole validation text, the others are over windows spread over it.
local final = table.remove(history.val.y)
table.remove(history.val.x)
local curve = plot.svg({
  { name = "training loss", x = history.train.x, y = history.train.y },
  { name = "validation loss", x = history.val.x, y = history.val.y },
}, { width = PLOT, height = HEIGHT, title = "The GPT of the quickstart", ylabel = "nats per character" })

local model = assert(accel.models.from_pretrained(model_folder))
local tokenizer = assert(accel.text.Tokenizer.from_pretrained(model_folder))
local ids = model:generate(tokenizer:encode(PROMPT).ids, { seed = SEED, temperature = TEMPERATURE, do_sample = true })

-- ASCII in lines of COLUMNS characters.
local function wrapped(text)
  local lines, line = {}, ""
  for word in text:gsub("[^\32-\126]", " "):gmatch "%S+" do
    if #line + #word + 1 > COLUMNS and line ~= "" then lines[#lines + 1], line = line, "" end
    line = line == "" and word or line .. " " .. word
  end
  lines[#lines + 1] = line
  return lines
end

local function escape(text) return (text:gsub("[&<>]", { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;" })) end

local parts = {
  ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">'):format(WIDTH, HEIGHT, WIDTH, HEIGHT),
  '<rect width="100%" height="100%" fill="white"/>',
  curve,
  ('<g transform="translate(%d 48)" font-family="monospace" font-size="12">'):format(PLOT + 10),
}
local y = 0
local function put(text, colour)
  parts[#parts + 1] = ('<text y="%d" fill="%s">%s</text>'):format(y, colour, escape(text))
  y = y + 18
end
put(('$ accel-run generate gpt "%s" \\'):format(PROMPT), "#0b62b8")
put(("    --temperature %g --seed %d"):format(TEMPERATURE, SEED), "#0b62b8")
for _, line in ipairs(wrapped(PROMPT .. tokenizer:decode(ids))) do put(line, "#1c2024") end
y = y + 18
put(("%d steps, %.1fM characters"):format(progress.step, progress.tokens / 1e6), "#60646c")
put(("training loss %.2f, validation loss %.2f"):format(history.train.y[#history.train.y], final), "#60646c")
parts[#parts + 1] = "</g></svg>\n"
assert(accel.write_file(out, table.concat(parts, "\n")))
