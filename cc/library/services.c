#include "comb_calls.h"
#include "files.h"
#include "services.h"

const struct comb_library_service comb_library_services[] = {
    {COMB_SERVICE_FORWARD, comb_serve_forward},
    {COMB_SERVICE_FILE_READ, comb_serve_file_read},
    {COMB_SERVICE_FILE_WRITE, comb_serve_file_write},
};
const unsigned comb_library_services_count = sizeof comb_library_services / sizeof *comb_library_services;
