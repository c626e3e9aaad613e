# Losses, activations and distances of torch.nn, as functions and as layers.
X, Z = f(3, 4), f(3, 4)


def loss(function, name, args, inputs, options=({}, {"reduction": "sum"}, {"reduction": "none"})):
    mine = args.replace("t.double()", 't:to "f64"')
    for o in options:
        py = "".join(f", {k}={v!r}" for k, v in o.items())
        lua = ", ".join(f"{k} = " + (str(v).lower() if isinstance(v, bool) else f'"{v}"' if isinstance(v, str) else str(v)) for k, v in o.items())
        case(f"F {function}", f"F.{function}({args}{py})", f"F.{function}({mine}{', { ' + lua + ' }' if lua else ''})", **inputs)
        case(f"nn {name}", f"nn.{name}({py[2:]})({args})", f"nn.{name}({'{ ' + lua + ' }' if lua else ''})({mine})", **inputs)


SIGNS = lit([[1, -1, 1, -1], [-1, -1, 1, 1], [1, 1, -1, 1]], "i64")
CLASSES = i(3, lo=0, hi=4)
loss("soft_margin_loss", "SoftMarginLoss", "x, t.double()", dict(x=X, t=SIGNS))
loss("multi_margin_loss", "MultiMarginLoss", "x, t", dict(x=X, t=CLASSES), ({}, {"p": 2, "margin": 0.5}, {"reduction": "none"}, {"margin": -1.0}))
case("F multi_margin_loss", "F.multi_margin_loss(x, t, weight=w)", "F.multi_margin_loss(x, t, { weight = w })", x=f(3, 4), t=CLASSES, w=lit([1., 2., 0.5, 3.]),
     grad=False)
case("F multi_margin_loss", "F.multi_margin_loss(x, t)", x=f(4), t=i(lo=0, hi=4))
LISTS = lit([[3, 0, -1, 1], [-1, 2, 1, 0], [0, 2, 3, 1]], "i64")
loss("multilabel_margin_loss", "MultiLabelMarginLoss", "x, t", dict(x=X, t=LISTS))
case("F multilabel_margin_loss", "F.multilabel_margin_loss(x, t)", x=f(4), t=lit([2, 1, -1, 0], "i64"))
loss("multilabel_soft_margin_loss", "MultiLabelSoftMarginLoss", "x, t.double()", dict(x=X, t=lit([[1, 0, 1, 1], [0, 0, 1, 0], [1, 1, 1, 0]], "i64")))
case("F multilabel_soft_margin_loss", "F.multilabel_soft_margin_loss(x, t, w)", x=X, t=unit(3, 4), w=pos(4), grad=False)
fails("F multi_margin_loss", "F.multi_margin_loss(x, t, p=3)", "F.multi_margin_loss(x, t, { p = 3 })", x=X, t=CLASSES)
fails("F multi_margin_loss", "F.multi_margin_loss(x, t)", x=X, t=i(2, lo=0, hi=4))
fails("F multi_margin_loss", "F.multi_margin_loss(x, t)", x=X, t=lit([0, 1, 4], "i64"))
fails("F multilabel_margin_loss", "F.multilabel_margin_loss(x, t)", x=X, t=i(3, lo=0, hi=4))
fails("F multilabel_soft_margin_loss", "F.multilabel_soft_margin_loss(x, t)", x=X, t=f(3, 3))
for o in ("", ", swap=True", ", margin=0.2, reduction='none'", ", reduction='sum'"):
    lua = o[2:].replace("True", "true").replace("'", '"').replace("=", " = ")
    case("F triplet_margin_with_distance_loss", f"F.triplet_margin_with_distance_loss(x, z, n{o})",
         f"F.triplet_margin_with_distance_loss(x, z, n{', { ' + lua + ' }' if lua else ''})", x=X, z=Z, n=f(3, 4))
    case("nn TripletMarginWithDistanceLoss", f"nn.TripletMarginWithDistanceLoss({o[2:]})(x, z, n)",
         f"nn.TripletMarginWithDistanceLoss({'{ ' + lua + ' }' if lua else ''})(x, z, n)", x=X, z=Z, n=f(3, 4))
case("F triplet_margin_with_distance_loss", "F.triplet_margin_with_distance_loss(x, z, n, distance_function=lambda a, b: (a - b).abs().sum(1))",
     "F.triplet_margin_with_distance_loss(x, z, n, { distance_function = function(a, b) return (a - b):abs():sum(2) end })", x=X, z=Z, n=f(3, 4))

