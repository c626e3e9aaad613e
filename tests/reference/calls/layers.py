# Functions and layers of torch.nn: pools, sampling, padding, norms, convolutions, recurrence, dropout.
FILL_PY = ("(lambda m: [p.data.copy_(torch.sin(torch.arange(p.numel(), dtype=p.dtype)).reshape(p.shape) / 2) "
           "for p in m.parameters()] and m or m)")
FILL_LUA = ("(function(m) for _, p in ipairs(m:parameters()) do accel.no_grad(function() "
            "p:copy_(accel.arange(p:numel(), { dtype = p.dtype }):sin():reshape(p.shape) / 2) end) end return m end)")


def layer(name, py, lua, call="(x)", call_lua=None, typed=True, mode="", **inputs):
    """nn.<name> with parameters by a formula, in f64. mode: ".eval()"."""
    py_args = py + (", " if py and typed else "") + ("dtype=torch.float64" if typed else "")
    lua_args = lua + (", " if lua and typed else "") + ('{ dtype = "f64" }' if typed and not lua.endswith("}") else "")
    if typed and lua.endswith("}"):
        lua_args = lua[:-1].rstrip() + ', dtype = "f64" }'
    case(f"nn {name}", f"{FILL_PY}(nn.{name}({py_args})){mode}{call}",
         f"{FILL_LUA}(nn.{name}({lua_args})){mode.replace('.', ':')}{call_lua or call}", **inputs)


def plain_layer(name, py="", lua="", call="(x)", mode="", **inputs):
    """A layer without parameters."""
    case(f"nn {name}", f"nn.{name}({py}){mode}{call}", f"nn.{name}({lua}){mode.replace('.', ':')}{call}", **inputs)


# ---- pools ----
X1, X2, X3 = f(1, 2, 5), f(1, 1, 5, 4), f(1, 1, 3, 4, 3)
for n, x in ((1, X1), (2, X2), (3, X3)):
    case(f"F max_pool{n}d", f"F.max_pool{n}d(x, 3, 2, 1)", f"F.max_pool{n}d(x, 3, 2, 1)", x=x)
    case(f"F max_pool{n}d_with_indices", f"F.max_pool{n}d_with_indices(x, 2, 1, padding=1, dilation=2)",
         f"F.max_pool{n}d_with_indices(x, 2, 1, {{ padding = 1, dilation = 2 }})", x=x)
    case(f"F avg_pool{n}d", f"F.avg_pool{n}d(x, 3, 2, 1, True, False)", f"F.avg_pool{n}d(x, 3, 2, 1, true, false)", x=x)
    case(f"F adaptive_avg_pool{n}d", f"F.adaptive_avg_pool{n}d(x, 3)", x=x)
    case(f"F adaptive_max_pool{n}d", f"F.adaptive_max_pool{n}d(x, 3)", x=x)
    case(f"F adaptive_max_pool{n}d_with_indices", f"F.adaptive_max_pool{n}d_with_indices(x, 2)", x=x)
    case(f"F lp_pool{n}d", f"F.lp_pool{n}d(x.abs(), 3, 2, 2, True)", f"F.lp_pool{n}d(x:abs(), 3, 2, 2, true)", x=x)
    case(f"F max_unpool{n}d", f"F.max_unpool{n}d(*F.max_pool{n}d(x, 2, return_indices=True), 2)",
         f"(function(v, i) return F.max_unpool{n}d(v, i, 2) end)(F.max_pool{n}d(x, 2, {{ return_indices = true }}))", x=f(*[1, 2, 2, 4, 2][:n + 2]))
    plain_layer(f"MaxPool{n}d", "2, stride=1, padding=1, dilation=2, return_indices=True",
                "2, { stride = 1, padding = 1, dilation = 2, return_indices = true }", x=x)
    plain_layer(f"AvgPool{n}d", "3, stride=2, padding=1", "3, { stride = 2, padding = 1 }", x=x)
    plain_layer(f"AdaptiveAvgPool{n}d", "2", "2", x=x)
    plain_layer(f"AdaptiveMaxPool{n}d", "2", "2", x=x)
    plain_layer(f"LPPool{n}d", "2, 3, stride=2", "2, 3, { stride = 2 }", x=x)
    shape = [2, 3, 5] if n == 1 else [2, 2, 5, 5] if n == 2 else [1, 1, 3, 5, 3]
    size = ", ".join(map(str, shape[2:]))
    case(f"nn MaxUnpool{n}d", f"nn.MaxUnpool{n}d(2)(*F.max_pool{n}d(x, 2, return_indices=True), output_size=[{size}])",
         f"(function(v, i) return nn.MaxUnpool{n}d(2)(v, i, {{ {size} }}) end)(F.max_pool{n}d(x, 2, {{ return_indices = true }}))", x=x)
