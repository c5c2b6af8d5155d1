/* Frees a block twice. */
#include <stdlib.h>

int main(void)
{
    void *volatile block = malloc(1 << 20);

    free(block);
    free(block);
    return 0;
}
