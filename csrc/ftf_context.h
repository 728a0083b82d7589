/* CONTEXT: ANY. The three contexts that every file of csrc/ declares on its first line.

   SIGNAL  runs inside a fatal-signal handler, with any lock of the process held by anybody: the heap's, the loader's,
           the GIL. May call other SIGNAL and ANY files and the symbols in signal_safe_symbols.txt. All system calls go
           through ftf_sys.h (no errno, hence no TLS). tests/csrc/test_object_symbols.py compares `nm -u` with that list.
   ANY     pure code (formatting, tables) that SIGNAL and NORMAL files share; the same rules.
   NORMAL  runs in ordinary threads of the job: may allocate, lock, call Python. Never called from SIGNAL files.

   If a SIGNAL file breaks the rule, a crash becomes a hang: the one outcome worse than no record. */
#ifndef FTF_CONTEXT_H
#define FTF_CONTEXT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FTF_NOINLINE __attribute__((noinline))
#define FTF_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

#endif
