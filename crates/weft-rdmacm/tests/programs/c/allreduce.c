/* Sums 1 to 262,144 numbers over all ranks, and compares each with its expected value. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAX_NUMBERS = 1 << 18 };

static long in[MAX_NUMBERS], out[MAX_NUMBERS];

/* Returns the number of network namespaces that the ranks are in. */
static int networks(int ranks) {
    struct stat own;
    if (stat("/proc/self/ns/net", &own))
        MPI_Abort(MPI_COMM_WORLD, 1);
    long number = (long)own.st_ino, *numbers = calloc(ranks, sizeof *numbers);
    MPI_Allgather(&number, 1, MPI_LONG, numbers, 1, MPI_LONG, MPI_COMM_WORLD);
    int different = 0;
    for (int i = 0; i < ranks; i++) {
        int before = 0;
        while (numbers[before] != numbers[i])
            before++;
        different += before == i;
    }
    free(numbers);
    return different;
}

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int count = 1; count <= MAX_NUMBERS; count *= 8) {
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
    int hosts = networks(ranks);
    if (rank == 0)
        printf("%d ranks on %d hosts agree\n", ranks, hosts);
    MPI_Finalize();
    return 0;
}