case("F avg_pool3d", "F.avg_pool3d(x, (2, 3, 1), divisor_override=5)", "F.avg_pool3d(x, { 2, 3, 1 }, { divisor_override = 5 })", x=X3)
case("F adaptive_avg_pool3d", "F.adaptive_avg_pool3d(x, (2, None, 1))", "F.adaptive_avg_pool3d(x, { 2, false, 1 })", x=X3)
case("F adaptive_max_pool3d", "F.adaptive_max_pool3d(x, (2, None, 5))", "F.adaptive_max_pool3d(x, { 2, false, 5 })", x=X3)
case("F max_pool3d", "F.max_pool3d(x, (2, 3, 1), ceil_mode=True)", "F.max_pool3d(x, { 2, 3, 1 }, { ceil_mode = true })", x=f(2, 5, 4, 3))
for n, x, u in ((2, X2, pos(1, 1, 2)), (3, f(1, 1, 4, 5, 4), pos(1, 1, 3))):
    s = "_random_samples=u / 3.1"
    case(f"F fractional_max_pool{n}d", f"F.fractional_max_pool{n}d(x, 2, output_size={5 - n}, {s})",
         f"F.fractional_max_pool{n}d(x, 2, {{ output_size = {5 - n}, _random_samples = u / 3.1 }})", x=x, u=u, grad=False)
    case(f"F fractional_max_pool{n}d_with_indices", f"F.fractional_max_pool{n}d_with_indices(x, 2, output_ratio={(0.5,) * n}, {s})",
         f"F.fractional_max_pool{n}d_with_indices(x, 2, {{ output_ratio = 0.5, _random_samples = u / 3.1 }})", x=x, u=u, grad=False)
    case(f"nn FractionalMaxPool{n}d", f"nn.FractionalMaxPool{n}d(2, output_size=2, {s})(x)",
         f"nn.FractionalMaxPool{n}d(2, {{ output_size = 2, _random_samples = u / 3.1 }})(x)", x=x, u=u, grad=False)
for x in (f(2, 5, 3), f(1, 4, 3, 2)):
    case("F local_response_norm", "F.local_response_norm(x, 3, 0.1, 0.5, 2.0)", x=x)
    plain_layer("LocalResponseNorm", "2, alpha=0.2", "2, { alpha = 0.2 }", x=x)
fails("F max_pool3d", "F.max_pool3d(x, 3, 1, 2)", x=X3)
fails("F avg_pool3d", "F.avg_pool3d(x, 4, padding=2)", "F.avg_pool3d(x, 4, { padding = 2 })", x=X3)
fails("F max_unpool2d", "F.max_unpool2d(x, torch.zeros(2, 2, 6, 4, dtype=torch.int64), 2)",
      'F.max_unpool2d(x, accel.zeros(2, 2, 6, 4, { dtype = "i64" }), 2)', x=X2)
fails("F fractional_max_pool2d", "F.fractional_max_pool2d(x, 2)", x=X2)
fails("F fractional_max_pool3d", "F.fractional_max_pool3d(x, 2, output_size=3)", "F.fractional_max_pool3d(x, 2, { output_size = 3 })", x=X3)

