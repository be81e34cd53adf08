/* keys.c: values that each thread has for itself. A key is known in all components, a value is private to its
 * thread.
 *
 * Component 0 deals keys out and keeps their destructors; the others ask it when a thread ends with a value. A key's
 * low bits are its place, and those above count how often the place was used: what threads still have of a deleted
 * key is not a value of the next one. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "calls.h"
#include "services.h"
#include "lives.h"

#define PLACE_BITS 10
#define PLACES (1u << PLACE_BITS)

struct value {
    uint32_t key; /* 0: none */
    const void *content;
};
static _Thread_local struct value *values; /* PLACES of them, once there is one */

typedef void (*destructor)(void *);

/* Of component 0. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    uint32_t key; /* the last one of this place */
    int is_used;
    destructor destructor;
} places[PLACES];

static uint32_t create(destructor destructor)
{
    uint32_t key = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t place = 1; place < PLACES && !key; place++) {
        if (places[place].is_used)
            continue;
        key = places[place].key ? places[place].key + PLACES : place;
        places[place].key = key;
        places[place].is_used = 1;
        places[place].destructor = destructor;
    }
    pthread_mutex_unlock(&lock);
    return key;
}

static int delete(uint32_t key)
{
    uint32_t place = key % PLACES;
    pthread_mutex_lock(&lock);
    int is_used = places[place].is_used && places[place].key == key;
    if (is_used)
        places[place].is_used = 0;
    pthread_mutex_unlock(&lock);
    return is_used ? 0 : EINVAL;
}

static destructor find(uint32_t key)
{
    uint32_t place = key % PLACES;
    pthread_mutex_lock(&lock);
    destructor found = places[place].is_used && places[place].key == key ? places[place].destructor : NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

long comb_serve_key_create(const struct comb_request *request)
{
    destructor destructor;
    if (!comb_request_read(request, &destructor, sizeof destructor))
        return EINVAL;
    uint32_t key = create(destructor);
    comb_reply(request, &key, sizeof key);
    return 0;
}

long comb_serve_key_delete(const struct comb_request *request)
{
    uint32_t key;
    return comb_request_read(request, &key, sizeof key) ? delete(key) : EINVAL;
}

long comb_serve_key_destructor(const struct comb_request *request)
{
    uint32_t key;
    if (!comb_request_read(request, &key, sizeof key))
        return EINVAL;
    destructor found = find(key);
    comb_reply(request, &found, sizeof found);
    return 0;
}

static destructor destructor_of(uint32_t key)
{
    destructor found = NULL;
    if (!comb_here.place.rank)
        return find(key);
    comb_ask(0, COMB_CALL_KEY_DESTRUCTOR, &key, sizeof key, &found, sizeof found);
    return found;
}

int comb_lib_pthread_key_create(pthread_key_t *shared, void (*destructor)(void *))
{
    uint32_t key = 0;
    if (!comb_here.place.rank)
        key = create(destructor);
    else
        comb_ask(0, COMB_CALL_KEY_CREATE, &destructor, sizeof destructor, &key, sizeof key);
    if (!key)
        return EAGAIN;
    pthread_key_t out = key;
    comb_copy_to(shared, &out, sizeof out);
    return 0;
}

int comb_lib_pthread_key_delete(pthread_key_t key)
{
    uint32_t number = key;
    return comb_here.place.rank ? comb_ask(0, COMB_CALL_KEY_DELETE, &number, sizeof number, NULL, 0) : delete(number);
}

void *comb_lib_pthread_getspecific(pthread_key_t key)
{
    const struct value *value = values ? &values[key % PLACES] : NULL;
    return value && value->key == key ? (void *)value->content : NULL;
}

int comb_lib_pthread_setspecific(pthread_key_t key, const void *content)
{
    if (!values && !(values = calloc(PLACES, sizeof *values)))
        return ENOMEM;
    if (key % PLACES == 0)
        return EINVAL;
    values[key % PLACES] = (struct value){key, content};
    return 0;
}

/* A destructor may set values again: they get another turn, as often as POSIX has it. */
void comb_keys_end(void)
{
    int is_left = values != NULL;
    for (int turn = 0; turn < PTHREAD_DESTRUCTOR_ITERATIONS && is_left; turn++) {
        is_left = 0;
        for (uint32_t place = 1; place < PLACES; place++) {
            struct value value = values[place];
            values[place].content = NULL;
            destructor destructor = value.content ? destructor_of(value.key) : NULL;
            if (!destructor)
                continue;
            is_left = 1;
            destructor((void *)value.content);
        }
    }
    free(values);
    values = NULL;
}
