/* Sums of 1 to 262,144 numbers over all ranks, each held against what it must be. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 18 };

static long in[MOST], out[MOST];

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int count = 1; count <= MOST; count *= 8) {
        for (int i = 0; i < count; i++)
            in[i] = (long)rank * 1000003 + i;
        MPI_Allreduce(in, out, count, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) {
            long sum = (long)ranks * (ranks - 1) / 2 * 1000003 + (long)ranks * i;
            if (out[i] != sum) {
                printf("rank %d: element %d of %d is %ld, not %ld\n", rank, i, count, out[i], sum);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks agree\n", ranks);
    MPI_Finalize();
    return 0;
}
