/* Sounds inside the library: what sound.c and the readers share.
 *   sound.c     the public calls: bytes of a file or of memory, blocks of frames to channels
 *   wav.c       chunks of RIFF, RIFX and RF64
 *   samples.c   codings of samples: integers, floats, mu-law and A-law
 *   sndfile.c   all else, by libsndfile
 *   encode.c    sounds to bytes */
#ifndef ACI_SOUND_H
#define ACI_SOUND_H
#include "accel/sound.h"

typedef enum aci_sample_code {
  ACI_SAMPLE_U8,
  ACI_SAMPLE_S16,
  ACI_SAMPLE_S24,
  ACI_SAMPLE_S32,
  ACI_SAMPLE_F32,
  ACI_SAMPLE_F64,
  ACI_SAMPLE_ULAW,
  ACI_SAMPLE_ALAW
} aci_sample_code;

enum { ACI_SOUND_BLOCK = 4096 }; /* frames that are decoded at a time */

/* One reader. read gives n interleaved frames from `first` on as f32, or fewer where the sound ends. */
typedef struct aci_sound_format {
  ac_status (*read)(ac_sound *s, int64_t first, int64_t n, float *to, int64_t *got, ac_err *e);
  void (*close)(ac_sound *s);
} aci_sound_format;

struct ac_sound {
  char name[256];
  ac_sound_info info;
  const aci_sound_format *reader;
  void *state; /* the reader's */
  /* the file or bytes */
  int fd; /* -1: bytes */
  const uint8_t *bytes;
  uint64_t size;
  /* of a WAV */
  aci_sample_code code;
  uint64_t data; /* byte of the first sample */
  bool big_endian;
};

/* Up to n bytes at offset, fewer at the end. *got -1: the file could not be read. */
int64_t aci_sound_bytes(const ac_sound *s, uint64_t at, void *to, uint64_t n);

/* PARSE: "<name>: not a valid <what>: <message>" */
AC_PRINTF(4, 5)
ac_status aci_sound_fault(const ac_sound *s, const char *what, ac_err *e, const char *fmt, ...);

/* wav.c: *known tells whether the file is a WAV with a coding that it reads. */
ac_status aci_wav_open(ac_sound *s, bool *known, ac_err *e);
/* Integers as they are, of the dtype of their coding. INVALID for other codings. */
ac_status aci_wav_read_native(ac_sound *s, int64_t first, ac_tensor *dst, ac_err *e);

ac_status aci_sndfile_open(ac_sound *s, ac_err *e);
ac_status aci_sndfile_encode(const ac_tensor *t, int64_t rate, const char *format,
                             const char *encoding, int bits, void **out, size_t *n, ac_err *e);

/* samples.c */
int aci_sample_bytes(aci_sample_code code);
void aci_samples_to_f32(aci_sample_code code, bool big_endian, const uint8_t *from, int64_t n,
                        float *to);
/* Interleaved frames `first`.. of a [channels, frames] tensor as bytes, lowest first. */
void aci_samples_from(const ac_tensor *t, aci_sample_code code, int64_t first, int64_t n,
                      uint8_t *to);
/* Sample i of channel c as f32, whatever the dtype. */
float aci_sample_f32(const ac_tensor *t, int64_t i);

#endif