# CTC: from logits, because PyTorch's gradient by the log probabilities is that of a log_softmax before it.
LENGTHS = ", (5, 7, 6), (2, 3, 0)"
LUA_LENGTHS = ", { 5, 7, 6 }, { 2, 3, 0 }"
TARGETS = lit([[1, 2, 1], [3, 3, 1], [2, 2, 2]], "i64")
for o, lua in (("", ""), (", reduction='sum'", ', { reduction = "sum" }'), (", reduction='none'", ', { reduction = "none" }')):
    case("F ctc_loss", f"F.ctc_loss(x.log_softmax(2), t{LENGTHS}{o})", f"F.ctc_loss(x:log_softmax(3), t{LUA_LENGTHS}{lua})", x=f(7, 3, 4), t=TARGETS)
    case("nn CTCLoss", f"nn.CTCLoss({o[2:]})(x.log_softmax(2), t{LENGTHS})", f"nn.CTCLoss({lua[2:]})(x:log_softmax(3), t{LUA_LENGTHS})", x=f(7, 3, 4),
         t=TARGETS)
case("F ctc_loss", "F.ctc_loss(x.log_softmax(2), t, (5, 7, 6), (2, 3, 0), blank=3)",
     "F.ctc_loss(x:log_softmax(3), t, { 5, 7, 6 }, { 2, 3, 0 }, { blank = 3 })", x=f(7, 3, 4), t=lit([1, 2, 0, 0, 1], "i64"))
case("F ctc_loss", "F.ctc_loss(x.log_softmax(1), t, torch.tensor(5), torch.tensor(2))",
     "F.ctc_loss(x:log_softmax(2), t, 5, 2)", x=f(5, 4), t=lit([1, 2], "i64"))
case("F ctc_loss", "F.ctc_loss(x.log_softmax(2), t, (2, 7, 6), (3, 3, 3), zero_infinity=True)",
     "F.ctc_loss(x:log_softmax(3), t, { 2, 7, 6 }, { 3, 3, 3 }, { zero_infinity = true })", x=f(7, 3, 4), t=TARGETS)
case("torch ctc_loss", "torch.ctc_loss(x.log_softmax(2), t, n, m, 0, 1)", "accel.ctc_loss(x:log_softmax(3), t, n, m)", x=f(7, 3, 4), t=TARGETS,
     n=lit([5, 7, 6], "i64"), m=lit([2, 3, 1], "i64"))
case("F ctc_loss", "F.ctc_loss(x.log_softmax(2), t, (5, 7, 6), (2, 3, 0))", "F.ctc_loss(x:log_softmax(3), t, { 5, 7, 6 }, { 2, 3, 0 })",
     x=f(7, 3, 4, dtype="f32"), t=TARGETS)
fails("F ctc_loss", "F.ctc_loss(x, t, (5, 8, 6), (2, 3, 0))", "F.ctc_loss(x, t, { 5, 8, 6 }, { 2, 3, 0 })", x=f(7, 3, 4), t=TARGETS)

