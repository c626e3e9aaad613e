--- accel-run estimate-memory DIR: the memory to load and to train a model, from its config.json, with the reference's figures and
--- table.
local command = require "accel.cli.command"
local convert_bytes = require("accel.util.sizes").convert_bytes
local terminal = require "accel.util.terminal"

local NAME <const> = "accel-run estimate-memory"

local function centred(text, width)
  local left = (width - utf8.len(text)) // 2
  return (" "):rep(left) .. text .. (" "):rep(width - utf8.len(text) - left)
end

--- Lines of a table with a title over it, in ASCII without UTF-8.
local function draw(title, headers, rows)
  local widths, glyphs = {}, { "|", "-", "+++", "+++", "+++" }
  if terminal.utf8() then
    glyphs = { "\u{2502}", "\u{2500}", "\u{250C}\u{252C}\u{2510}", "\u{251C}\u{253C}\u{2524}", "\u{2514}\u{2534}\u{2518}" }
  end
  for i, header in ipairs(headers) do
    widths[i] = #header
    for _, row in ipairs(rows) do widths[i] = math.max(widths[i], #row[i]) end
  end
  local inner = #widths - 1
  for _, width in ipairs(widths) do inner = inner + width end
  if #title > inner then widths[#widths], inner = widths[#widths] + #title - inner, #title end
  local function rule(corners, middle)
    local parts, marks = {}, {}
    for _, c in utf8.codes(corners) do marks[#marks + 1] = utf8.char(c) end
    for i, width in ipairs(widths) do parts[i] = glyphs[2]:rep(width) end
    return marks[1] .. table.concat(parts, middle or marks[2]) .. marks[3]
  end
  local function line(cells)
    local parts = {}
    for i, cell in ipairs(cells) do parts[i] = centred(cell, widths[i]) end
    return glyphs[1] .. table.concat(parts, glyphs[1]) .. glyphs[1]
  end
  local out = { rule(glyphs[3], glyphs[2]), glyphs[1] .. centred(title, inner) .. glyphs[1],
    (rule(glyphs[4]):gsub("\u{253C}", "\u{252C}")), line(headers), rule(glyphs[4]) }
  for _, row in ipairs(rows) do out[#out + 1] = line(row) end
  out[#out + 1] = rule(glyphs[5])
  return table.concat(out, "\n")
end

return function(...)
  local o, words = command.parse({
    name = NAME, usage = "DIR [--dtypes LIST]",
    summary = "Estimates the memory to load a model and to train it with Adam, from the config.json in DIR. Nothing is downloaded.",
    { "dtypes", "string", nil, "LIST", "list of float32,float16,bfloat16,int8,int4; default: float32,float16,int8,int4" },
    { "library_name", "string", nil, "NAME", "accepted", ignored = "models are those of accel.models" },
    { "trust_remote_code", "flag", false, nil, "accepted", ignored = "accel runs no code of a model" },
    { "json", "flag", false, nil, "print JSON, in bytes" },
  }, 1, math.maxinteger, ...)
  local estimate = require "accel.models.estimate"
  local dtypes = { table.unpack(words, 2) } -- the reference takes them as words
  for dtype in (o.dtypes or ""):gmatch "[^,%s]+" do table.insert(dtypes, 1, dtype) end
  if #dtypes == 0 then dtypes = estimate.dtypes end
  for _, dtype in ipairs(dtypes) do
    local known = dtype == "bfloat16"
    for _, name in ipairs(estimate.dtypes) do known = known or name == dtype end
    if not known then
      io.stderr:write(("%s: --dtypes: '%s' is not one of float32, float16, bfloat16, int8, int4\n"):format(NAME, dtype))
      os.exit(2, true)
    end
  end
  local model, message = estimate.of_folder(words[1])
  if not model then return command.refuse(NAME, "%s", message) end
  local rows, data = {}, {}
  for i, dtype in ipairs(dtypes) do
    local layer, total = estimate.in_dtype(model.largest_layer, dtype), estimate.in_dtype(model.total, dtype)
    local training, most = estimate.training(model.total, dtype), nil
    for _, bytes in next, training or {} do most = math.max(most or 0, bytes) end
    rows[i] = { dtype, convert_bytes(layer), convert_bytes(total), most and convert_bytes(most) or "N/A" }
    data[i] = { dtype = dtype, largest_layer = layer, total = total, training = training }
  end
  if o.json then
    print(require("accel").json.encode({ class = model.class, layers = model.layers, estimates = data }, { pretty = true }))
  else
    print(draw(("Memory Usage for loading `%s`"):format(words[1]), { "dtype", "Largest Layer", "Total Size", "Training using Adam" }, rows))
  end
  return true
end
