/* UCX active messages, eager, over shared memory between two processes. */
#include "pair.h"

#include <ucp/api/ucp.h>

/* Messages under way at most; each pending one keeps its buffer until UCX has let go of it. */
enum { WINDOW = 64, MESSAGE_ID = 1 };

/*
 * No one setting is the best for every size, so that small and large messages each have a context of their own. Only
 * one of them is polled at a time. For 64 bytes, the default of 64 FIFO elements passes a third more messages a second
 * than 512; for 4096 bytes, 512 elements need two thirds of the time and move twice as much.
 */
static struct route {
    const char *fifo_elements;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h endpoint;
    /* What the handler has read since the last wait. A stream's first words count up from 0. */
    uint64_t messages, last_first;
    bool counts_up;
    size_t slot;
    struct {
        void *pending;
        _Alignas(64) unsigned char payload[LARGEST_MESSAGE_BYTES];
    } outgoing[WINDOW];
} small = {.fifo_elements = "64"}, large = {.fifo_elements = "512"};

static struct route *route_for(size_t bytes)
{
    return bytes <= RATE_BYTES ? &small : &large;
}

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK)
        die("%s: %s", what, ucs_status_string(status));
}

/* Reads the payload where UCX delivers it: no receive buffer, no second copy. */
static ucs_status_t handle_message(void *argument, const void *header, size_t header_bytes, void *payload,
                                   size_t bytes, const ucp_am_recv_param_t *parameters)
{
    (void)header, (void)header_bytes;
    struct route *route = argument;
    if (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
        die("a message of %zu bytes came as a rendezvous", bytes);
    route->last_first = read_payload(payload, bytes);
    route->counts_up &= route->last_first == route->messages;
    route->messages++;
    return UCS_OK;
}

static void finish(struct route *route, size_t slot)
{
    void *request = route->outgoing[slot].pending;
    if (request == NULL)
        return;
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
        ucp_worker_progress(route->worker);
    check(status, "send");
    ucp_request_free(request);
    route->outgoing[slot].pending = NULL;
}

static void send_message(size_t bytes, uint64_t first)
{
    static const ucp_request_param_t eager = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                              .flags = UCP_AM_SEND_FLAG_EAGER};
    struct route *route = route_for(bytes);
    finish(route, route->slot);
    void *payload = route->outgoing[route->slot].payload;
    write_payload(payload, bytes, first);
    ucs_status_ptr_t request = ucp_am_send_nbx(route->endpoint, MESSAGE_ID, NULL, 0, payload, bytes, &eager);
    if (UCS_PTR_IS_ERR(request))
        check(UCS_PTR_STATUS(request), "ucp_am_send_nbx");
    /* NULL: sent at once, as nearly all are, and the same buffer, still in the cache, serves again. */
    if (request != NULL) {
        route->outgoing[route->slot].pending = request;
        route->slot = (route->slot + 1) % WINDOW;
    }
}

static uint64_t receive_message(size_t bytes)
{
    struct route *route = route_for(bytes);
    /* The pause takes a twentieth off the shortest round trips; for long ones and in streams it costs as much. */
    while (route->messages == 0)
        if (ucp_worker_progress(route->worker) == 0 && route == &small)
            __builtin_ia32_pause();
    route->messages = 0;
    return route->last_first;
}

static void send_stream(size_t bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        send_message(bytes, i);
    for (size_t slot = 0; slot < WINDOW; slot++)
        finish(route_for(bytes), slot);
}

static void receive_stream(size_t bytes, uint64_t count)
{
    struct route *route = route_for(bytes);
    route->counts_up = true;
    while (route->messages < count)
        ucp_worker_progress(route->worker);
    route->messages = 0;
    if (!route->counts_up)
        die("messages arrived out of order");
}

static void open_route(struct route *route, struct pair pair)
{
    /* posix is as fast as sysv, and it unlinks its memory as soon as it has it. cma is for rendezvous only, which no
       message here takes. */
    setenv("UCX_TLS", "posix,self", 1);
    setenv("UCX_POSIX_FIFO_SIZE", route->fifo_elements, 1);
    /* Default 128: a 64-byte message with its header then goes inside the element. */
    setenv("UCX_POSIX_FIFO_ELEM_SIZE", "192", 1);

    ucp_params_t features = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    check(ucp_init(&features, NULL, &route->context), "ucp_init");
    /* One thread for each worker: no locks. */
    ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    check(ucp_worker_create(route->context, &single, &route->worker), "ucp_worker_create");
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id = MESSAGE_ID,
                                      .cb = handle_message,
                                      .arg = route};
    check(ucp_worker_set_am_recv_handler(route->worker, &handler), "ucp_worker_set_am_recv_handler");

    ucp_address_t *own;
    size_t own_bytes;
    check(ucp_worker_get_address(route->worker, &own, &own_bytes), "ucp_worker_get_address");
    void *others = exchange(pair, own, own_bytes);
    ucp_worker_release_address(route->worker, own);
    ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = others};
    check(ucp_ep_create(route->worker, &to, &route->endpoint), "ucp_ep_create");
    free(others);
}

static void close_route(struct route *route, struct pair pair)
{
    ucp_request_param_t plain = {.op_attr_mask = 0};
    ucs_status_ptr_t closing = ucp_ep_close_nbx(route->endpoint, &plain);
    if (UCS_PTR_IS_PTR(closing)) {
        while (ucp_request_check_status(closing) == UCS_INPROGRESS)
            ucp_worker_progress(route->worker);
        ucp_request_free(closing);
    }
    free(exchange(pair, "", 1));
    ucp_worker_destroy(route->worker);
    ucp_cleanup(route->context);
}

int main(void)
{
    struct pair pair = split_in_two();
    open_route(&small, pair);
    open_route(&large, pair);

    run_pair(pair, "ucx", ucp_get_version_string());

    /* Neither side closes while the other may still wait for a last message. */
    free(exchange(pair, "", 1));
    close_route(&small, pair);
    close_route(&large, pair);
    return leave_pair(pair);
}