# ---- sampling ----
for mode in ("bilinear", "nearest", "bicubic"):
    for pad in ("zeros", "border", "reflection"):
        corners = pad != "border"
        case("F grid_sample", f"F.grid_sample(x, g * 0.65, '{mode}', '{pad}', {corners})",
             f'F.grid_sample(x, g * 0.65, "{mode}", "{pad}", {str(corners).lower()})', x=f(2, 2, 4, 3), g=f(2, 3, 2, 2))
case("F grid_sample", "F.grid_sample(x, g, align_corners=False)", "F.grid_sample(x, g)", x=X3, g=unit(1, 2, 2, 3, 3))
case("F grid_sample", "F.grid_sample(x, g * 0.6, 'nearest', 'reflection', False)", 'F.grid_sample(x, g * 0.6, "nearest", "reflection")', x=X3,
     g=f(1, 2, 2, 3, 3))
case("F grid_sample", "F.grid_sample(x, g, align_corners=False)", "F.grid_sample(x, g)", x=f(2, 2, 4, 3, dtype="f32"), g=f(2, 3, 2, 2, dtype="f32"))
case("F grid_sample", "F.grid_sample(x, g, 'bicubic', 'border', False)", 'F.grid_sample(x, g, "bicubic", "border")', x=X3, g=unit(1, 2, 2, 3, 3))
fails("F grid_sample", "F.grid_sample(x, g)", x=f(2, 2, 4, 3), g=unit(1, 2, 2, 2))
for corners in (True, False):
    lua = str(corners).lower()
    case("F affine_grid", f"F.affine_grid(t, (2, 1, 3, 4), align_corners={corners})", f"F.affine_grid(t, {{ 2, 1, 3, 4 }}, {{ align_corners = {lua} }})",
         t=f(2, 2, 3))
    case("F affine_grid", f"F.affine_grid(t, (1, 1, 2, 1, 3), align_corners={corners})",
         f"F.affine_grid(t, {{ 1, 1, 2, 1, 3 }}, {{ align_corners = {lua} }})", t=f(1, 3, 4))
fails("F affine_grid", "F.affine_grid(t, (3, 1, 3, 4))", "F.affine_grid(t, { 3, 1, 3, 4 })", t=f(2, 2, 3))
for mode in ("bilinear", "bicubic"):
    for size in ((3, 2), (4, 7), (5, 4)):
        for corners in (False, True):
            case("F interpolate", f"F.interpolate(x, {size}, mode='{mode}', align_corners={corners}, antialias=True)",
                 f'F.interpolate(x, {{ {size[0]}, {size[1]} }}, {{ mode = "{mode}", align_corners = {str(corners).lower()}, antialias = true }})', x=X2)
    case("F interpolate", f"F.interpolate(x, scale_factor=0.55, mode='{mode}', antialias=True)",
         f'F.interpolate(x, {{ scale_factor = 0.55, mode = "{mode}", antialias = true }})', x=f(1, 1, 9, 7))
for mode, x in (("nearest", X1), ("nearest-exact", X1), ("linear", X1), ("area", X2), ("nearest-exact", X2), ("bicubic", X2), ("trilinear", f(1, 1, 2, 3, 2)),
                ("area", f(1, 1, 2, 3, 2))):
    case("F interpolate", f"F.interpolate(x, scale_factor=1.7, mode='{mode}')", f'F.interpolate(x, {{ scale_factor = 1.7, mode = "{mode}" }})', x=x)
    case("F interpolate", f"F.interpolate(x, scale_factor=1.7, mode='{mode}', recompute_scale_factor=True)",
         f'F.interpolate(x, {{ scale_factor = 1.7, mode = "{mode}", recompute_scale_factor = true }})', x=x)
