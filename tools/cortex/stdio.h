/* The part of <stdio.h> that the driver of tools/targets.py needs, by semihosting; see start.c. */
#ifndef STDIO_H
#define STDIO_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t handle;
} FILE;

FILE *fopen(const char *path, const char *mode);
size_t fread(void *buffer, size_t size, size_t count, FILE *file);
size_t fwrite(const void *buffer, size_t size, size_t count, FILE *file);
int fclose(FILE *file);

#endif
