// Which system calls are file operations, and where in their arguments is what. x86-64's numbers.
#ifndef COMB_CALLS_H
#define COMB_CALLS_H

#include "record.h"

enum form {
  NO_FORM = 0,
  // (descriptor, buffer, bytes), (descriptor, vector, parts), each also with an offset behind, and the last one with flags behind that.
  FORM_DATA,
  FORM_VECTOR,
  FORM_POSITIONAL,
  FORM_VECTOR_POSITIONAL,
  FORM_VECTOR_FLAGS,
  // (descriptor, …): what follows differs. What a form does not name is left alone: a register may hold anything.
  FORM_DESCRIPTOR,
  FORM_ARGUMENT,    // (descriptor, argument)
  FORM_ARGUMENTS,   // (descriptor, argument, argument)
  FORM_COMMAND,     // (descriptor, command, what depends on the command)
  FORM_DUPLICATE,   // (descriptor)
  FORM_REPLACE,     // (descriptor, other descriptor)
  FORM_REPLACE_FLAGS,
  FORM_STRETCH,     // (descriptor, offset, bytes)
  FORM_RANGE,       // (descriptor, offset, bytes, argument)
  FORM_ALLOCATE,    // (descriptor, mode, offset, bytes)
  FORM_LENGTH,      // (descriptor, length)
  FORM_CLOSE,
  FORM_CLOSE_RANGE,
  FORM_MAP,
  // Two descriptors: (output, input, place of the input's offset, bytes), (input, place, output, place, bytes).
  FORM_SEND,
  FORM_SPLICE,
  // (path, …), (directory, path, …).
  FORM_OPEN,
  FORM_CREATE,
  FORM_OPEN_AT,
  FORM_OPEN_HOW,
  FORM_OPEN_HANDLE,
  FORM_PATH,
  FORM_PATH_ITSELF,  // of a symbolic link, not where it leads
  FORM_PATH_ARGUMENT,
  FORM_PATH_ARGUMENTS,
  FORM_PATH_LENGTH,
  FORM_GO,  // (path), and where it starts from is another place afterwards
  FORM_PATH_AT,
  FORM_PATH_AT_ARGUMENT,   // (directory, path, argument)
  FORM_PATH_AT_ARGUMENTS,  // (directory, path, argument, argument)
  FORM_PATH_AT_FLAGS,      // (directory, path, what is none, argument)
  FORM_SECOND_PATH,        // (text, path), (text, directory, path)
  FORM_SECOND_PATH_AT,
  FORM_PATHS,
  FORM_PATHS_AT,
  FORM_PATHS_AT_FLAGS,
  FORM_EXECUTE,
  FORM_EXECUTE_AT,
  FORM_WHOLE,  // no file, or all of them
};

struct call_row {
  u8 operation;
  u8 form;
};

#define CALLS 512

#define ROW(number, what, how) [number] = {OPERATION_##what, FORM_##how}