fails("F interpolate", "F.interpolate(x, 3, mode='nearest', antialias=True)", 'F.interpolate(x, 3, { mode = "nearest", antialias = true })', x=X2)
fails("F interpolate", "F.interpolate(x, 3, mode='linear', antialias=True)", 'F.interpolate(x, 3, { mode = "linear", antialias = true })', x=X1)
fails("F interpolate", "F.interpolate(x, 3, recompute_scale_factor=True)", "F.interpolate(x, 3, { recompute_scale_factor = true })", x=X2)
case("F upsample_bilinear", "F.upsample_bilinear(x, scale_factor=2)", "F.upsample_bilinear(x, { scale_factor = 2 })", x=X2)
case("F upsample_nearest", "F.upsample_nearest(x, 7)", x=X2)
case("F upsample", "F.upsample(x, scale_factor=2)", "F.upsample(x, { scale_factor = 2 })", x=X2)
plain_layer("Upsample", "scale_factor=2, mode='bicubic', align_corners=True", '{ scale_factor = 2, mode = "bicubic", align_corners = true }', x=X2)
plain_layer("UpsamplingBilinear2d", "scale_factor=2", "{ scale_factor = 2 }", x=X2)
plain_layer("UpsamplingNearest2d", "size=(3, 4)", "{ size = { 3, 4 } }", x=X2)
for name, x in (("PixelShuffle", f(1, 8, 2, 3)), ("PixelUnshuffle", f(1, 2, 4, 6)), ("ChannelShuffle", f(2, 4, 3))):
    plain_layer(name, "2", "2", x=x)
    snake = {"PixelShuffle": "pixel_shuffle", "PixelUnshuffle": "pixel_unshuffle", "ChannelShuffle": "channel_shuffle"}[name]
    case(f"F {snake}", f"F.{snake}(x, 2)", x=x)
plain_layer("Unfold", "(2, 3), dilation=(2, 1), padding=1, stride=2", "{ 2, 3 }, { dilation = { 2, 1 }, padding = 1, stride = 2 }", x=X2)
case("F unfold", "F.unfold(x, 2, padding=1)", "F.unfold(x, 2, { padding = 1 })", x=X2)
case("F fold", "F.fold(x, (3, 4), 2)", "F.fold(x, { 3, 4 }, 2)", x=f(2, 8, 6))
plain_layer("Fold", "(3, 4), 2", "{ 3, 4 }, 2", x=f(2, 8, 6))

# ---- padding ----
for n, x in ((1, X1), (2, X2), (3, X3)):
    amounts = [1, 2, 0, 1, 1, 0][:2 * n]
    lua = "{ " + ", ".join(map(str, amounts)) + " }"
    for name in ("ZeroPad", "ReflectionPad", "ReplicationPad", "CircularPad"):
        plain_layer(f"{name}{n}d", f"{tuple(amounts)}", lua, x=x)
    plain_layer(f"ConstantPad{n}d", f"{tuple(amounts)}, 1.5", f"{lua}, 1.5", x=x)
fails("nn ReflectionPad3d", "nn.ReflectionPad3d(9)(x)", x=X3)
fails("nn ReflectionPad2d", "nn.ReflectionPad2d(1)(x)", x=f(3, 3))

# ---- norms and convolutions ----
for n, x in ((1, f(2, 2, 3)), (2, f(2, 2, 3, 2)), (3, f(1, 2, 2, 3, 2))):
    c = x["shape"][1]
    layer(f"BatchNorm{n}d", f"{c}", f"{c}", x=x)
    layer(f"InstanceNorm{n}d", f"{c}, affine=True", f"{c}, {{ affine = true }}", x=x)
    case(f"nn LazyBatchNorm{n}d", f"nn.LazyBatchNorm{n}d(eps=0.1, dtype=torch.float64)(x)", f'nn.LazyBatchNorm{n}d({{ eps = 0.1, dtype = "f64" }})(x)', x=x)
    case(f"nn LazyInstanceNorm{n}d", f"nn.LazyInstanceNorm{n}d(dtype=torch.float64)(x)", f'nn.LazyInstanceNorm{n}d({{ dtype = "f64" }})(x)', x=x)
    layer(f"Conv{n}d", f"{c}, 4, 2, padding=1, dilation=2", f"{c}, 4, 2, {{ padding = 1, dilation = 2 }}", x=x)
    layer(f"ConvTranspose{n}d", f"{c}, 1, 2, stride=2, output_padding=1", f"{c}, 1, 2, {{ stride = 2, output_padding = 1 }}", x=x)
    # the parameters exist after the first call alone
    for lazy in ("Conv", "ConvTranspose"):
        case(f"nn Lazy{lazy}{n}d", f"(lambda m: [m(x), {FILL_PY}(m)(x)][1])(nn.Lazy{lazy}{n}d(2, 1, groups=1, dtype=torch.float64))",
             f"(function(m) m(x) return {FILL_LUA}(m)(x) end)(nn.Lazy{lazy}{n}d(2, 1, {{ groups = 1, dtype = \"f64\" }}))", x=x)
