/* Open MPI over shared memory. mpirun starts the two processes; run.sh holds the transport's settings. */
#include "peer.h"

#include <mpi.h>

/* As many messages under way as the OSU bandwidth test has. */
enum { WINDOW = 64, TAG = 0 };

static int other;
static _Alignas(64) unsigned char outgoing[WINDOW][LARGEST_MESSAGE_BYTES], incoming[WINDOW][LARGEST_MESSAGE_BYTES];

static void send_message(size_t bytes, uint64_t first)
{
    write_payload(outgoing[0], bytes, first);
    MPI_Send(outgoing[0], (int)bytes, MPI_BYTE, other, TAG, MPI_COMM_WORLD);
}

static uint64_t receive_message(size_t bytes)
{
    MPI_Recv(incoming[0], (int)bytes, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return read_payload(incoming[0], bytes);
}

static void send_stream(size_t bytes, uint64_t count)
{
    MPI_Request requests[WINDOW];
    for (uint64_t sent = 0; sent < count;) {
        int window = count - sent < WINDOW ? (int)(count - sent) : WINDOW;
        for (int i = 0; i < window; i++) {
            write_payload(outgoing[i], bytes, sent + (uint64_t)i);
            MPI_Isend(outgoing[i], (int)bytes, MPI_BYTE, other, TAG, MPI_COMM_WORLD, &requests[i]);
        }
        MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
        sent += (uint64_t)window;
    }
}

static void receive_stream(size_t bytes, uint64_t count)
{
    MPI_Request requests[WINDOW];
    for (uint64_t received = 0; received < count;) {
        int window = count - received < WINDOW ? (int)(count - received) : WINDOW;
        for (int i = 0; i < window; i++)
            MPI_Irecv(incoming[i], (int)bytes, MPI_BYTE, other, TAG, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(window, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < window; i++)
            expect(read_payload(incoming[i], bytes), received + (uint64_t)i);
        received += (uint64_t)window;
    }
}

int main(int argc, char **argv)
{
    const char *rank_text = getenv("OMPI_COMM_WORLD_RANK");
    settle_on_cpu(rank_text != NULL && atoi(rank_text) == 0 ? ASKER_CPU : ANSWERER_CPU);
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2)
        die("needs two processes: mpirun -n 2");
    other = 1 - rank;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION);
    if (rank == 0)
        run_asker("openmpi", version);
    else
        run_answerer();
    MPI_Finalize();
    return 0;
}
