/* CONTEXT: NORMAL
 *
 * Names for addresses, from the symbol table of a file on disk, in the analyser (never inside a job's handler).
 *
 * libtorch_cpu.so has half a million symbols. Turning each into a Python object takes half a minute, and sorting them
 * all costs more than looking once: a crash has some fifty addresses, so the table is read a single time, front to
 * back, and every symbol is compared with the sorted addresses by binary search. Names are fetched for the winners
 * only.
 *
 * Which symbol names an address:
 *   1. Only functions count: STT_FUNC, STT_GNU_IFUNC, and STT_NOTYPE (labels in assembly). Undefined, absolute and
 *      nameless ones do not.
 *   2. Among the symbols whose [st_value, st_value + st_size) holds the address: the highest st_value.
 *   3. Otherwise the nearest symbol without a size at or below it, unless a symbol with a size ends in between (then
 *      the address is in a gap: padding, the PLT, a function whose symbol was stripped) and the answer is None.
 *   4. Aliases (equal st_value): a function before a label, GLOBAL before WEAK before LOCAL, the larger st_size, the
 *      name that sorts first. So the answer does not depend on the order that the linker chose.
 *
 * This is close to what libdwfl's dwfl_module_addrinfo does; without its reading of sections, which the caller does.
 *
 * The file is hostile until proven otherwise. It is read with pread(2), not mapped: a file that somebody truncates
 * while we look gives a short read instead of SIGBUS. st_name is compared with the string table's size, and no name is
 * read beyond it.
 */
#define PY_SSIZE_T_CLEAN
#include "ftf_symtab.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FTF_SYMBOLS_PER_READ = 8192, /* 192 KiB: stays in the second-level cache between read and scan */
    FTF_NAME_LIMIT = 1 << 16,    /* longer names are cut; the longest in libtorch 2.13 has 1,466 */
};

/* What is kept of a symbol; st_name stays an offset until the end. */
struct ftf_symbol {
    uint64_t value;
    uint64_t size;
    uint32_t name;
    uint8_t rank; /* lower is better, see symbol_rank(); 0 = no symbol */
};

struct ftf_query {
    uint64_t address;
    size_t position;            /* in the caller's list */
    struct ftf_symbol covering; /* best with a size that holds the address */
    struct ftf_symbol label;    /* best without a size, starting between the previous query's address and this one */
    uint64_t sized_end;         /* highest end of a sized symbol in that same interval */
};

struct ftf_table {
    int fd;
    uint64_t strings_offset;
    uint64_t strings_size;
    struct ftf_query *queries; /* ascending by address */
    size_t count;
    char *name; /* two buffers of FTF_NAME_LIMIT + 1, for comparing aliases */
    char *other_name;
    Elf64_Sym *chunk;
};

/* Reads exactly `size` bytes. 0, or -1 with errno; a file that ends early is EIO. */
static int read_at(int fd, void *buffer, size_t size, uint64_t offset)
{
    char *at = buffer;
    while (size > 0) {
        ssize_t got = pread(fd, at, size, (off_t)offset);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        if (got == 0) {
            errno = EIO;
            return -1;
        }
        at += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return 0;
}

/* Copies the string at `offset` of the string table and returns its length, -1 with errno. Read in steps: most names
 * are short, and neither the limit nor the end of the table may be passed. */
static ssize_t read_name(const struct ftf_table *table, uint32_t offset, char *name)
{
    size_t length = 0;
    uint64_t left = table->strings_size - offset; /* the scan refused st_name >= strings_size */
    size_t room = left < FTF_NAME_LIMIT ? (size_t)left : FTF_NAME_LIMIT;
    while (length < room) {
        size_t step = length == 0 ? 512 : 8192;
        if (step > room - length)
            step = room - length;
        if (read_at(table->fd, name + length, step, table->strings_offset + offset + length) != 0)
            return -1;
        char *end = memchr(name + length, '\0', step);
        if (end != NULL)
            return end - name;
        length += step;
    }
    name[length] = '\0';
    return (ssize_t)length;
}

/* 1 is the best; 0 means that this symbol names no code. */
static uint8_t symbol_rank(const Elf64_Sym *symbol)
{
    uint8_t rank = 1;
    switch (ELF64_ST_TYPE(symbol->st_info)) {
    case STT_FUNC:
    case STT_GNU_IFUNC: break;
    case STT_NOTYPE: rank += 3; break;
    default: return 0;
    }
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS || symbol->st_shndx == SHN_COMMON)
        return 0;
    switch (ELF64_ST_BIND(symbol->st_info)) {
    case STB_GLOBAL:
    case STB_GNU_UNIQUE: return rank;
    case STB_WEAK: return rank + 1;
    default: return rank + 2;
    }
}

