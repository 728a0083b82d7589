/* CONTEXT: NORMAL
 *
 * One pass over an ELF symbol table on disk. See ftf_symtab.c.
 */
#ifndef FTF_SYMTAB_H
#define FTF_SYMTAB_H

#include <Python.h>

/* nearest_symbols(path: bytes, symtab_offset, symtab_size, strtab_offset, strtab_size, addresses)
 * -> list[tuple[st_value, st_size, name] | None], in the order of `addresses`.
 * OSError when the file cannot be read, ValueError when a table lies outside of it. */
PyObject *ftf_nearest_symbols(PyObject *self, PyObject *args);

#endif