case("nn LazyLinear", f"(lambda m: [m(x), {FILL_PY}(m)(x)][1])(nn.LazyLinear(4, dtype=torch.float64))",
     f"(function(m) m(x) return {FILL_LUA}(m)(x) end)(nn.LazyLinear(4, {{ dtype = \"f64\" }}))", x=f(3, 5))
case("nn SyncBatchNorm", "nn.SyncBatchNorm(1, dtype=torch.float64).eval()(x)", 'nn.SyncBatchNorm(1, { dtype = "f64" }):eval()(x)', x=X2)
layer("LayerNorm", "4", "4", x=X2)
layer("RMSNorm", "4, eps=1e-3", "4, { eps = 1e-3 }", x=X2)
layer("GroupNorm", "2, 4", "2, 4", x=f(2, 4, 3))
fails("nn BatchNorm1d", "nn.BatchNorm1d(3, dtype=torch.float64)(x)", 'nn.BatchNorm1d(3, { dtype = "f64" })(x)', x=f(2, 4, 3))

# ---- linear, recurrence, attention ----
layer("Linear", "4, 3", "4, 3", x=f(2, 4))
layer("Bilinear", "3, 2, 4", "3, 2, 4", call="(x, z)", x=f(2, 3), z=f(2, 2))
layer("Embedding", "5, 3", "5, 3", x=i(2, 3, lo=0, hi=5))
layer("EmbeddingBag", "5, 3", "5, 3", x=i(2, 3, lo=0, hi=5))
for name in ("RNN", "GRU", "LSTM"):
    first = "[0]" if name == "LSTM" else ""
    layer(name, "3, 2, 2, bidirectional=True", "3, 2, 2, { bidirectional = true }", call=f"(x)[0]", call_lua="(x):narrow(1, 1, 4)", x=f(4, 2, 3))
    layer(f"{name}Cell", "3, 2", "3, 2", call="(x)[0]" if name == "LSTM" else "(x)", call_lua="(x):narrow(1, 1, 2)" if name == "LSTM" else "(x)", x=f(2, 3))
    # packed, in an order that must be undone
    for direction in ("True", "False"):
        d = direction.lower()
        case(f"nn {name}", f"(lambda u, m: u.pad_packed_sequence(m(u.pack_padded_sequence(x, torch.tensor([2, 4, 1]), enforce_sorted=False))[0]))"
             f"(nn.utils.rnn, {FILL_PY}(nn.{name}(3, 2, 2, bidirectional={direction}, dtype=torch.float64)))",
             f"(function(u, m) return u.pad_packed_sequence((m(u.pack_padded_sequence(x, {{ 2, 4, 1 }}, {{ enforce_sorted = false }})))) end)"
             f"(nn.utils.rnn, {FILL_LUA}(nn.{name}(3, 2, 2, {{ bidirectional = {d}, dtype = \"f64\" }})))", x=f(4, 3, 3))
    state = "" if name != "LSTM" else "[0]"
    case(f"nn {name}", f"(lambda u, m: m(u.pack_padded_sequence(x, [4, 2, 1]), " + ("(h, h + 1)" if name == "LSTM" else "h") + f")[1]{state})"
         f"(nn.utils.rnn, {FILL_PY}(nn.{name}(3, 2, 1, bidirectional=True, dtype=torch.float64)))",
         f"(function(u, m) return (select(2, m(u.pack_padded_sequence(x, {{ 4, 2, 1 }}), " + ("{ h, h + 1 }" if name == "LSTM" else "h") + "))) end)"
         f"(nn.utils.rnn, {FILL_LUA}(nn.{name}(3, 2, 1, {{ bidirectional = true, dtype = \"f64\" }})))", x=f(4, 3, 3), h=f(2, 3, 2))
