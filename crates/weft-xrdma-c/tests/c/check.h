/* Macros of the programs of this folder, which are both C and C++. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xrdma.h>

/* Prints the line and ends the program unless the condition holds. */
#define CHECK(holds)                                                                          \
    do {                                                                                      \
        if (!(holds)) {                                                                       \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #holds, xrdma_last_error()); \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

/* Checks that a call fails with this number and a text that contains `why`. */
#define FAILS(call, number, why)                                 \
    do {                                                         \
        CHECK((call) == -(number));                              \
        CHECK(strstr(xrdma_last_error(), why) != NULL);          \
    } while (0)
