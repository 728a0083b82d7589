// The C++ part of the crash matrix: an exception that nobody catches, with a text of its own.
#include <stdexcept>

extern "C" __attribute__((noinline, visibility("default"))) void crash_cxx_exception()
{
    throw std::runtime_error("ftf matrix: shard 3 has 7 rows, 8 wanted");
}