loss("l1_loss", "L1Loss", "x, z", dict(x=X, z=Z))
loss("mse_loss", "MSELoss", "x, z", dict(x=X, z=Z))
loss("smooth_l1_loss", "SmoothL1Loss", "x, z", dict(x=X, z=Z), ({}, {"beta": 0.5}, {"reduction": "sum"}))
loss("huber_loss", "HuberLoss", "x, z", dict(x=X, z=Z), ({}, {"delta": 0.5}))
loss("kl_div", "KLDivLoss", "x, z", dict(x=X, z=pos(3, 4)), ({"reduction": "batchmean"}, {"reduction": "sum"}))
loss("poisson_nll_loss", "PoissonNLLLoss", "x, z", dict(x=X, z=pos(3, 4)), ({}, {"full": True}))
loss("gaussian_nll_loss", "GaussianNLLLoss", "x, z, v", dict(x=X, z=Z, v=pos(3, 4)), ({}, {"full": True, "reduction": "sum"}))
loss("binary_cross_entropy_with_logits", "BCEWithLogitsLoss", "x, z", dict(x=X, z=unit(3, 4)), ({},))
case("nn BCELoss", "nn.BCELoss()(x / 3.1, z / 3.1)", x=pos(3, 4), z=pos(3, 4))
loss("hinge_embedding_loss", "HingeEmbeddingLoss", "x, t.double()", dict(x=X, t=SIGNS), ({}, {"margin": 0.5}))
loss("margin_ranking_loss", "MarginRankingLoss", "x, z, t.double()", dict(x=X, z=Z, t=SIGNS), ({}, {"margin": 0.5}))
loss("cosine_embedding_loss", "CosineEmbeddingLoss", "x, z, t.double()", dict(x=X, z=Z, t=lit([1, -1, 1], "i64")), ({}, {"margin": 0.25}))
loss("triplet_margin_loss", "TripletMarginLoss", "x, z, n", dict(x=X, z=Z, n=f(3, 4)), ({}, {"swap": True, "p": 1.0}))
loss("cross_entropy", "CrossEntropyLoss", "x, t", dict(x=X, t=CLASSES), ({}, {"label_smoothing": 0.1}))
loss("nll_loss", "NLLLoss", "x, t", dict(x=X, t=CLASSES), ({}, {"reduction": "sum"}))
case("nn AdaptiveLogSoftmaxWithLoss",
     "(lambda m: [p.data.copy_(torch.sin(torch.arange(p.numel(), dtype=p.dtype)).reshape(p.shape) / 2) for p in m.parameters()] and [*m(x, t), m.log_prob(x), m.predict(x)])"
     "(nn.AdaptiveLogSoftmaxWithLoss(4, 9, [3, 5], div_value=2.0, dtype=torch.float64))",
     "(function(m) for _, p in ipairs(m:parameters()) do accel.no_grad(function() p:copy_(accel.arange(p:numel(), { dtype = p.dtype }):sin():reshape(p.shape) / 2) "
     "end) end local a, b = m(x, t) return a, b, m:log_prob(x), m:predict(x) end)(nn.AdaptiveLogSoftmaxWithLoss(4, 9, { 3, 5 }, { div_value = 2.0, dtype = \"f64\" }))",
     x=f(5, 4), t=lit([0, 4, 8, 3, 2], "i64"))
case("nn CosineSimilarity", "nn.CosineSimilarity(1)(x, z)", "nn.CosineSimilarity(2)(x, z)", x=X, z=Z)
case("nn PairwiseDistance", "nn.PairwiseDistance(1.5)(x, z)", x=X, z=Z)
case("F pairwise_distance", "F.pairwise_distance(x, z)", x=X, z=Z)

# ---- activations ----
for function, name in (("relu", "ReLU"), ("relu6", "ReLU6"), ("gelu", "GELU"), ("silu", "SiLU"), ("mish", "Mish"), ("hardtanh", "Hardtanh"),
                       ("hardsigmoid", "Hardsigmoid"), ("hardswish", "Hardswish"), ("hardshrink", "Hardshrink"), ("softshrink", "Softshrink"),
                       ("softplus", "Softplus"), ("softsign", "Softsign"), ("tanhshrink", "Tanhshrink"), ("logsigmoid", "LogSigmoid"), ("elu", "ELU"),
                       ("selu", "SELU"), ("celu", "CELU"), ("leaky_relu", "LeakyReLU"), ("tanh", "Tanh"), ("sigmoid", "Sigmoid"), ("rrelu", "RReLU")):
    case(f"F {function}", f"F.{function}(x)", x=X)
    case(f"nn {name}", f"nn.{name}(){'.eval()' if name == 'RReLU' else ''}(x)", f"nn.{name}(){':eval()' if name == 'RReLU' else ''}(x)", x=X)
case("F rrelu", "F.rrelu(x, 0.3, 0.3, True)", "F.rrelu(x, 0.3, 0.3, true)", x=X)
case("F rrelu", "F.rrelu(x, training=True)", "F.rrelu(x, { training = true })", x=X, random=True, grad=False)
case("F gumbel_softmax", "F.gumbel_softmax(x)", x=X, random=True, grad=False)
case("nn Threshold", "nn.Threshold(0.1, 2.0)(x)", x=X)
case("F threshold", "F.threshold(x, 0.1, 2.0)", x=X)
case("nn PReLU", "nn.PReLU(dtype=torch.float64)(x)", 'nn.PReLU({ dtype = "f64" })(x)', x=X)
case("F prelu", "F.prelu(x, w)", x=X, w=f(4))
case("F glu", "F.glu(x)", x=X)
case("nn GLU", "nn.GLU()(x)", x=X)
case("nn Softmax2d", "nn.Softmax2d()(x)", x=f(2, 3, 2, 2))
for function, name in (("softmax", "Softmax"), ("log_softmax", "LogSoftmax"), ("softmin", "Softmin")):
    case(f"F {function}", f"F.{function}(x, 1)", f"F.{function}(x, 2)", x=X)
    case(f"nn {name}", f"nn.{name}(1)(x)", f"nn.{name}(2)(x)", x=X)
