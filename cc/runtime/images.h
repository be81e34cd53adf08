/* images.h: the writable data of the program and of its instrumented shared libraries. */
#ifndef COMB_IMAGES_H
#define COMB_IMAGES_H

#include "comb_access.h"
#include "comb_program.h"

#define COMB_MOST_IMAGES COMB_IMAGES_MOST

struct comb_images {
    unsigned count;
    struct comb_image image[COMB_MOST_IMAGES];
    char build[65536]; /* where each library is, which build it is, and where its image lies */
};

/* Of this process, with all libraries that it was started with. Called once. */
const struct comb_images *comb_images_find(void);

#endif
