/* The counts that this process's device publishes in the folder WEFT_STAT (docs/reference/stat.md). */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Words of the header's directory, and of the records of programs and devices. */
enum { DIRECTORY = 5, PROGRAMS = DIRECTORY, DEVICES = DIRECTORY + 6, PROCESS = 1 };
enum { MAPPED_REQUESTS = 25, REQUESTS_BY_CALL = 26 };

/* Returns a word of the device's record, or 0 if there is none. */
static uint64_t read_status(unsigned field)
{
    static uint64_t words[1 << 16];
    uint64_t found = 0;
    const char *folder = getenv("WEFT_STAT");
    must(folder);
    DIR *files = opendir(folder);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "r");
        size_t count = file ? fread(words, sizeof *words, 1 << 16, file) : 0;
        if (file)
            fclose(file);
        if (count < DIRECTORY || memcmp(words, "WEFTSTAT", 8))
            continue;
        uint64_t program = words[PROGRAMS], device = words[DEVICES];
        if (program + PROCESS >= count || device + field >= count || words[DEVICES + 1] != 1)
            continue;
        if (words[program + PROCESS] == (uint64_t)getpid())
            found = words[device + field];
    }
    if (files)
        closedir(files);
    return found;
}

/* Waits until a count is at least `least`; the test ends a program that waits for too long. */
static void await_status(unsigned field, uint64_t least)
{
    while (read_status(field) < least)
        usleep(1000);
}
