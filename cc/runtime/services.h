/* services.h: what this component does for others: see enum comb_call_number for where. Each returns an error
 * number, or 0. */
#ifndef COMB_SERVICES_H
#define COMB_SERVICES_H

struct comb_request;

long comb_serve_begin(const struct comb_request *request);
long comb_serve_join(const struct comb_request *request);
long comb_serve_detach(const struct comb_request *request);
long comb_serve_kill(const struct comb_request *request);
long comb_serve_living(const struct comb_request *request);
long comb_serve_key_create(const struct comb_request *request);
long comb_serve_key_delete(const struct comb_request *request);
long comb_serve_key_destructor(const struct comb_request *request);
long comb_serve_free(const struct comb_request *request);
long comb_serve_usable(const struct comb_request *request);
long comb_serve_exit(const struct comb_request *request);
long comb_serve_at_exit(const struct comb_request *request);
long comb_serve_flush(const struct comb_request *request);
long comb_serve_signal(const struct comb_request *request);

#endif
