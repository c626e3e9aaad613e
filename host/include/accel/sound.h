/* accel/sound.h - sound files: samples as f32, channels first.
 *
 * The content decides the format. WAV (RIFF, RIFX, RF64) is read here; FLAC, Ogg, MP3, AIFF and the
 * rest by libsndfile, which is loaded on first use: UNSUPPORTED names the missing package. Bytes may
 * be hostile: a header that promises more than the file can hold and a file that is cut are refused
 * (PARSE). Integers are divided by 2^(bits - 1), u8 is (x - 128) / 128. */
#ifndef ACCEL_SOUND_H
#define ACCEL_SOUND_H
#include "accel/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ac_sound_info {
  const char *format;   /* "wav", "flac", "ogg", "mp3", "aiff", "au", ... */
  const char *encoding; /* torchaudio's: "PCM_S", "PCM_U", "PCM_F", "ULAW", "ALAW", "FLAC", ... */
  int bits;             /* of a sample, 0 where that has no meaning */
  int64_t frames, channels, rate;
} ac_sound_info;

typedef struct ac_sound ac_sound;

/* Opens a file, or n bytes that must live until the sound is closed (`name` is for messages).
 * NOT_FOUND, IO, PARSE. */
AC_API ac_status ac_sound_open(const char *path, ac_sound **out, ac_err *e);
AC_API ac_status ac_sound_open_bytes(const void *bytes, size_t n, const char *name, ac_sound **out,
                                     ac_err *e);
AC_API void ac_sound_about(const ac_sound *s, ac_sound_info *info);
/* Frames from `first` (0 based) on into dst, contiguous [channels, frames] on a host-readable device.
 * f32, or with WAV's integers their own type: U8, I16, I32 (24 bits are shifted to the upper ones, as
 * torchaudio does). PARSE if the sound ends before. */
AC_API ac_status ac_sound_read(ac_sound *s, int64_t first, ac_tensor *dst, ac_err *e);
AC_API void ac_sound_close(ac_sound *s); /* NULL is fine */

/* The bytes of a file with these samples: f32, i16, i32 or u8, contiguous [channels, frames] on the
 * host. format "wav", "flac", "ogg", "mp3", "aiff" or "au". encoding NULL and bits 0: those that
 * the format and the dtype suggest. *out is malloc'ed, the caller frees. INVALID, UNSUPPORTED. */
AC_API ac_status ac_sound_encode(const ac_tensor *t, int64_t rate, const char *format,
                                 const char *encoding, int bits, void **out, size_t *n, ac_err *e);

#ifdef __cplusplus
}
#endif
#endif
