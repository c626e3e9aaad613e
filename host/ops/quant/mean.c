/* The mean that nested layouts subtract from absmax, added up in the order in which PyTorch adds,
 * so that files agree to the last bit: 4 rows of 8 lanes (of one if there are fewer values), each a
 * cascade of four sums that take over from one another at powers of two. */
#include <string.h>

#include "ops/quant/codes.h"

enum { ROWS = 4, LANES = 8, LEVELS = 4, WIDTH = ROWS * LANES };

/* x (n, width) to sum (width). */
static void cascade(const float *x, int64_t n, int width, float *sum) {
  float level[LEVELS][WIDTH];
  int power = 0;
  memset(level, 0, sizeof level);
  while ((INT64_C(1) << power) < n) power++;
  power = power / LEVELS > 4 ? power / LEVELS : 4;
  const int64_t step = INT64_C(1) << power;
  int64_t i = 0;
  for (; i + step <= n;) {
    for (int64_t j = 0; j < step; j++, i++)
      for (int w = 0; w < width; w++) level[0][w] += x[i * width + w];
    for (int j = 1; j < LEVELS; j++) {
      for (int w = 0; w < width; w++) {
        level[j][w] += level[j - 1][w];
        level[j - 1][w] = 0;
      }
      if ((i & ((step - 1) << (j * power))) != 0) break;
    }
  }
  for (; i < n; i++)
    for (int w = 0; w < width; w++) level[0][w] += x[i * width + w];
  for (int w = 0; w < width; w++) {
    sum[w] = level[0][w];
    for (int j = 1; j < LEVELS; j++) sum[w] += level[j][w];
  }
}

float aci_mean_of(const float *x, int64_t n) {
  const int lanes = n >= LANES ? LANES : 1;
  const int64_t vectors = n / lanes, whole = vectors / ROWS;
  float sum[WIDTH], total = 0;
  if (n == 0) return 0;
  cascade(x, whole, ROWS * lanes, sum);
  for (int64_t v = whole * ROWS; v < vectors; v++)
    for (int w = 0; w < lanes; w++) sum[w] += x[v * lanes + w];
  for (int r = 1; r < ROWS; r++)
    for (int w = 0; w < lanes; w++) sum[w] += sum[r * lanes + w];
  for (int64_t i = vectors * lanes; i < n; i++) total += x[i];
  for (int w = 0; w < lanes; w++) total += sum[w];
  return total / (float)n;
}
