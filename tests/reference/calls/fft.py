# accel.fft, windows, stft. Lengths: powers of two, small primes, a prime above 31 (Bluestein), odd and even halves.
z = lit([complex(a, b) for a, b in ((1.5, -0.5), (0.25, 2), (-1, 0.75), (0.5, 0.5), (2, -1.25), (-0.75, 0.1))], dtype="c128")
NORMS = ('"backward"', '"ortho"', '"forward"')
for n in "fft ifft rfft irfft hfft ihfft".split():
    real = n in ("rfft", "ihfft")
    for size in (1, 5, 8, 37):
        case(f"fft {n}", f"fft.{n}(x)" if size > 1 or n not in ("irfft", "hfft") else f"fft.{n}(x, 1)", x=f(size))
    if not real:
        case(f"fft {n}", f"fft.{n}(x)", x=z)
    for norm in NORMS:
        case(f"fft {n}", f"fft.{n}(x, 7, 0, {norm})", f"fft.{n}(x, 7, 1, {norm})", x=f(4, 3))
        case(f"fft {n}", f"fft.{n}(x, n=3, dim=-1, norm={norm})", f"fft.{n}(x, {{ n = 3, dim = -1, norm = {norm} }})", x=f(2, 4))
    case(f"fft {n}", f"fft.{n}(x)", x=f(8, dtype="f32"))
    case(f"fft {n}", f"fft.{n}(x)", x=i(6))
    case(f"fft {n}", f"fft.{n}(x.t())", x=f(4, 6))
    fails(f"fft {n}", f"fft.{n}(x, 0)", x=f(4))
    fails(f"fft {n}", f'fft.{n}(x, norm="sideways")', f'fft.{n}(x, {{ norm = "sideways" }})', x=f(4))
    fails(f"fft {n}", f"fft.{n}(x, 4, 2)", f"fft.{n}(x, 4, 3)", x=f(4, 4))
    for k in ("2", "n"):
        case(f"fft {n}{k}", f"fft.{n}{k}(x)", x=f(2, 2, 3))
        case(f"fft {n}{k}", f"fft.{n}{k}(x, [3, 4], [0, 2], {NORMS[1]})", f"fft.{n}{k}(x, {{3, 4}}, {{1, 3}}, {NORMS[1]})", x=f(2, 2, 3))
        case(f"fft {n}{k}", f"fft.{n}{k}(x, norm={NORMS[2]})", f"fft.{n}{k}(x, {{ norm = {NORMS[2]} }})", x=f(4, 4))
    case(f"fft {n}n", f"fft.{n}n(x, [3])", x=f(2, 4))
    fails(f"fft {n}n", f"fft.{n}n(x, None, [0, 0])", f"fft.{n}n(x, nil, {{1, 1}})", x=f(4, 4))
fails("fft rfft", "fft.rfft(x)", x=z)
fails("fft ihfft", "fft.ihfft(x)", x=z)
for n in (1, 4, 5):
    case("fft fftfreq", f"fft.fftfreq({n}, 0.5)")
    case("fft rfftfreq", f"fft.rfftfreq({n})")
case("fft fftfreq", "fft.fftfreq(4, dtype=torch.float64)", 'fft.fftfreq(4, { dtype = "f64" })')
for n in ("fftshift", "ifftshift"):
    case(f"fft {n}", f"fft.{n}(x)", x=f(3, 4))
    case(f"fft {n}", f"fft.{n}(x, 1)", f"fft.{n}(x, 2)", x=f(4, 5))
    case(f"fft {n}", f"fft.{n}(x)", x=z)

for n in "hann bartlett blackman hamming kaiser".split():
    for size in (0, 1, 7):
        for periodic in ("True", "False"):
            case(f"torch {n}_window", f"torch.{n}_window({size}, {periodic}, dtype=torch.float64)",
                 f'accel.{n}_window({size}, {periodic.lower()}, {{ dtype = "f64" }})')
    case(f"torch {n}_window", f"torch.{n}_window(6)")
case("torch hamming_window", "torch.hamming_window(5, False, 0.6, 0.4)", tol=1e-6)
case("torch kaiser_window", "torch.kaiser_window(5, False, 3.5)", tol=1e-6)

for space in ("torch", "Tensor"):
    call = "torch.stft(x, " if space == "torch" else "x.stft("
    lua = "accel.stft(x, " if space == "torch" else "x:stft("
    case(f"{space} stft", call + "8, return_complex=True)", lua + "8, { return_complex = true })", x=f(20))
    case(f"{space} stft", call + "8, 3, 6, w, normalized=True, return_complex=True)",
         lua + "8, 3, 6, w, { normalized = true, return_complex = true })", x=f(2, 20), w=pos(6))
    case(f"{space} stft", call + "7, 2, onesided=False, return_complex=True)", lua + "7, 2, { onesided = false, return_complex = true })", x=f(15))
    case(f"{space} stft", call + "8, 4, center=False, return_complex=True)", lua + "8, 4, { center = false, return_complex = true })", x=f(20))
    for mode in ("constant", "replicate", "circular"):
        case(f"{space} stft", call + f'8, pad_mode="{mode}", return_complex=True)', lua + f'8, {{ pad_mode = "{mode}", return_complex = true }})', x=f(12))
    case(f"{space} stft", call + "4)", lua + "4)", x=z)
    fails(f"{space} stft", call + "8)", lua + "8)", x=f(20))
    fails(f"{space} stft", call + "40, return_complex=True)", lua + "40, { return_complex = true })", x=f(20))
    fails(f"{space} stft", call + "8, window=w, return_complex=True)", lua + "8, { window = w, return_complex = true })", x=f(20), w=f(5))
    call = "torch.istft(torch.complex(x, y), " if space == "torch" else "torch.complex(x, y).istft("
    lua = "accel.istft(accel.complex(x, y), " if space == "torch" else "accel.complex(x, y):istft("
    case(f"{space} istft", call + "8)", lua + "8)", x=f(5, 6), y=f(5, 6))
    case(f"{space} istft", call + "8, 3, 6, w, normalized=True)", lua + "8, 3, 6, w, { normalized = true })", x=f(2, 5, 6), y=f(2, 5, 6), w=pos(6))
    case(f"{space} istft", call + "8, 4, center=False, length=20)", lua + "8, 4, { center = false, length = 20 })", x=f(5, 6), y=f(5, 6))
    case(f"{space} istft", call + "6, onesided=False)", lua + "6, { onesided = false })", x=f(6, 5), y=f(6, 5))
    case(f"{space} istft", call + "6, onesided=False, return_complex=True)", lua + "6, { onesided = false, return_complex = true })", x=f(6, 5), y=f(6, 5))
    fails(f"{space} istft", call + "8)", lua + "8)", x=f(4, 6), y=f(4, 6))
    fails(f"{space} istft", call + "8, 8, window=w, center=False)", lua + "8, 8, { window = w, center = false })", x=f(5, 6), y=f(5, 6),
          w=lit([0.0, 1, 1, 1, 1, 1, 1, 0], dtype="f64"))
