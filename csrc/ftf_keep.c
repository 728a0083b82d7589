/* CONTEXT: NORMAL. See ftf_keep.h. A job that dies because it overran a buffer has often overrun everything behind it on
   the heap first (seen: memset(block, 0, -1) zeroed our lines, and the record was no JSON). So the text lies in mappings of
   its own, writable only while it is copied. */
#include "ftf_keep.h"

#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK (64 * 1024)

static uint8_t *chunk;
static size_t chunk_size, chunk_used;
static uint32_t busy; /* the watcher keeps inventories, Python threads the configuration */

static bool make_room(size_t size)
{
    if (chunk && size <= chunk_size - chunk_used)
        return true;
    size_t wanted = size > CHUNK ? (size + 4095) & ~(size_t)4095 : CHUNK;
    void *memory = mmap(0, wanted, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    chunk = memory;
    chunk_size = wanted;
    chunk_used = 0;
    return true;
}

char *ftf_keep(const void *bytes, size_t size)
{
    char *kept = 0;
    while (__atomic_exchange_n(&busy, 1, __ATOMIC_ACQUIRE) != 0)
        sched_yield();
    if (make_room(size + 1) && mprotect(chunk, chunk_size, PROT_READ | PROT_WRITE) == 0) {
        kept = (char *)chunk + chunk_used;
        memcpy(kept, bytes, size); /* the zero behind is there: the memory is fresh */
        chunk_used += size + 1;
        mprotect(chunk, chunk_size, PROT_READ);
    }
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
    return kept;
}