/* Index of the first query with address >= value; count when there is none. */
static size_t first_at_or_above(const struct ftf_table *table, uint64_t value)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table->queries[middle].address < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* > 0: `candidate` is the better one; 0: not; -1: errno. */
static int is_better(const struct ftf_table *table, const struct ftf_symbol *candidate, const struct ftf_symbol *best)
{
    if (best->rank == 0)
        return 1;
    if (candidate->value != best->value)
        return candidate->value > best->value;
    if (candidate->rank != best->rank)
        return candidate->rank < best->rank;
    if (candidate->size != best->size)
        return candidate->size > best->size;
    if (read_name(table, candidate->name, table->name) < 0 || read_name(table, best->name, table->other_name) < 0)
        return -1;
    return strcmp(table->name, table->other_name) < 0;
}

/* "$x", "$d", ".L..": marks for the disassembler (ELF for the Arm 64-bit Architecture, "Mapping symbols") and leftovers
 * of the assembler. They name no function. > 0 yes, 0 no, -1 errno. */
static int is_mapping_symbol(const struct ftf_table *table, const struct ftf_symbol *symbol)
{
    if (symbol->rank != 6) /* a local label */
        return 0;
    if (read_name(table, symbol->name, table->name) < 0)
        return -1;
    return table->name[0] == '$' || strncmp(table->name, ".L", 2) == 0;
}

static int consider_sized(struct ftf_table *table, const struct ftf_symbol *symbol)
{
    uint64_t end = symbol->value + symbol->size;
    if (end < symbol->value)
        end = UINT64_MAX;
    size_t i = first_at_or_above(table, symbol->value);
    for (; i < table->count && table->queries[i].address < end; i++) {
        int better = is_better(table, symbol, &table->queries[i].covering);
        if (better < 0)
            return -1;
        if (better)
            table->queries[i].covering = *symbol;
    }
    if (i < table->count && table->queries[i].sized_end < end)
        table->queries[i].sized_end = end;
    return 0;
}

static int consider_label(struct ftf_table *table, const struct ftf_symbol *symbol)
{
    size_t i = first_at_or_above(table, symbol->value);
    if (i == table->count)
        return 0;
    int better = is_better(table, symbol, &table->queries[i].label);
    if (better <= 0)
        return better;
    int mapping = is_mapping_symbol(table, symbol);
    if (mapping < 0)
        return -1;
    if (!mapping)
        table->queries[i].label = *symbol;
    return 0;
}

/* Every symbol against every address. 0, or -1 with errno. */
static int scan(struct ftf_table *table, uint64_t offset, uint64_t symbols)
{
    uint64_t highest = table->queries[table->count - 1].address;
    while (symbols > 0) {
        size_t batch = symbols < FTF_SYMBOLS_PER_READ ? (size_t)symbols : FTF_SYMBOLS_PER_READ;
        if (read_at(table->fd, table->chunk, batch * sizeof(Elf64_Sym), offset) != 0)
            return -1;
        for (size_t i = 0; i < batch; i++) {
            const Elf64_Sym *raw = &table->chunk[i];
            if (raw->st_value > highest || raw->st_name == 0 || raw->st_name >= table->strings_size)
                continue;
            struct ftf_symbol symbol = {raw->st_value, raw->st_size, raw->st_name, symbol_rank(raw)};
            if (symbol.rank == 0)
                continue;
            if ((symbol.size != 0 ? consider_sized : consider_label)(table, &symbol) != 0)
                return -1;
        }
        offset += batch * sizeof(Elf64_Sym);
        symbols -= batch;
    }
    /* Labels and ends were noted at the first query above them; they hold for the later ones too. The first alias
     * rule of is_better(), the higher st_value, makes the nearer interval win. */
    for (size_t i = 1; i < table->count; i++) {
        struct ftf_query *before = &table->queries[i - 1], *query = &table->queries[i];
        if (query->sized_end < before->sized_end)
            query->sized_end = before->sized_end;
        if (query->label.rank == 0)
            query->label = before->label;
    }
    return 0;
}

static const struct ftf_symbol *answer(const struct ftf_query *query)
{
    if (query->covering.rank != 0)
        return &query->covering;
    if (query->label.rank != 0 && query->label.value >= query->sized_end)
        return &query->label;
    return NULL;
}

static int compare_queries(const void *left, const void *right)
{
    const struct ftf_query *a = left, *b = right;
    return (a->address > b->address) - (a->address < b->address);
}

