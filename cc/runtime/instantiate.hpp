// instantiate.hpp: included before all else in C++ programs. libstdc++'s own library has std::string and streams ready made, in ordinary code that allocates private memory and
// looks at shared memory unseen. Without the promise that they are there, the compiler makes them in the program, where they are compiled as all the rest.
// A build system that asks which macros there are does it in C.
#ifdef __cplusplus
#include <bits/c++config.h>
#undef _GLIBCXX_EXTERN_TEMPLATE
#define _GLIBCXX_EXTERN_TEMPLATE 0
#endif
