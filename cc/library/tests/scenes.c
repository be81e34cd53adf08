/* All scenes. */
#include "world.h"

#define SCENES \
    SCENE(memory, 100) \
    SCENE(strings, 100) \
    SCENE(printing, 40) \
    SCENE(scanning, 60) \
    SCENE(wide, 60) \
    SCENE(numbers, 150) \
    SCENE(multibyte, 60) \
    SCENE(mathematics, 30) \
    SCENE(collation, 40) \
    SCENE(clocks, 30) \
    SCENE(streams, 20) \
    SCENE(lists_of_arguments, 10) \
    SCENE(standard, 10) \
    SCENE(descriptors, 20) \
    SCENE(sorting, 30) \
    SCENE(systems, 10) \
    SCENE(sockets, 15)

#define SCENE(name, rounds) void name##_scene(void);
SCENES
#undef SCENE
#define SCENE(name, rounds) {#name, name##_scene, rounds},
const struct scene scenes[] = {SCENES{0}};