/* The list for Python; NULL with an exception set. */
static PyObject *build_list(struct ftf_table *table)
{
    PyObject *list = PyList_New((Py_ssize_t)table->count);
    if (list == NULL)
        return NULL;
    for (size_t i = 0; i < table->count; i++) {
        const struct ftf_symbol *symbol = answer(&table->queries[i]);
        PyObject *item;
        if (symbol == NULL) {
            item = Py_None;
            Py_INCREF(item);
        } else {
            ssize_t length = read_name(table, symbol->name, table->name);
            if (length < 0) {
                PyErr_SetFromErrno(PyExc_OSError);
                Py_DECREF(list);
                return NULL;
            }
            item = Py_BuildValue("(KKy#)", (unsigned long long)symbol->value, (unsigned long long)symbol->size,
                                 table->name, (Py_ssize_t)length);
        }
        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)table->queries[i].position, item) != 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

/* Fills table->queries from the sequence. 0, or -1 with an exception set. */
static int take_addresses(struct ftf_table *table, PyObject *addresses)
{
    Py_ssize_t count = PySequence_Size(addresses);
    if (count < 0)
        return -1;
    table->queries = calloc((size_t)count + 1, sizeof(*table->queries));
    if (table->queries == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(addresses, i);
        if (item == NULL)
            return -1;
        unsigned long long address = PyLong_AsUnsignedLongLong(item);
        Py_DECREF(item);
        if (address == (unsigned long long)-1 && PyErr_Occurred())
            return -1;
        table->queries[i].address = address;
        table->queries[i].position = (size_t)i;
    }
    table->count = (size_t)count;
    qsort(table->queries, table->count, sizeof(*table->queries), compare_queries);
    return 0;
}

static bool lies_inside(uint64_t offset, uint64_t size, uint64_t file_size)
{
    return offset <= file_size && size <= file_size - offset;
}

static PyObject *look_up(struct ftf_table *table, const char *path, uint64_t symbols_offset, uint64_t symbols_size)
{
    struct stat status;
    /* O_NONBLOCK: a FIFO at that path must not stop the analyser. */
    table->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (table->fd < 0 || fstat(table->fd, &status) != 0)
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    if (!S_ISREG(status.st_mode)) {
        PyErr_SetString(PyExc_ValueError, "not a regular file");
        return NULL;
    }
    uint64_t file_size = (uint64_t)status.st_size;
    if (!lies_inside(symbols_offset, symbols_size, file_size) ||
        !lies_inside(table->strings_offset, table->strings_size, file_size)) {
        PyErr_SetString(PyExc_ValueError, "symbol or string table lies outside the file");
        return NULL;
    }
    table->chunk = malloc(FTF_SYMBOLS_PER_READ * sizeof(Elf64_Sym));
    table->name = malloc(FTF_NAME_LIMIT + 1);
    table->other_name = malloc(FTF_NAME_LIMIT + 1);
    if (table->chunk == NULL || table->name == NULL || table->other_name == NULL)
        return PyErr_NoMemory();
    int failed = 0;
    if (table->count > 0) {
        Py_BEGIN_ALLOW_THREADS failed = scan(table, symbols_offset, symbols_size / sizeof(Elf64_Sym));
        Py_END_ALLOW_THREADS
    }
    if (failed)
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    return build_list(table);
}

PyObject *ftf_nearest_symbols(PyObject *self, PyObject *args)
{
    PyObject *path_object, *addresses;
    unsigned long long symbols_offset, symbols_size, strings_offset, strings_size;
    char *path;
    (void)self;
    /* "S" and not "y": the buffer forms need Py_buffer, which the stable ABI has from 3.11 on only. "K" does not look
     * for overflow: a negative number becomes a huge one, which lies_inside() refuses. */
    if (!PyArg_ParseTuple(args, "SKKKKO", &path_object, &symbols_offset, &symbols_size, &strings_offset, &strings_size,
                          &addresses))
        return NULL;
    if (PyBytes_AsStringAndSize(path_object, &path, NULL) != 0) /* refuses a NUL inside */
        return NULL;
    struct ftf_table table = {.fd = -1, .strings_offset = strings_offset, .strings_size = strings_size};
    PyObject *result = NULL;
    if (take_addresses(&table, addresses) == 0)
        result = look_up(&table, path, symbols_offset, symbols_size);
    if (table.fd >= 0)
        close(table.fd);
    free(table.queries);
    free(table.chunk);
    free(table.name);
    free(table.other_name);
    return result;
}
