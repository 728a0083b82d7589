// Deaths that first damage what the handler needs, or that hide what the handler looks for.
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

extern "C" void overrun_the_heap()
{
    // Through everything behind the block, up to the end of the heap.
    void *volatile block = malloc(16);
    volatile size_t endless = static_cast<size_t>(-1) / 2;
    memset(block, 0, endless);
}

extern "C" void rethrow()
{
    std::exception_ptr kept;
    try {
        throw std::runtime_error("thrown elsewhere, thrown again here");
    } catch (...) {
        kept = std::current_exception();
    }
    std::rethrow_exception(kept);
}

#if defined(__x86_64__)
extern "C" void misaligned_under_alignment_check()
{
    char bytes[16] = {0};
    int *volatile odd = reinterpret_cast<int *>(bytes + 1);
    // EFLAGS.AC: user code asks the CPU to refuse misaligned access, and leaves it set for the handler.
    __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | 0x40000);
    *odd = 1;
}
#endif
