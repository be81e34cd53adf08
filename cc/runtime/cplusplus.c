/* cplusplus.c: what libstdc++ keeps of threads and conditions in its own library, where it calls libc past us. Under
 * the names that the compiler gives them, and by the layout of libstdc++'s classes (the same since GCC 5), so that
 * none of this needs C++. Mutexes, and waiting with a deadline, are inline code that calls pthreads. */
#include <errno.h>
#include <unistd.h>

#include "attributes.h"
#include "finish.h"
#include "lives.h"
#include "objects.h"

int comb_lib_pthread_join(pthread_t thread, void **result);
int comb_lib_pthread_detach(pthread_t thread);
int comb_lib_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int comb_lib_pthread_cond_signal(pthread_cond_t *condition);
int comb_lib_pthread_cond_broadcast(pthread_cond_t *condition);
int comb_lib_pthread_cond_destroy(pthread_cond_t *condition);

/* libstdc++'s; a program without it has no std::thread. */
void throw_system_error(int error) __asm__("_ZSt20__throw_system_errori") __attribute__((weak, noreturn));
void make_streams(void *of_one_byte) __asm__("comb_lib__ZNSt8ios_base4InitC1Ev") __attribute__((weak));

static void check(int error)
{
    if (error && throw_system_error)
        throw_system_error(error);
}

/* Where the program's constructors do not run, std::cout and its like would never be made. */
void comb_make_streams(void)
{
    static char one_byte;
    if (make_streams)
        make_streams(&one_byte);
}

/* std::thread::_State: destructor, deleting destructor, _M_run(). */
typedef void method(void *state);
enum { DELETE = 1, RUN = 2 };

static void *run(void *state)
{
    method *const *methods;
    comb_copy_from(&methods, state, sizeof methods);
    methods[RUN](state);
    methods[DELETE](state);
    return NULL;
}

/* std::thread is its number, and a unique_ptr its pointer. */
void start_thread(uint64_t *thread, void **state, void (*unused)(void)) __asm__(
    "comb_lib__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE");
void start_thread(uint64_t *thread, void **state, void (*unused)(void))
{
    (void)unused;
    struct comb_birth birth = {.function = run, .stack_bytes = comb_attributes_read(NULL).stack_bytes};
    pthread_sigmask(SIG_SETMASK, NULL, &birth.blocked);
    comb_copy_from(&birth.argument, state, sizeof birth.argument);
    comb_flush_output();
    uint64_t number = 0;
    check(comb_begin(&birth, &number));
    void *none = NULL;
    comb_copy_to(thread, &number, sizeof number);
    comb_copy_to(state, &none, sizeof none);
}

static uint64_t number_of(const uint64_t *thread)
{
    uint64_t number;
    comb_copy_from(&number, thread, sizeof number);
    return number;
}

static void clear(uint64_t *thread)
{
    uint64_t none = 0;
    comb_copy_to(thread, &none, sizeof none);
}

void comb_lib__ZNSt6thread4joinEv(uint64_t *thread)
{
    uint64_t number = number_of(thread);
    check(number ? comb_lib_pthread_join(number, NULL) : EINVAL);
    clear(thread);
}

void comb_lib__ZNSt6thread6detachEv(uint64_t *thread)
{
    uint64_t number = number_of(thread);
    check(number ? comb_lib_pthread_detach(number) : EINVAL);
    clear(thread);
}

/* As many as pay: the processors of all hosts, as if all were like this one, and at least one for each component. */
unsigned comb_lib__ZNSt6thread20hardware_concurrencyEv(void)
{
    long here = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned all = (here > 0 ? (unsigned)here : 1) * comb_here.place.hosts;
    return all > comb_here.place.count ? all : comb_here.place.count;
}

/* std::condition_variable is a pthread_cond_t, and std::unique_lock<std::mutex> begins with a pointer to a mutex,
 * which is a pthread_mutex_t. */
void comb_lib__ZNSt18condition_variableC1Ev(pthread_cond_t *condition)
{
    struct comb_condition new = {.clock = CLOCK_REALTIME};
    comb_copy_to(condition, &new, sizeof new);
}

void comb_lib__ZNSt18condition_variableD1Ev(pthread_cond_t *condition)
{
    comb_lib_pthread_cond_destroy(condition);
}

void comb_lib__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(pthread_cond_t *condition,
                                                                             pthread_mutex_t **lock)
{
    pthread_mutex_t *mutex;
    comb_copy_from(&mutex, lock, sizeof mutex);
    comb_lib_pthread_cond_wait(condition, mutex);
}

void comb_lib__ZNSt18condition_variable10notify_oneEv(pthread_cond_t *condition)
{
    comb_lib_pthread_cond_signal(condition);
}

void comb_lib__ZNSt18condition_variable10notify_allEv(pthread_cond_t *condition)
{
    comb_lib_pthread_cond_broadcast(condition);
}