static const struct call_row calls_by_number[CALLS] = {
    ROW(0, READ, DATA),
    ROW(1, WRITE, DATA),
    ROW(2, OPEN, OPEN),
    ROW(3, CLOSE, CLOSE),
    ROW(4, STATUS, PATH),
    ROW(5, STATUS, DESCRIPTOR),
    ROW(6, STATUS, PATH_ITSELF),
    ROW(8, SEEK, ARGUMENTS),
    ROW(9, MAP, MAP),
    ROW(16, CONTROL, ARGUMENT),
    ROW(17, READ, POSITIONAL),
    ROW(18, WRITE, POSITIONAL),
    ROW(19, READ, VECTOR),
    ROW(20, WRITE, VECTOR),
    ROW(21, ACCESS, PATH_ARGUMENT),
    ROW(32, DUPLICATE, DUPLICATE),
    ROW(33, DUPLICATE, REPLACE),
    ROW(40, TRANSFER, SEND),
    ROW(59, EXECUTE, EXECUTE),
    ROW(72, CONTROL, COMMAND),
    ROW(73, LOCK, ARGUMENT),
    ROW(74, SYNC, DESCRIPTOR),
    ROW(75, SYNC, DESCRIPTOR),
    ROW(76, TRUNCATE, PATH_LENGTH),
    ROW(77, TRUNCATE, LENGTH),
    ROW(78, LIST, DATA),
    ROW(80, CHANGE_DIRECTORY, GO),
    ROW(81, CHANGE_DIRECTORY, DESCRIPTOR),
    ROW(82, RENAME, PATHS),
    ROW(83, MAKE_DIRECTORY, PATH_ARGUMENT),
    ROW(84, REMOVE_DIRECTORY, PATH),
    ROW(85, OPEN, CREATE),
    ROW(86, LINK, PATHS),
    ROW(87, DELETE, PATH),
    ROW(88, LINK, SECOND_PATH),
    ROW(89, READ_LINK, PATH),
    ROW(90, SET_ATTRIBUTES, PATH_ARGUMENT),
    ROW(91, SET_ATTRIBUTES, ARGUMENT),
    ROW(92, SET_ATTRIBUTES, PATH_ARGUMENTS),
    ROW(93, SET_ATTRIBUTES, ARGUMENTS),
    ROW(94, SET_ATTRIBUTES, PATH_ARGUMENTS),
    ROW(132, SET_ATTRIBUTES, PATH),
    ROW(133, MAKE, PATH_ARGUMENTS),
    ROW(137, FILE_SYSTEM, PATH),
    ROW(138, FILE_SYSTEM, DESCRIPTOR),
    ROW(161, CHANGE_DIRECTORY, PATH),
    ROW(162, SYNC, WHOLE),
    ROW(187, ADVISE, STRETCH),
    ROW(188, EXTENDED, PATH),
    ROW(189, EXTENDED, PATH),
    ROW(190, EXTENDED, DESCRIPTOR),
    ROW(191, EXTENDED, PATH),
    ROW(192, EXTENDED, PATH),
    ROW(193, EXTENDED, DESCRIPTOR),
    ROW(194, EXTENDED, PATH),
    ROW(195, EXTENDED, PATH),
    ROW(196, EXTENDED, DESCRIPTOR),
    ROW(197, EXTENDED, PATH),
    ROW(198, EXTENDED, PATH),
    ROW(199, EXTENDED, DESCRIPTOR),
    ROW(217, LIST, DATA),
    ROW(221, ADVISE, RANGE),
    ROW(235, SET_ATTRIBUTES, PATH),
    ROW(257, OPEN, OPEN_AT),
    ROW(258, MAKE_DIRECTORY, PATH_AT_ARGUMENT),
    ROW(259, MAKE, PATH_AT_ARGUMENTS),
    ROW(260, SET_ATTRIBUTES, PATH_AT_ARGUMENTS),
    ROW(261, SET_ATTRIBUTES, PATH_AT),
    ROW(262, STATUS, PATH_AT_FLAGS),
    ROW(263, DELETE, PATH_AT_ARGUMENT),
    ROW(264, RENAME, PATHS_AT),
    ROW(265, LINK, PATHS_AT_FLAGS),
    ROW(266, LINK, SECOND_PATH_AT),
    ROW(267, READ_LINK, PATH_AT),
    ROW(268, SET_ATTRIBUTES, PATH_AT_ARGUMENT),
    ROW(269, ACCESS, PATH_AT_ARGUMENT),
    ROW(275, TRANSFER, SPLICE),
    ROW(277, SYNC, RANGE),
    ROW(280, SET_ATTRIBUTES, PATH_AT_FLAGS),
    ROW(285, ALLOCATE, ALLOCATE),
    ROW(292, DUPLICATE, REPLACE_FLAGS),
    ROW(295, READ, VECTOR_POSITIONAL),
    ROW(296, WRITE, VECTOR_POSITIONAL),
    ROW(303, STATUS, PATH_AT),
    ROW(304, OPEN, OPEN_HANDLE),
    ROW(306, SYNC, DESCRIPTOR),
    ROW(316, RENAME, PATHS_AT_FLAGS),
    ROW(322, EXECUTE, EXECUTE_AT),
    ROW(326, TRANSFER, SPLICE),
    ROW(327, READ, VECTOR_FLAGS),
    ROW(328, WRITE, VECTOR_FLAGS),
    ROW(332, STATUS, PATH_AT_ARGUMENT),
    ROW(436, CLOSE, CLOSE_RANGE),
    ROW(437, OPEN, OPEN_HOW),
    ROW(439, ACCESS, PATH_AT_ARGUMENTS),
    ROW(452, SET_ATTRIBUTES, PATH_AT_ARGUMENTS),
    ROW(463, EXTENDED, PATH_AT_ARGUMENT),
    ROW(464, EXTENDED, PATH_AT_ARGUMENT),
    ROW(465, EXTENDED, PATH_AT_ARGUMENT),
    ROW(466, EXTENDED, PATH_AT_ARGUMENT),
    ROW(468, STATUS, PATH_AT),
    ROW(469, SET_ATTRIBUTES, PATH_AT),
};

#undef ROW

#endif