layer("MultiheadAttention", "4, 2", "4, 2", call="(x, x, x)[0]", call_lua="(x, x, x):narrow(1, 1, 3)", x=f(3, 2, 4))
layer("TransformerEncoderLayer", "4, 2, 8, dropout=0.0", "4, 2, 8, { dropout = 0.0 }", x=f(3, 2, 4))
layer("TransformerDecoderLayer", "4, 2, 8, dropout=0.0", "4, 2, 8, { dropout = 0.0 }", call="(x, z)", x=f(3, 2, 4), z=f(5, 2, 4))
for kind, call in (("Encoder", "(x)"), ("Decoder", "(x, z)")):
    more = {} if kind == "Encoder" else {"z": f(5, 2, 4)}
    case(f"nn Transformer{kind}", f"{FILL_PY}(nn.Transformer{kind}(nn.Transformer{kind}Layer(4, 2, 8, dropout=0.0, dtype=torch.float64), 2)){call}",
         f"{FILL_LUA}(nn.Transformer{kind}(nn.Transformer{kind}Layer(4, 2, 8, {{ dropout = 0.0, dtype = \"f64\" }}), 2)){call}", x=f(3, 2, 4), **more)
layer("Transformer", "4, 2, 1, 1, 8, dropout=0.0", "4, 2, 1, 1, 8, { dropout = 0.0 }", call="(x, z)", x=f(3, 2, 4), z=f(5, 2, 4))

# ---- containers and shapes ----
plain_layer("Identity", x=X1)
plain_layer("Flatten", x=X1)
plain_layer("Unflatten", "1, (1, 2)", "2, { 1, 2 }", x=X1)
plain_layer("Sequential", "nn.Tanh(), nn.ReLU()", "nn.Tanh(), nn.ReLU()", x=X1)
case("nn ModuleList", "nn.ModuleList([nn.Tanh(), nn.ReLU()])[1](x)", "nn.ModuleList({ nn.Tanh(), nn.ReLU() })[2](x)", x=X1)
case("nn ModuleDict", "nn.ModuleDict({'a': nn.Tanh()})['a'](x)", "nn.ModuleDict({ a = nn.Tanh() }).a(x)", x=X1)
case("nn ParameterList", "nn.ParameterList([x, x])[1] * 2", "nn.ParameterList({ x, x })[2] * 2", x=X1, grad=False)
case("nn ParameterDict", "nn.ParameterDict({'a': x})['a'] * 2", "nn.ParameterDict({ a = x }).a * 2", x=X1, grad=False)
case("nn Parameter", "nn.Parameter(x) * 2", x=X1, grad=False)

# ---- dropout: exact where nothing is drawn ----
for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"):
    x = X3 if name == "dropout3d" else X2 if name == "dropout2d" else X1
    case(f"F {name}", f"F.{name}(x, 0.4, False)", f"F.{name}(x, 0.4, false)", x=x)
    case(f"F {name}", f"F.{name}(x, 1.0, True)", f"F.{name}(x, 1.0, true)", x=x)
    case(f"F {name}", f"F.{name}(x, 0.4, True)", f"F.{name}(x, 0.4, true)", x=x, random=True, grad=False)
for name, x in (("Dropout", X1), ("Dropout1d", X1), ("Dropout2d", X2), ("Dropout3d", X3), ("AlphaDropout", X1), ("FeatureAlphaDropout", X2)):
    plain_layer(name, "0.4", "0.4", mode=".eval()", x=x)
    plain_layer(name, "1.0", "1.0", x=x)
