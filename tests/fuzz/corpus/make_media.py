"""Makes the seeds of fuzz_image and fuzz_sound: one small file of each format and kind. Needs Pillow, numpy and soundfile.
    python3 make_media.py        writes image/ and sound/ beside it"""
import io, os, struct
import numpy as np, soundfile
from PIL import Image
here = os.path.dirname(os.path.abspath(__file__))
g = np.random.RandomState(1)
rgb = (np.add.outer(np.arange(9) * 20, np.arange(11) * 9)[..., None] + np.array([0, 40, 80])).astype(np.uint8)
rgba = np.dstack([rgb, (rgb[..., 0] // 2 + 60)])
im, ima = Image.fromarray(rgb), Image.fromarray(rgba)
exif = Image.Exif(); exif[0x0112] = 6
def image(name, picture, fmt, **o):
    picture.save(os.path.join(here, "image", name), fmt, **o)
image("rgb.jpg", im, "JPEG", quality=80, exif=exif); image("gray_progressive.jpg", im.convert("L"), "JPEG", progressive=True)
image("cmyk.jpg", im.convert("CMYK"), "JPEG"); image("rgb.png", im, "PNG", exif=exif); image("rgba.png", ima, "PNG")
image("palette.png", im.quantize(7), "PNG", transparency=1); image("bits.png", im.convert("1"), "PNG")
image("gray16.png", Image.fromarray((rgb[..., 0].astype(np.uint16) * 251)), "PNG")
image("lossy.webp", im, "WEBP", exif=exif); image("lossless.webp", ima, "WEBP", lossless=True)
image("animated.webp", im, "WEBP", save_all=True, append_images=[im.rotate(180)]); image("plain.gif", im.quantize(8), "GIF")
image("clear.gif", im.quantize(8), "GIF", transparency=2); image("rgb.tif", im, "TIFF"); image("lzw.tif", im, "TIFF", compression="tiff_lzw")
image("bits.tif", im.convert("1"), "TIFF", compression="group4"); image("rgb.bmp", im, "BMP"); image("palette.bmp", im.quantize(9), "BMP")
image("rgb.ppm", im, "PPM"); image("gray.pgm", im.convert("L"), "PPM")
open(os.path.join(here, "image", "text.ppm"), "wb").write(b"P3 # text\n2 2 15\n0 1 2 3 4 5 6 7 8 9 10 11\n")
open(os.path.join(here, "image", "runs.bmp"), "wb").write(b"BM" + struct.pack("<III", 0, 0, 62) + struct.pack("<IiiHHIIiiII", 40, 4, 2, 1, 8, 1, 0, 0, 0, 2, 0)
    + bytes([1, 2, 3, 0, 4, 5, 6, 0]) + bytes([3, 1, 1, 0, 0, 0, 0, 3, 1, 0, 1, 0, 1, 0, 0, 1]))
t = np.arange(200) / 8000; tone = np.stack([np.sin(6000 * t), np.cos(3000 * t)], 1) * 0.5
def sound(name, x, fmt, sub):
    soundfile.write(os.path.join(here, "sound", name), x, 8000, format=fmt, subtype=sub)
for sub in ("PCM_U8", "PCM_16", "PCM_24", "FLOAT", "DOUBLE", "ULAW"): sound("a_" + sub.lower() + ".wav", tone[:40], "WAV", sub)
sound("a.flac", tone, "FLAC", "PCM_16"); sound("a.ogg", tone[:60], "OGG", "VORBIS"); sound("a.aiff", tone[:40, :1], "AIFF", "PCM_16")
sound("a.mp3", np.tile(tone[:, :1], (6, 1)), "MP3", "MPEG_LAYER_III"); sound("extensible.wav", tone[:40], "WAVEX", "PCM_24")
