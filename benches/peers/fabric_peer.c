/* libfabric's shm provider: reliable datagrams (FI_EP_RDM) between two processes. */
#include "pair.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

enum { WINDOW = 64, COMPLETIONS_AT_ONCE = 16, PAUSES_WHEN_FULL = 100 };

static struct fid_ep *endpoint;
static struct fid_cq *completions;
static fi_addr_t other;

static _Alignas(64) unsigned char outgoing[LARGEST_MESSAGE_BYTES];
static struct buffer {
    /* First, so that the context of a completion is its buffer. The provider may write here. */
    struct fi_context context;
    _Alignas(64) unsigned char payload[LARGEST_MESSAGE_BYTES];
} incoming[WINDOW];
/* Buffers that wait for a message, and buffers read and not handed back yet. */
static uint64_t posted;
static struct buffer *spare[WINDOW];
static uint64_t spares;

static void check(long result, const char *what)
{
    if (result < 0)
        die("%s: %s", what, fi_strerror((int)-result));
}

/* Also what makes the provider work: it has no thread of its own. */
static size_t completed(struct fi_cq_entry *entries, size_t most)
{
    ssize_t taken = fi_cq_read(completions, entries, most);
    if (taken == -FI_EAGAIN)
        return 0;
    check(taken, "fi_cq_read");
    return (size_t)taken;
}

/* Keeps `wanted` receives posted, so that a message finds its place and is copied once. */
static void post(uint64_t wanted)
{
    while (spares > 0 && posted < wanted) {
        struct buffer *buffer = spare[--spares];
        check(fi_recv(endpoint, buffer->payload, sizeof buffer->payload, NULL, FI_ADDR_UNSPEC, &buffer->context),
              "fi_recv");
        posted++;
    }
}

static uint64_t read_buffer(struct fi_cq_entry entry, size_t bytes)
{
    struct buffer *buffer = entry.op_context;
    posted--;
    spare[spares++] = buffer;
    return read_payload(buffer->payload, bytes);
}

/* fi_inject: every size here is within the provider's inject size, and no send completion needs to be collected. */
static void send_message(size_t bytes, uint64_t first)
{
    write_payload(outgoing, bytes, first);
    ssize_t result;
    while ((result = fi_inject(endpoint, outgoing, bytes, other)) == -FI_EAGAIN) {
        /* The queue is full, and the receiver needs its lock to empty it: to ask again at once costs 10% or more. */
        for (int i = 0; i < PAUSES_WHEN_FULL; i++)
            __builtin_ia32_pause();
        completed(NULL, 0);
    }
    check(result, "fi_inject");
}

/* Posts the buffer that the last call read only now, with its answer on the way; a second one was posted all along. */
static uint64_t receive_message(size_t bytes)
{
    post(2);
    struct fi_cq_entry entry;
    while (completed(&entry, 1) == 0)
        ;
    return read_buffer(entry, bytes);
}

static void send_stream(size_t bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        send_message(bytes, i);
}

static void receive_stream(size_t bytes, uint64_t count)
{
    struct fi_cq_entry entries[COMPLETIONS_AT_ONCE];
    for (uint64_t received = 0; received < count;) {
        uint64_t left = count - received;
        post(left + 1 < WINDOW ? left + 1 : WINDOW);
        size_t taken = completed(entries, COMPLETIONS_AT_ONCE);
        for (size_t i = 0; i < taken; i++)
            expect(read_buffer(entries[i], bytes), received++);
    }
}

/* Where the provider does not work there is nothing to compare with: the caller is told so and goes on. */
static void require(struct pair pair, int result, const char *what)
{
    if (result == 0)
        return;
    if (pair.asker)
        printf("{\"peer\":\"libfabric\",\"missing\":\"%s: %s\"}\n", what, fi_strerror(-result));
    exit(0);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        die("usage: fabric_peer MARK (what the names of its files in /dev/shm begin with)");
    struct pair pair = split_in_two();

    struct fi_info *hints = fi_allocinfo(), *info;
    hints->caps = FI_MSG;
    hints->ep_attr->type = FI_EP_RDM;
    hints->fabric_attr->prov_name = strdup("shm");
    /* One thread for each endpoint: no locks but the one that the processes share. */
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->tx_attr->inject_size = LARGEST_MESSAGE_BYTES;
    char own[64];
    snprintf(own, sizeof own, "%s-%s", argv[1], pair.asker ? "asker" : "answerer");
    require(pair, fi_getinfo(FI_VERSION(1, 17), own, NULL, FI_SOURCE, hints, &info), "fi_getinfo");

    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *addresses;
    require(pair, fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    require(pair, fi_domain(fabric, info, &domain, NULL), "fi_domain");
    require(pair, fi_endpoint(domain, info, &endpoint, NULL), "fi_endpoint");
    struct fi_av_attr table = {.type = FI_AV_TABLE};
    check(fi_av_open(domain, &table, &addresses, NULL), "fi_av_open");
    struct fi_cq_attr queue = {.format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_NONE};
    check(fi_cq_open(domain, &queue, &completions, NULL), "fi_cq_open");
    check(fi_ep_bind(endpoint, &addresses->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(endpoint, &completions->fid, FI_SEND | FI_RECV), "fi_ep_bind");
    require(pair, fi_enable(endpoint), "fi_enable");
    for (int i = 0; i < WINDOW; i++)
        spare[spares++] = &incoming[i];

    char address[128];
    size_t address_bytes = sizeof address;
    check(fi_getname(&endpoint->fid, address, &address_bytes), "fi_getname");
    char *others = exchange(pair, address, address_bytes);
    if (fi_av_insert(addresses, others, 1, &other, 0, NULL) != 1)
        die("fi_av_insert took no address");
    free(others);

    run_pair(pair, "libfabric", fi_tostr("", FI_TYPE_VERSION));

    free(exchange(pair, "", 1));
    fi_close(&endpoint->fid);
    fi_close(&completions->fid);
    fi_close(&addresses->fid);
    fi_close(&domain->fid);
    fi_close(&fabric->fid);
    return leave_pair(pair);
}
