/* CONTEXT: SIGNAL. The C++ exception that std::terminate could not deliver. */
#ifndef FTF_CXX_H
#define FTF_CXX_H

#include "ftf_state.h"

/* A step: fills ftf.exception. Calls foreign code (what()), so only in the sandbox or guarded. */
void ftf_cxx_read_exception(void);

#endif
