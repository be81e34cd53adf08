/* Streams: every way in and out of a file, also from another cell. */
#include "world.h"

#include <stdio_ext.h>
#include <wchar.h>

static FILE *fresh(const char *mode)
{
    char *path = place_text("stream.txt");
    return C(fopen)(path, place_text(mode));
}

static void fill(FILE *file)
{
    char *line = place_text("first line\nsecond one\nlast");
    wchar_t one = L'w';
    (void)one;
    SAY(C(fputs)(line, file) >= 0);
    SAY(C(fputs_unlocked)(line, file) >= 0);
    SAY(C(fputc)('x', file)); SAY(C(putc)('y', file)); SAY(C(fputc_unlocked)('z', file)); SAY(C(putc_unlocked)('\n', file));
    SAY(C(_IO_putc)('p', file)); SAY(C(__overflow)(file, 'q')); SAY(C(putw)(0x41424344, file));
    size_t room = below(3) ? 500 : 90000;
    char *block = place(room);
    SAY(C(fwrite)(block, 3, room / 3, file));
    SAY(C(fwrite_unlocked)(block, 1, room, file));
    SAY(C(ftell)(file)); SAY(C(ftello)(file)); SAY(C(ftello64)(file));
}

static void look(FILE *file)
{
    char *to = place(200), *large = place(50000);
    C(rewind)(file);
    SAY_PLACE(C(fgets)(to, 100, file));
    SAY_PLACE(C(fgets)(to, (int)below(8), file));
    SAY_PLACE(C(fgets_unlocked)(to, 100, file));
    SAY_PLACE(C(__fgets_chk)(to, 200, 100, file));
    SAY_PLACE(C(__fgets_unlocked_chk)(to, 200, 100, file));
    SAY(C(fseek)(file, 3, SEEK_SET)); SAY(C(fseeko)(file, 1, SEEK_CUR)); SAY(C(fseeko64)(file, 1, SEEK_CUR));
    SAY(C(fgetc)(file)); SAY(C(getc)(file)); SAY(C(fgetc_unlocked)(file)); SAY(C(getc_unlocked)(file));
    SAY(C(_IO_getc)(file)); SAY(C(__uflow)(file)); SAY(C(ungetc)('u', file)); SAY(C(getc)(file)); SAY(C(getw)(file));
    SAY(C(fread)(large, 7, 5000, file));
    SAY(C(fread_unlocked)(large, 1, 50000, file));
    C(rewind)(file);
    SAY(C(__fread_chk)(large, 50000, 7, 500, file));
    SAY(C(__fread_unlocked_chk)(large, 50000, 1, 5000, file));
    while (C(fread)(large, 1, 50000, file) > 0)
        ;
    SAY(C(feof)(file) != 0); SAY(C(feof_unlocked)(file) != 0); SAY(C(ferror)(file)); SAY(C(ferror_unlocked)(file));
    SAY(C(getc)(file));
    C(clearerr)(file);
    C(clearerr_unlocked)(file);
    SAY(C(feof)(file));
}

static void lines(FILE *file)
{
    char **line = (char **)place_aligned(8), *own;
    size_t *room = (size_t *)place_aligned(8), own_room;
    put(line, &(void *){NULL}, 8), put(room, &(size_t){0}, 8);
    C(rewind)(file);
    SAY(C(getline)(line, room, file));
    get(&own, line, 8);
    SAY_TEXT(own);
    SAY(C(getdelim)(line, room, 'e', file));
    SAY(C(__getdelim)(line, room, 'l', file));
    get(&own, line, 8), get(&own_room, room, 8);
    SAY_TEXT(own);
    SAY(own_room);
    C(free)(own);
    put(line, &(void *){NULL}, 8);
}

static void states(FILE *file)
{
    fpos_t *where = (fpos_t *)place_aligned(sizeof *where);
    fpos64_t *where64 = (fpos64_t *)place_aligned(sizeof *where64);
    SAY(C(fflush)(file)); SAY(C(fflush_unlocked)(file)); SAY(C(fflush)(NULL));
    SAY(C(fseek)(file, 9, SEEK_SET));
    SAY(C(fgetpos)(file, where)); SAY(C(fgetpos64)(file, where64));
    SAY(C(getc)(file));
    SAY(C(fsetpos)(file, where)); SAY(C(fsetpos64)(file, where64));
    SAY(C(getc)(file));
    SAY(C(ftell)(file));
    C(flockfile)(file);
    SAY(C(ftrylockfile)(file));
    C(funlockfile)(file), C(funlockfile)(file);
    SAY(C(__fbufsize)(file) > 0); SAY(C(__freading)(file)); SAY(C(__fwriting)(file)); SAY(C(__freadable)(file));
    SAY(C(__fwritable)(file)); SAY(C(__flbf)(file)); SAY(C(__fpending)(file));
    SAY(C(__fsetlocking)(file, FSETLOCKING_QUERY));
    SAY(C(fwide)(file, 0));
    char nothing[64] = "";
    put(where, nothing, sizeof *where), put(where64, nothing, sizeof *where64);
}

