/* UCX active messages, eager, between two processes. run.sh picks the transport. */
#include "pair.h"

#include <ucp/api/ucp.h>

/* Messages under way at most; each pending one keeps its buffer until UCX has let go of it. */
enum { WINDOW = 64, MESSAGE_ID = 1 };

static ucp_worker_h worker;
static ucp_ep_h endpoint;

static struct {
    void *pending;
    _Alignas(64) unsigned char payload[LARGEST_MESSAGE_BYTES];
} outgoing[WINDOW];
static size_t slot;

/* What the handler has read since the last wait. Every run of messages counts its first words up from 0. */
static struct {
    uint64_t messages, last_first;
    bool counts_up;
} inbox;

static void check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK)
        die("%s: %s", what, ucs_status_string(status));
}

/* Reads the payload where UCX delivers it: no receive buffer, no second copy. */
static ucs_status_t handle_message(void *unused, const void *header, size_t header_bytes, void *payload, size_t bytes,
                                   const ucp_am_recv_param_t *parameters)
{
    (void)unused, (void)header, (void)header_bytes;
    if (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
        die("a message of %zu bytes came as a rendezvous", bytes);
    inbox.last_first = read_payload(payload, bytes);
    inbox.counts_up &= inbox.last_first == inbox.messages;
    inbox.messages++;
    return UCS_OK;
}

static void finish(size_t i)
{
    if (outgoing[i].pending == NULL)
        return;
    ucs_status_t status;
    while ((status = ucp_request_check_status(outgoing[i].pending)) == UCS_INPROGRESS)
        ucp_worker_progress(worker);
    check(status, "send");
    ucp_request_free(outgoing[i].pending);
    outgoing[i].pending = NULL;
}

static void send_message(size_t bytes, uint64_t first)
{
    static const ucp_request_param_t eager = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_AM_SEND_FLAG_EAGER};
    finish(slot);
    write_payload(outgoing[slot].payload, bytes, first);
    ucs_status_ptr_t request =
        ucp_am_send_nbx(endpoint, MESSAGE_ID, NULL, 0, outgoing[slot].payload, bytes, &eager);
    if (UCS_PTR_IS_ERR(request))
        check(UCS_PTR_STATUS(request), "ucp_am_send_nbx");
    /* Sent at once, as most are: the same, cached buffer serves again. */
    if (request != NULL) {
        outgoing[slot].pending = request;
        slot = (slot + 1) % WINDOW;
    }
}

static void wait_for(uint64_t messages)
{
    while (inbox.messages < messages)
        ucp_worker_progress(worker);
    inbox.messages = 0;
}

static uint64_t receive_message(size_t bytes)
{
    (void)bytes;
    wait_for(1);
    return inbox.last_first;
}

static void send_stream(size_t bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        send_message(bytes, i);
    for (size_t i = 0; i < WINDOW; i++)
        finish(i);
}

static void receive_stream(size_t bytes, uint64_t count)
{
    (void)bytes;
    inbox.counts_up = true;
    wait_for(count);
    if (!inbox.counts_up)
        die("messages arrived out of order");
}

static void connect_to(struct pair pair)
{
    ucp_address_t *own;
    size_t own_bytes;
    check(ucp_worker_get_address(worker, &own, &own_bytes), "ucp_worker_get_address");
    void *others = exchange(pair, own, own_bytes);
    ucp_worker_release_address(worker, own);
    ucp_ep_params_t to = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = others};
    check(ucp_ep_create(worker, &to, &endpoint), "ucp_ep_create");
    free(others);
}

int main(void)
{
    struct pair pair = split_in_two();

    ucp_params_t features = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_AM};
    ucp_context_h context;
    check(ucp_init(&features, NULL, &context), "ucp_init");
    /* One thread for each worker: no locks. */
    ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    check(ucp_worker_create(context, &single, &worker), "ucp_worker_create");
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB,
                                      .id = MESSAGE_ID,
                                      .cb = handle_message};
    check(ucp_worker_set_am_recv_handler(worker, &handler), "ucp_worker_set_am_recv_handler");
    connect_to(pair);

    run_pair(pair, "ucx", ucp_get_version_string());

    /* Neither side closes while the other may still have a last message to send. */
    free(exchange(pair, "", 1));
    ucp_request_param_t plain = {.op_attr_mask = 0};
    ucs_status_ptr_t closing = ucp_ep_close_nbx(endpoint, &plain);
    if (UCS_PTR_IS_PTR(closing)) {
        while (ucp_request_check_status(closing) == UCS_INPROGRESS)
            ucp_worker_progress(worker);
        ucp_request_free(closing);
    }
    free(exchange(pair, "", 1));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return leave_pair(pair);
}
