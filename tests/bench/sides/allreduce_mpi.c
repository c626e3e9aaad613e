/* Open MPI's side of the collectives bench: MPI_Allreduce in place, f32 sum. Prints microseconds by size in bytes.
 *   mpirun -np 2 allreduce_mpi */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  static const size_t sizes[] = {4, 1024, 1 << 20, 64 << 20};
  MPI_Init(&argc, &argv);
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  float *x = calloc(sizes[3] / sizeof *x, sizeof *x);
  if (x == NULL) return 1;
  if (rank == 0) printf("{");
  for (int s = 0; s < 4; s++) {
    int n = (int)(sizes[s] / sizeof *x), repeats = sizes[s] <= 1024 ? 20000 : sizes[s] <= 1 << 20 ? 300 : 8;
    double best = 1e9;
    for (int batch = 0; batch < 4; batch++) {
      MPI_Barrier(MPI_COMM_WORLD);
      double t = MPI_Wtime();
      for (int i = 0; i < repeats; i++) MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      t = (MPI_Wtime() - t) / repeats * 1e6;
      if (t < best) best = t;
    }
    if (rank == 0) printf("%s\"b%zu\": %.4f", s > 0 ? ", " : "", sizes[s], best);
  }
  if (rank == 0) printf("}\n");
  MPI_Finalize();
  free(x);
  return 0;
}
