// What those need who run programs.
#ifndef COMB_PROCESSES_H
#define COMB_PROCESSES_H

#include "preload.h"

#define MOST_HANDLES_BYTES 2048

u64 environment_bytes(char *const *variables, u64 *count);
extern u32 is_sandboxed;
void enter_sandbox(void);
char **fill_environment(void *memory, char *const *variables, u64 count, int is_same_process);

#endif
