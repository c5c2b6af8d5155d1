/* All-reduce of floats by MPI. Prints for each size in bytes the mean seconds of a round and the number of wrong
 * elements. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks, rounds = atoi(words[1]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int word = 2; word < count; word++) {
        long elements = atol(words[word]) / 4, wrong = 0;
        float *buffer = malloc(4 * elements);
        double began = 0;
        for (int round = -1; round < rounds; round++) {
            for (long at = 0; at < elements; at++) buffer[at] = (at + rank) % 100;
            MPI_Barrier(MPI_COMM_WORLD);
            if (round < 0) continue;
            double start = MPI_Wtime();
            MPI_Allreduce(MPI_IN_PLACE, buffer, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
            began += MPI_Wtime() - start;
            for (long at = 0; at < elements; at++) {
                float sum = 0;
                for (int other = 0; other < ranks; other++) sum += (at + other) % 100;
                wrong += buffer[at] != sum;
            }
        }
        if (rank == 0) {
            printf("%s %f %ld\n", words[word], began / rounds, wrong);
            fflush(stdout);
        }
        free(buffer);
    }
    MPI_Finalize();
}
