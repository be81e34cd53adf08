/* foreign.h: objects that another component allocated. */
#ifndef COMB_FOREIGN_H
#define COMB_FOREIGN_H

#include <stddef.h>

/* Of heap addresses where this component has allocated nothing. */
void comb_foreign_free(void *memory);
size_t comb_foreign_usable(const void *memory);

/* Sends back what the calling thread has freed of others'. */
void comb_foreign_flush(void);

#endif
