/* Each rank sends every other one a share of its array, several times; the sums must agree. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char** words) {
  MPI_Init(&count, &words);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int share = 2000000;
  long* from = malloc(sizeof(long) * share * ranks);
  long* to = malloc(sizeof(long) * share * ranks);
  for (int i = 0; i < share * ranks; i++) from[i] = (i * 7919L + rank) % 1000003;
  for (int round = 0; round < 4; round++) {
    MPI_Alltoall(from, share, MPI_LONG, to, share, MPI_LONG, MPI_COMM_WORLD);
    for (int i = 0; i < share * ranks; i++) from[i] = (to[i] * 31 + i) % 1000003;
  }
  long sum = 0, total = 0;
  for (int i = 0; i < share * ranks; i++) sum = (sum * 31 + from[i]) % 1000000007;
  MPI_Reduce(&sum, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("%d ranks: %ld\n", ranks, total);
  MPI_Finalize();
  return 0;
}
