/* mem*, b*: random ranges, short and longer than a piece, overlapping ones too. */
#include "world.h"

#include <strings.h>
#include <unistd.h>

void memory_scene(void)
{
    size_t room = below(4) ? 700 : 100000;
    char *memory = place(room);
    size_t bytes = below((unsigned)room / 2), half = room / 2;
    size_t from = below((unsigned)(room - bytes)), to = below((unsigned)(room - bytes));

    SAY_PLACE(C(memmove)(memory + to, memory + from, bytes));
    SAY_PLACE(C(memcpy)(memory + half, memory, bytes));
    SAY_PLACE(C(mempcpy)(memory, memory + half, bytes));
    SAY_PLACE(C(__mempcpy)(memory, memory + half, bytes / 2));
    C(bcopy)(memory + from, memory + to, bytes);
    SAY_PLACE(C(memset)(memory + to, (int)below(256), bytes / 4));
    C(bzero)(memory + from, bytes / 8);
    C(explicit_bzero)(memory + from, bytes / 16);
    SAY_SIGN(C(memcmp)(memory, memory + half, half));
    SAY_SIGN(C(memcmp)(memory + from, memory + to, bytes));
    SAY(C(bcmp)(memory, memory + half, bytes) != 0);
    int byte = (int)below(256);
    SAY_PLACE(C(memchr)(memory + from, byte, bytes));
    SAY_PLACE(C(memrchr)(memory + from, byte, bytes));
    put(memory + room - 1, "\1", 1);
    SAY_PLACE(C(rawmemchr)(memory + from, 1));
    SAY_PLACE(C(__rawmemchr)(memory + to, 1));
    SAY_PLACE(C(memccpy)(memory, memory + half, byte, bytes));
    size_t part = below(3);
    SAY_PLACE(C(memmem)(memory + from, bytes, memory + room / 3, part));
    SAY_PLACE(C(memmem)(memory, room, memory + from, bytes));
    SAY_PLACE(C(memfrob)(memory + from, bytes));
    C(swab)(memory, memory + half, (ssize_t)below(300));
}
