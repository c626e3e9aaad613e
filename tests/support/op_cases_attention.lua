-- Cases of attention and of rotary positions: see op_cases.lua.
local c = require "op_cases"
local real, mask, case, args, big = c.real, c.mask, c.case, c.args, c.big

local L = {}

local function positions(n, ...) return c.index(n, ...) end
local function turn(options)
  return { call = function(f, x, p)
    local o = { positions = p }
    for k, v in pairs(options or {}) do o[k] = v end
    return f(x, o)
  end }
end
L.rope = {
  case("half", { real(2, 3, 4) }),
  case("pairs", { real(3, 6) }, args { interleaved = true, theta = 100 }),
  case("offset", { real(2, 4) }, args { offset = 5 }),
  case("empty", { real(2, 0, 4) }),
  big({}, real(4, 100, 64)),
  case("positions", { real(2, 3, 4), positions(40, 3) }, turn()),
  case("far apart", { real(2, 3, 4), positions(10000, 3) }, turn()),
  case("positions per batch", { real(2, 2, 3, 4), positions(9, 2, 3) }, turn { interleaved = true }),
  case("one row of positions", { real(2, 3, 4), positions(9, 1, 3) }, turn()),
  case("linear", { real(2, 3, 4) }, args { scaling = "linear", scaling_factor = 4 }),
  case("llama3", { real(5, 8) },
    args { theta = 100, scaling = "llama3", scaling_factor = 8, original_max_position = 50, offset = 7 }),
  case("frequencies", { real(3, 4), c.constant(0.1, 1, 2) }, { call = function(f, x, w)
    return f(x, { inv_freq = w:to("f64"), offset = 2 })
  end }),
  case("no rows", { real(2, 0, 4), positions(9, 0) }, turn()),
  big(turn { interleaved = true }, real(4, 3, 100, 64), positions(300, 4, 100)),
}

-- query, key, value, then a mask
local function masked(options)
  return { loss = 4, call = function(f, q, k, v, m)
    local o = { attn_mask = m }
    for key, value in pairs(options or {}) do o[key] = value end
    return f(q, k, v, o)
  end }
end
-- query, key, value, slopes, then a mask
local function attend(options)
  return { loss = 4, call = function(f, q, k, v, slopes, m)
    local o = { alibi_slopes = slopes, attn_mask = m }
    for key, value in pairs(options or {}) do o[key] = value end
    return f(q, k, v, o)
  end }
end
local function slopes(n) return c.constant(0.2, 1.5, n) end
L.scaled_dot_product_attention = {
  case("plain", { real(2, 3, 4), real(2, 5, 4), real(2, 5, 4) }, masked()),
  case("causal", { real(1, 2, 3, 2), real(1, 2, 3, 2), real(1, 2, 3, 2) }, masked { is_causal = true }),
  case("causal, more keys", { real(2, 2), real(4, 2), real(4, 2) }, masked { is_causal = true }),
  case("scale", { real(2, 3), real(3, 3), real(3, 3) }, masked { scale = 0.3 }),
  case("mask", { real(2, 3, 2), real(2, 4, 2), real(2, 4, 2), mask(3, 4) }, masked()),
  case("added mask", { real(2, 3), real(4, 3), real(4, 3), real(2, 4) }, masked()),
  case("grouped heads", { real(1, 4, 2, 2), real(1, 2, 3, 2), real(1, 2, 3, 2) },
    masked { enable_gqa = true }),
  case("other width", { real(2, 3), real(4, 3), real(4, 2) }, masked()),
  case("dropout", { real(2, 3, 4), real(2, 5, 4), real(2, 5, 4) }, masked { dropout_p = 0.4 }),
  case("empty", { real(0, 3, 2), real(0, 4, 2), real(0, 4, 2) }, masked()),
  case("no queries", { real(2, 0, 2), real(2, 3, 2), real(2, 3, 2) }, masked()),
  big(masked { is_causal = true }, real(2, 4, 150, 32), real(2, 4, 150, 32), real(2, 4, 150, 32)),
  case("biases", { real(2, 2, 3, 2), real(2, 2, 3, 2), real(2, 2, 3, 2), slopes(2) }, attend()),
  case("biases, causal", { real(1, 2, 3, 2), real(1, 2, 3, 2), real(1, 2, 3, 2), slopes(2) },
    attend { is_causal = true }),
  case("biases, longer keys", { real(1, 2, 2, 2), real(1, 2, 5, 2), real(1, 2, 5, 2), slopes(2) }, attend()),
  case("biases, shared keys", { real(1, 4, 3, 2), real(1, 2, 3, 2), real(1, 2, 3, 2), slopes(4) },
    attend { enable_gqa = true, is_causal = true }),
  case("biases, mask", { real(1, 2, 3, 2), real(1, 2, 3, 2), real(1, 2, 3, 2), slopes(2), c.mask(3, 3) }, attend()),
  case("biases, one head", { real(3, 2), real(4, 2), real(4, 2), slopes(1) }, attend()),
  case("slopes that learn", { real(1, 2, 3, 2), real(1, 2, 3, 2), real(1, 2, 3, 2), real(2) }, attend()),
  case("biases, dropout", { real(1, 2, 3, 2), real(1, 2, 3, 2), real(1, 2, 3, 2), slopes(2) },
    attend { dropout_p = 0.4 }),
  big(attend { is_causal = true }, real(2, 4, 150, 32), real(2, 4, 150, 32), real(2, 4, 150, 32), slopes(4)),
  big(attend(), real(2, 4, 70, 32), real(2, 4, 300, 32), real(2, 4, 300, 32), slopes(4)),
}

return L