static void buffers(void)
{
    FILE *file = fresh("w");
    char *room = place(BUFSIZ);
    SAY(C(setvbuf)(file, room, _IOFBF, 100));
    SAY(C(fputs)(place_text("buffered"), file) >= 0);
    SAY(C(fclose)(file));
    file = fresh("w");
    C(setbuf)(file, room);
    C(setlinebuf)(file);
    C(setbuffer)(file, NULL, 0);
    SAY(C(putc)('c', file));
    C(__fpurge)(file);
    FILE *again = C(freopen)(place_text("stream.txt"), place_text("r"), file);
    SAY(again == file);
    SAY(C(getc)(file));
    SAY(C(fclose)(file));
    int descriptor = C(open)(place_text("stream.txt"), O_RDONLY);
    file = C(fdopen)(descriptor, place_text("r"));
    SAY(C(getc)(file));
    SAY(C(fileno)(file) == descriptor); SAY(C(fileno_unlocked)(file) == descriptor);
    SAY(C(fclose)(file));
    SAY(C(fopen)(place_text("/nowhere/at/all"), place_text("r")) == NULL);
    file = C(fopen64)(place_text("stream.txt"), place_text("r"));
    SAY(C(fclose)(file));
    file = C(tmpfile64)();
    SAY(C(fclose)(file));
    file = C(tmpfile)();
    file = C(freopen64)(place_text("stream.txt"), place_text("r"), file);
    SAY(C(fclose)(file));
}

static void wides(void)
{
    FILE *file = fresh("w+");
    wchar_t *text = place_bytes(L"wide\ntext", sizeof L"wide\ntext"), *to = (wchar_t *)place_aligned(400);
    SAY(C(fputws)(text, file) >= 0); SAY(C(fputws_unlocked)(text, file) >= 0);
    SAY(C(fputwc)(L'a', file)); SAY(C(putwc)(L'b', file)); SAY(C(fputwc_unlocked)(L'c', file));
    SAY(C(putwc_unlocked)(L'\n', file));
    SAY(C(fwprintf)(file, L"%ls %d\n", text, 5)); SAY(C(__fwprintf_chk)(file, 1, L"%s\n", place_text("narrow")));
    C(rewind)(file);
    SAY(C(fgetwc)(file)); SAY(C(getwc)(file)); SAY(C(fgetwc_unlocked)(file)); SAY(C(getwc_unlocked)(file));
    SAY(C(ungetwc)(L'u', file));
    SAY_PLACE(C(fgetws)(to, 50, file)); SAY_PLACE(C(fgetws_unlocked)(to, 50, file));
    SAY_PLACE(C(__fgetws_chk)(to, 100, 50, file)); SAY_PLACE(C(__fgetws_unlocked_chk)(to, 100, 50, file));
    int *number = (int *)place_aligned(4);
    SAY(C(fwscanf)(file, L"%ls", to)); SAY(C(__isoc99_fwscanf)(file, L"%d", number));
    SAY(C(fclose)(file));
    SAY(C(swprintf)(to, below(30), L"<%ls|%s|%d>", text, place_text("n"), 7));
    SAY(C(__swprintf_chk)(to, 60, 1, 100, L"<%5.2f>", 1.5));
    wchar_t *digits = place_bytes(L"15 abc", sizeof L"15 abc");
    SAY(C(swscanf)(digits, L"%d %ls", number, to)); SAY(C(__isoc99_swscanf)(digits, L"%d %2lc", number, to));
}

void streams_scene(void)
{
    FILE *file = fresh("w+");
    on_cell(below(2));
    fill(file);
    on_cell(below(2));
    look(file);
    on_cell(below(2));
    lines(file);
    on_cell(0);
    states(file);
    on_cell(below(2));
    SAY(C(fclose)(file));
    on_cell(0);
    buffers();
    wides();
    SAY(C(remove)(place_text("stream.txt")));
}
