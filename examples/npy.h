/* Reading the arrays that `atoll data FILE --npy PREFIX` writes. */
#ifndef EXAMPLES_NPY_H
#define EXAMPLES_NPY_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The data of a version-1 .npy file in C order, and its first two sizes; NULL when it cannot be
 * read. */
static inline void *read_npy(const char *path, size_t element, int64_t shape[2])
{
    FILE *f = fopen(path, "rb");
    unsigned char head[10];
    char text[4096] = "";
    if (f == NULL || fread(head, 1, 10, f) != 10 || memcmp(head, "\x93NUMPY\x01", 7) != 0) {
        fprintf(stderr, "%s: not a version-1 .npy file\n", path);
        return f != NULL ? (fclose(f), NULL) : NULL;
    }
    size_t length = (size_t)head[8] + 256 * (size_t)head[9];
    if (length >= sizeof text || fread(text, 1, length, f) != length) {
        fclose(f);
        return NULL;
    }
    const char *at = strstr(text, "'shape': (");
    shape[0] = shape[1] = 1;
    if (at != NULL) {
        sscanf(at + 10, "%ld, %ld", &shape[0], &shape[1]);
    }
    size_t bytes = element * (size_t)shape[0] * (size_t)shape[1];
    void *data = malloc(bytes + 1);
    if (data != NULL && fread(data, 1, bytes, f) != bytes) {
        free(data);
        data = NULL;
    }
    fclose(f);
    return data;
}

#endif
